"""Acknowledges the records of a share group after their outputs were sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from aioprod import (
    AcknowledgeType,
    KafkaError,
    Producer,
    ProducerRecord,
    ShareRecord,
    TopicPartition,
)
from aioprod.logs import Logger, get_logger
from aioprod.processing.guarantees import Completion, send_all
from aioprod.processing.observers import Acknowledged, ProcessorMetrics
from aioprod.processing.scheduling import Item

log: Logger = get_logger(__name__)

# A record's topic, partition and offset.
_Place = tuple[str, int, int]
_COUNTS = {
    AcknowledgeType.ACCEPT: "records-accepted-total",
    AcknowledgeType.RELEASE: "records-released-total",
    AcknowledgeType.REJECT: "records-rejected-total",
}
_MOST_SHOWN = 5
TOTALS = (*_COUNTS.values(), "acknowledgement-errors-total")


class ShareGuarantee(Completion):
    """At least once: outputs are sent first, then the record is accepted. A failed record that
    another member may handle is released.

    Args:
        max_deliveries: the maximum number of deliveries of a record.
        rejects: whether a record that can't be processed is rejected.
        acknowledge: passes an acknowledgement to the consumer.

    Attributes:
        pending: the number of records that were read and are not acknowledged.
    """

    # Releasing a record uses up one of its deliveries, whose number is limited.
    drains_queue = True

    def __init__(
        self,
        producer: Producer,
        metrics: ProcessorMetrics,
        max_deliveries: int,
        rejects: bool,
        acknowledge: Callable[[ShareRecord, AcknowledgeType], None],
    ) -> None:
        self.drops = "rejected" if rejects else None
        self._producer = producer
        self._metrics = metrics
        self._max_deliveries = max_deliveries
        self._acknowledge = acknowledge
        self._records: dict[_Place, ShareRecord] = {}

    @property
    def pending(self) -> int:
        return len(self._records)

    def admit(self, records: Iterable[ShareRecord]) -> list[ShareRecord]:
        """Return the records that are not being processed here already. The others were delivered
        again because their lock was lost; they are acknowledged for the new delivery.
        """
        new = []
        for record in records:
            place = record[:3]
            delivered = self._records.get(place)
            if delivered is None or not _is_same(delivered, record[:-1]):
                new.append(record)
            self._records[place] = record
        return new

    async def deliver(self, items: Sequence[Item], outputs: Sequence[ProducerRecord]) -> None:
        """Send the outputs, then accept the records."""
        if outputs:
            await send_all(self._producer, outputs)
        self.done(items)

    def done(self, items: Sequence[Item]) -> None:
        """Accept the records."""
        for item in items:
            self._acknowledge_record(item, AcknowledgeType.ACCEPT)

    def reopen(self, item: Item) -> None:
        """Do nothing: an accepted record can't be reopened."""

    def may_release(self, item: Item) -> bool:
        """Return whether another delivery is allowed."""
        delivered = self._find(item)
        return delivered is not None and delivered.delivery_count < self._max_deliveries

    def release(self, item: Item) -> None:
        """Release the record."""
        self._acknowledge_record(item, AcknowledgeType.RELEASE)

    async def drop(self, item: Item) -> None:
        """Reject the record."""
        self._acknowledge_record(item, AcknowledgeType.REJECT)

    def _acknowledge_record(self, item: Item, kind: AcknowledgeType) -> None:
        delivered = self._find(item)
        if delivered is None:
            return
        del self._records[delivered[:3]]
        try:
            self._acknowledge(delivered, kind)
        except KafkaError as error:  # the consumer is closed
            tp = TopicPartition(delivered.topic, delivered.partition)
            self.acknowledged({tp: frozenset((delivered.offset,))}, error)
        else:
            self._metrics.totals[_COUNTS[kind]] += 1

    def _find(self, item: Item) -> ShareRecord | None:
        delivered = self._records.get(item.record[:3])
        return delivered if delivered is not None and _is_same(delivered, item.record) else None

    def acknowledged(
        self, offsets: Mapping[TopicPartition, frozenset[int]], error: KafkaError | None
    ) -> None:
        """Process the outcome of acknowledgements."""
        if error is not None:
            count = sum(map(len, offsets.values()))
            self._metrics.totals["acknowledgement-errors-total"] += count
            log.warning(
                "records not acknowledged, which may be handled again: %s: %s",
                ", ".join(f"{tp.topic}-{tp.partition} {_some(of)}" for tp, of in offsets.items()),
                error,
            )
        self._metrics.acknowledged(Acknowledged(offsets, error))


def _is_same(delivered: ShareRecord, record: tuple[object, ...]) -> bool:
    """Return whether both are the same record, perhaps delivered again. If its topic was created
    again, another record may be in its place.
    """
    return delivered[:-1] == record


def _some(offsets: frozenset[int]) -> str:
    """Format offsets; if there are many, only the first ones."""
    first = sorted(offsets)[:_MOST_SHOWN]
    more = f" and {len(offsets) - len(first)} more" if len(offsets) > len(first) else ""
    return f"at {', '.join(map(str, first))}{more}"
