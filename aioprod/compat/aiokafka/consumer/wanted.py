"""What the application wants to read. Synchronous."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

import aioprod
from aioprod import TopicPartition
from aioprod.compat.aiokafka.abc import ConsumerRebalanceListener
from aioprod.compat.aiokafka.consumer.driver import Driver
from aioprod.compat.aiokafka.errors import IllegalStateError


class Wanted:
    """Topics, a pattern, or partitions.

    Attributes:
        topics, pattern, partitions: one of them, or none.
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
        """Whether the partitions come from a subscription."""
        return bool(self.topics) or self.pattern is not None

    def all_topics(self) -> frozenset[str]:
        """Return the topics that are known before an assignment."""
        return self.topics.union(tp.topic for tp in self.partitions or ())

    def subscribe(self, topics: Iterable[str], listener: ConsumerRebalanceListener | None) -> None:
        """Want topics."""
        if not isinstance(topics, tuple | set | list):
            raise TypeError("Topics should be list of strings")
        self._check(self.pattern is None and self.partitions is None)
        self.topics, self._listener = frozenset(topics), listener

    def subscribe_pattern(self, pattern: str, listener: ConsumerRebalanceListener | None) -> None:
        """Want the topics whose beginning matches a pattern."""
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a valid pattern: {error}") from error
        self._check(not self.topics and self.partitions is None)
        self.pattern, self._listener = compiled, listener

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Want partitions."""
        self._check(not self.waits_for_assignment)
        self.partitions = frozenset(partitions)

    def clear(self) -> None:
        """Want nothing."""
        self.__init__()  # type: ignore[misc]

    def adopt(self, consumer: aioprod.Consumer, driver: Driver) -> None:
        """Subscribe or assign what is wanted."""
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
