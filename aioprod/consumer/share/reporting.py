"""Reports what happens in a share consumer to its metrics and observers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from aioprod.config.share_consumer import ShareConsumerConfig
from aioprod.consumer.reporting import ReadingReporter, for_observers, partition_names
from aioprod.errors import KafkaError
from aioprod.logs import Logger, get_logger
from aioprod.metrics import (
    AcknowledgementsDone,
    AssignmentChanged,
    RecordsDelivered,
    ShareConsumerMetrics,
    ShareConsumerObservers,
)
from aioprod.types import AcknowledgeType, ShareRecord, TopicPartition

log: Logger = get_logger(__name__)


class ShareReporter(ReadingReporter[ShareConsumerMetrics]):
    """The reports of a share consumer.

    Args:
        config: has the observers.
        metrics: counts.
        now: returns the loop time, for events that come without one.
    """

    def __init__(
        self,
        config: ShareConsumerConfig,
        metrics: ShareConsumerMetrics,
        now: Callable[[], float],
    ) -> None:
        super().__init__(metrics, ShareConsumerObservers(config.observers), now)
        self._client_id = config.client_id
        self._wants_acknowledgements = self._observers.wants("on_acknowledged")

    # -- records -----------------------------------------------------------------------------------

    def subscribed(self, topics: frozenset[str]) -> None:
        """Drop the metrics of all other topics."""
        self._metrics.keep_topics(topics)

    def fetched(
        self, node_id: int, latency_s: float, size: int, records: int, throttle_ms: int
    ) -> None:
        """Report the response to a ShareFetch: its bytes and records."""
        now = self.now()
        self._metrics.fetched(node_id, latency_s, now)
        self._metrics.response_came(size, records, throttle_ms, now)

    def data_came(self, topic: str, size: int) -> None:
        """Report the bytes of a partition in a response."""
        self._metrics.data_came(topic, size, self.now())

    def records_returned(
        self, tp: TopicPartition, records: Sequence[ShareRecord], now: float
    ) -> None:
        """Report that records are returned to the application."""
        self._metrics.records_returned(tp.topic, len(records), now)
        if self._wants_records:
            self._observers.notify("on_records", RecordsDelivered(*tp, tuple(records)))

    # -- acknowledgements --------------------------------------------------------------------------

    def acknowledgements_sent(self, records: int) -> None:
        """Report acknowledgements in a request."""
        self._metrics.acknowledgements_sent(records, self.now())

    def acknowledged(
        self,
        tp: TopicPartition,
        types: Mapping[int, AcknowledgeType],
        since: float,
        error: KafkaError | None,
    ) -> None:
        """Report the outcome of acknowledgements.

        Args:
            tp: their partition.
            types: the type by offset.
            since: loop time at which the first of them was given.
            error: None if they are confirmed.
        """
        now = self.now()
        numbers = _numbers(list(types.values()))
        self._metrics.acknowledged(numbers, error is not None, now)
        if self._wants_acknowledgements:
            done = AcknowledgementsDone(*tp, numbers, now - since, for_observers(error))
            self._observers.notify("on_acknowledged", done)

    # -- the group ---------------------------------------------------------------------------------

    def heartbeat_sent(self, now: float) -> None:
        """Report that a heartbeat is sent."""
        self._metrics.heartbeat_sent(now)

    def heartbeat_answered(self, latency_s: float, now: float) -> None:
        """Report the response to a heartbeat."""
        self._metrics.heartbeat_answered(latency_s, now)

    def rebalanced(self) -> None:
        """Report that the coordinator has assigned other partitions."""
        self._metrics.rebalanced(self.now())

    def assignment_changed(
        self, before: frozenset[TopicPartition], present: frozenset[TopicPartition]
    ) -> None:
        """Report the partitions that are read now."""
        if before != present:
            changes = {"assigned": present - before, "revoked": before - present}
            for event, partitions in changes.items():
                if partitions:
                    names = partition_names(partitions)
                    log.info("%s: partitions %s: %s", self._client_id, event, names)
            change = AssignmentChanged(
                tuple(sorted(present)),
                tuple(sorted(present - before)),
                tuple(sorted(before - present)),
            )
            self._observers.notify("on_assignment", change)


def _numbers(types: list[AcknowledgeType]) -> dict[AcknowledgeType, int]:
    """Count each type."""
    first = types[0]
    if types.count(first) == len(types):  # almost always: one by one they cost more than the rest
        return {first: len(types)}
    return {kind: number for kind in AcknowledgeType if (number := types.count(kind))}
