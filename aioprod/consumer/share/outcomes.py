"""Passes the outcomes of acknowledgements to ``commit`` and to the application's callback."""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from aioprod.consumer.share.reporting import ShareReporter
from aioprod.errors import KafkaError, copy_of
from aioprod.logs import Logger, get_logger
from aioprod.types import AcknowledgeType, TopicPartition
from aioprod.user_code import surface

log: Logger = get_logger(__name__)

AcknowledgementCallback = Callable[
    [Mapping[TopicPartition, frozenset[int]], KafkaError | None], object
]
"""Called with the offsets of acknowledged records by partition, and with None if the broker has
confirmed them, else with the error.
"""


class Refusals(NamedTuple):
    """Acknowledgements of a partition that fail, none between them being confirmed.

    Attributes:
        since, last: loop times of the first failure and of the last one.
        error: the last error.
    """

    since: float
    last: float
    error: KafkaError


class Outcomes:
    """Passes outcomes on. The types of acknowledgements are given by offset.

    Args:
        callback: the application's callback, if any. Its errors are logged.
        reporter: reports all to metrics and observers.
        with_renewals: True if renewals have outcomes, too; False if the client renews locks itself.
    """

    def __init__(
        self,
        callback: AcknowledgementCallback | None,
        reporter: ShareReporter,
        *,
        with_renewals: bool = True,
    ) -> None:
        self._callback = callback
        self._reporter = reporter
        self._with_renewals = with_renewals
        self._since_commit: dict[TopicPartition, KafkaError | None] = {}
        self._refusals: dict[TopicPartition, Refusals] = {}

    def refusals(self, after: float) -> dict[TopicPartition, Refusals]:
        """Return the partitions whose acknowledgements have failed after a loop time, and not been
        confirmed since. Forget all others.
        """
        self._refusals = {tp: each for tp, each in self._refusals.items() if each.last > after}
        return self._refusals

    def take(self) -> dict[TopicPartition, KafkaError | None]:
        """Return the outcomes since the last call: by partition the first error, None if all
        acknowledgements are confirmed.
        """
        taken, self._since_commit = self._since_commit, {}
        return taken

    def confirmed(
        self, tp: TopicPartition, types: Mapping[int, AcknowledgeType], since: float
    ) -> None:
        """Note that a broker has confirmed acknowledgements. The first of them was given at the
        loop time ``since``.
        """
        offsets = self._with_outcome(types)
        if offsets:
            self._refusals.pop(tp, None)
            self._pass_on(tp, offsets, None)
        if types:
            self._reporter.acknowledged(tp, types, since, None)

    def retried(self, tp: TopicPartition, error: KafkaError) -> None:
        """Note that a broker has refused acknowledgements, which are sent again."""
        now = self._reporter.now()
        before = self._refusals.get(tp)
        self._refusals[tp] = Refusals(now if before is None else before.since, now, error)

    def failed(
        self,
        tp: TopicPartition,
        types: Mapping[int, AcknowledgeType],
        error: KafkaError,
        since: float,
    ) -> None:
        """Note that acknowledgements have failed, or may have failed. The first of them was given
        at the loop time ``since``.
        """
        offsets = self._with_outcome(types)
        if offsets:
            self.retried(tp, error)
            self._pass_on(tp, offsets, error)
        if types:
            self._reporter.acknowledged(tp, types, since, error)

    def _with_outcome(self, types: Mapping[int, AcknowledgeType]) -> Collection[int]:
        """Return the offsets of those whose outcome the application gets."""
        if self._with_renewals:
            return types
        return [each for each in types if types[each] is not AcknowledgeType.RENEW]

    def _pass_on(
        self, tp: TopicPartition, offsets: Collection[int], error: KafkaError | None
    ) -> None:
        if self._since_commit.get(tp) is None:
            self._since_commit[tp] = error if error is None else copy_of(error)
        if self._callback is not None:
            try:
                self._callback({tp: frozenset(offsets)}, error if error is None else copy_of(error))
            except BaseException as own:
                log.error("the acknowledgement_commit_callback failed", exc_info=own)
                surface(own)
