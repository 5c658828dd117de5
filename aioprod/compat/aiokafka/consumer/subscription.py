"""The application's subscription, and the validation of its arguments. Synchronous."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from functools import partial

import aioprod
from aioprod import TopicPartition
from aioprod.compat.aiokafka.abc import ConsumerRebalanceListener
from aioprod.compat.aiokafka.consumer.driver import Driver
from aioprod.compat.aiokafka.errors import IllegalStateError
from aioprod.foreign_text import shown


class Subscription:
    """The application's subscription: topics, a pattern, or partitions.

    Attributes:
        topics, pattern, partitions: at most one of them is set.
    """

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.partitions: frozenset[TopicPartition] | None = None
        self._listener: ConsumerRebalanceListener | None = None

    def __bool__(self) -> bool:
        return self.waits_for_assignment or self.partitions is not None

    @property
    def waits_for_assignment(self) -> bool:
        """True if the partitions come from a subscription."""
        return bool(self.topics) or self.pattern is not None

    def all_topics(self) -> frozenset[str]:
        """Return the topics that are known without an assignment."""
        return self.topics.union(tp.topic for tp in self.partitions or ())

    def subscribe(self, topics: Iterable[str], listener: ConsumerRebalanceListener | None) -> None:
        """Subscribe to topics."""
        if not isinstance(topics, tuple | set | list):
            raise TypeError("Topics should be list of strings")
        self._check(self.pattern is None and self.partitions is None)
        self.topics, self._listener = frozenset(topics), listener

    def subscribe_pattern(self, pattern: str, listener: ConsumerRebalanceListener | None) -> None:
        """Subscribe to the topics whose names begin with a match of a pattern."""
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a valid pattern: {error}") from error
        self._check(not self.topics and self.partitions is None)
        self.pattern, self._listener = compiled, listener

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign partitions."""
        self._check(not self.waits_for_assignment)
        self.partitions = frozenset(partitions)

    def clear(self) -> None:
        """Unsubscribe."""
        self.__init__()  # type: ignore[misc]

    def adopt(self, consumer: aioprod.Consumer, driver: Driver) -> None:
        """Subscribe or assign on the aioprod consumer."""
        driver.listener = self._listener
        driver.has_subscription = bool(self)
        driver.left = False
        driver.assigned.clear()
        driver.subscribe = None
        if self.topics:
            driver.subscribe = partial(consumer.subscribe, sorted(self.topics), listener=driver)
        elif self.pattern is not None:
            # aiokafka matches the beginning of a name, aioprod the whole name.
            pattern = re.compile(f"(?:{self.pattern.pattern}).*", self.pattern.flags | re.DOTALL)
            driver.subscribe = partial(consumer.subscribe, pattern=pattern, listener=driver)
        elif self.partitions is not None:
            consumer.assign(self.partitions)
        if driver.subscribe is not None:
            driver.subscribe()

    @staticmethod
    def _check(allowed: bool) -> None:
        if not allowed:
            raise IllegalStateError(
                "Subscription to topics, partitions and pattern are mutually exclusive"
            )


def check_most(name: str, given: object) -> None:
    """Raise ValueError unless a number of records is valid."""
    if not isinstance(given, int) or given < 1:
        raise ValueError(f"`{name}` must be a positive Integer")


def check_partitions(given: tuple[object, ...], error: type[Exception]) -> None:
    """Raise ``error`` unless all are partitions."""
    if not all(isinstance(tp, TopicPartition) for tp in given):
        raise error("partitions must be TopicPartition instances")


def check_assigned(partitions: Iterable[TopicPartition], assignment: Set[TopicPartition]) -> None:
    """Raise IllegalStateError if a partition is not assigned."""
    for tp in set(partitions) - assignment:
        raise IllegalStateError(f"Partition {shown(tp)} is not assigned")
