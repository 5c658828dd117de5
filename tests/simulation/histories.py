"""Made-up histories, for the checkers' tests."""

from __future__ import annotations

from aioprod.types import TopicPartition
from tests.simulation.history import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    CallTrace,
    Content,
    History,
    Place,
    ProducerTrace,
    Promise,
    Reading,
    SentRecord,
    TransactionTrace,
)

P0 = TopicPartition("t", 0)
P1 = TopicPartition("t", 1)


class Story:
    """Writes a history down: each call is the next thing that happened."""

    def __init__(
        self,
        promise: Promise = Promise.EXACTLY_ONCE,
        *,
        ordered: bool = True,
        transactional_id: str | None = None,
    ) -> None:
        self.now = 0.0
        self.history = History(clock=lambda: self.now)
        self.add_producer("p", promise, ordered=ordered, transactional_id=transactional_id)
        self._logs: dict[TopicPartition, list[tuple[int, SentRecord | None]]] = {}

    def add_producer(
        self,
        name: str,
        promise: Promise = Promise.EXACTLY_ONCE,
        *,
        ordered: bool = True,
        transactional_id: str | None = None,
    ) -> ProducerTrace:
        trace = ProducerTrace(
            name,
            promise,
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
        self.history.taken(record)
        return record

    def acknowledge(self, record: SentRecord, offset: int, place: TopicPartition = P0) -> None:
        self.history.acknowledged(record, Place(place, offset))

    def fail(self, record: SentRecord, *, never_left: bool = False) -> None:
        self.history.failed(record, "DeliveryTimeoutError", never_left=never_left)

    def store(
        self, *records: SentRecord | None, place: TopicPartition = P0, first_offset: int = 0
    ) -> None:
        """The log in the end, read at both isolation levels; None is a record that nobody sent."""
        self._logs.setdefault(place, []).extend(enumerate(records, first_offset))

    def read(self, isolation: str, *entries: tuple[int, SentRecord], start: int = 0) -> Reading:
        """What a reader gets while the run goes on."""
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
        """The run is over: the log is read. Readers of committed records don't get the
        ``invisible``.
        """
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
            for place, entries in self._logs.items():
                reading = Reading("final", place, isolation, final=True)
                self.history.readings.append(reading)
                for offset, record in entries:
                    if isolation == READ_COMMITTED and record in invisible:
                        continue
                    content = (
                        record.content if record is not None else Content.of(None, b"foreign", ())
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
