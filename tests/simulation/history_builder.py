"""Histories for the tests of the checkers."""

from __future__ import annotations

from aioprod.types import TopicPartition
from tests.simulation.history import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    CallTrace,
    Content,
    Guarantee,
    History,
    ProducerTrace,
    Reading,
    RecordPosition,
    SentRecord,
    TransactionTrace,
)

P0 = TopicPartition("t", 0)
P1 = TopicPartition("t", 1)


class HistoryBuilder:
    """Builds a history: each call adds the next event."""

    def __init__(
        self,
        guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
        *,
        ordered: bool = True,
        transactional_id: str | None = None,
    ) -> None:
        self.now = 0.0
        self.history = History(clock=lambda: self.now)
        self.add_producer("p", guarantee, ordered=ordered, transactional_id=transactional_id)
        self._logs: dict[TopicPartition, list[tuple[int, SentRecord | None]]] = {}

    def add_producer(
        self,
        name: str,
        guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
        *,
        ordered: bool = True,
        transactional_id: str | None = None,
    ) -> ProducerTrace:
        trace = ProducerTrace(
            name,
            guarantee,
            ordered,
            delivery_limit=10.0,
            send_limit=1.0,
            transactional_id=transactional_id,
        )
        self.history.producers[name] = trace
        return trace

    def call_send(
        self,
        *,
        partition: int | None = 0,
        key: bytes | None = None,
        producer: str = "p",
        transaction: TransactionTrace | None = None,
    ) -> SentRecord:
        content = Content.of(key, b"%d" % len(self.history.records), ())
        return self.history.send(
            producer,
            "t",
            content,
            partition,
            transaction.number if transaction is not None else None,
        )

    def send(
        self,
        *,
        partition: int | None = 0,
        key: bytes | None = None,
        producer: str = "p",
        transaction: TransactionTrace | None = None,
    ) -> SentRecord:
        record = self.call_send(
            partition=partition, key=key, producer=producer, transaction=transaction
        )
        self.history.accepted(record)
        return record

    def acknowledge(self, record: SentRecord, offset: int, place: TopicPartition = P0) -> None:
        self.history.acknowledged(record, RecordPosition(place, offset))

    def fail(self, record: SentRecord, *, never_left: bool = False) -> None:
        self.history.failed(record, "DeliveryTimeoutError", never_left=never_left)

    def store(
        self, *records: SentRecord | None, place: TopicPartition = P0, first_offset: int = 0
    ) -> None:
        """Set the log at the end of the run; None is a record that no producer sent."""
        self._logs.setdefault(place, []).extend(enumerate(records, first_offset))

    def read(self, isolation: str, *entries: tuple[int, SentRecord], start: int = 0) -> Reading:
        """Add what a reader receives during the run."""
        reading = Reading("r", P0, isolation, start=start)
        self.history.readings.append(reading)
        for offset, record in entries:
            self.history.read(reading, offset, record.content)
        return reading

    def call(
        self,
        *,
        took: float | None,
        limit: float = 1.0,
        outcome: str = "ok",
        must_succeed: bool = False,
    ) -> CallTrace:
        trace = self.history.call("p", "flush", limit, must_succeed=must_succeed)
        if took is not None:
            self.now += took
            self.history.returned(trace, outcome)
        return trace

    def end(self, *, invisible: tuple[SentRecord, ...] = ()) -> History:
        """Read the log and return the history. Readers of committed records do not receive
        ``invisible`` records.
        """
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
            for place, entries in self._logs.items():
                reading = Reading("final", place, isolation, final=True)
                self.history.readings.append(reading)
                for offset, record in entries:
                    if isolation == READ_COMMITTED and record in invisible:
                        continue
                    content = (
                        record.content if record is not None else Content.of(None, b"unknown", ())
                    )
                    self.history.read(reading, offset, content)
        for place, entries in self._logs.items():
            self.history.stored.setdefault(
                place,
                [
                    (offset, record.number if record is not None else None)
                    for offset, record in entries
                ],
            )
        return self.history
