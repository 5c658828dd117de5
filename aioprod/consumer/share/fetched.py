"""Acquired records that the application has not got yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aioprod.consumer.held_back import HeldBack
from aioprod.consumer.record_conversion import RecordConverter, Unread
from aioprod.consumer.share.acknowledgements import SharePartition
from aioprod.consumer.share.acquired import Acquired
from aioprod.consumer.share.broker import ShareBroker
from aioprod.preparation import NotPrepared
from aioprod.types import AcknowledgeType, ConsumerRecord, ShareRecord


class Lock(NamedTuple):
    """Who locks records of a partition for this member.

    Attributes:
        partition: the partition.
        broker: the broker that has locked them.
        generation: the session of the broker in which it did.
        until: loop time at which the lock ends at the earliest.
    """

    partition: SharePartition
    broker: ShareBroker
    generation: int
    until: float


class Delivered(NamedTuple):
    """Records that the application gets, of one partition and one response."""

    records: list[ShareRecord]
    lock: Lock


class FetchedRecords:
    """The records of one partition in one response.

    Args:
        broker: sent them.
        partition: their partition.
        acquired: the records.
        locked_until: loop time at which their locks end at the earliest.
        converter: has the deserializers.
    """

    def __init__(
        self,
        broker: ShareBroker,
        partition: SharePartition,
        acquired: Acquired,
        locked_until: float,
        converter: RecordConverter,
    ) -> None:
        self.lock = Lock(partition, broker, broker.session.generation, locked_until)
        self._converter = converter
        self._records = acquired.records
        self._counts = acquired.delivery_counts
        self._next = 0
        self._held = HeldBack()
        self._failure: BaseException | None = acquired.error

    def __bool__(self) -> bool:
        return self.left > 0 or self._failure is not None

    @property
    def left(self) -> int:
        """The number of records that the application has not got."""
        return len(self._records) - self._next

    @property
    def is_in_session(self) -> bool:
        """Whether the session in which the records were locked has not been lost."""
        return self.lock.generation == self.lock.broker.session.generation

    def take(self, limit: int) -> Delivered:
        """Return the next records.

        Raises:
            CorruptRecordError, DeserializationError: if the next record can't be read; it is
                released. Earlier calls have returned the records before it.
            NotPrepared: if a deserializer has to wait before it can read the next record.
            KeyboardInterrupt, SystemExit: if a deserializer raised it for the next record.
        """
        unready = self._held.failure()
        if unready is not None:
            self._release_first()
            raise unready
        if not self.left:
            error, self._failure = self._failure, None
            assert error is not None
            raise error
        begin = self._next
        raw = self._records[begin : begin + limit]
        records, unread = self._converter.convert(raw) if self._converter else (raw, None)
        if records:
            self._held.converted()
            self._next += len(records)
            counts = self._counts[begin : self._next]
            return Delivered(with_counts(records, counts), self.lock)
        assert unread is not None
        self._stop(unread)
        raise unread.error

    def release(self) -> None:
        """Release the records: the application does not get them."""
        self._skip(self._records[self._next :])
        self._next = len(self._records)
        self._failure = None

    def _stop(self, unread: Unread) -> None:
        """Keep the first record until its deserializer is prepared, or release it."""
        if isinstance(unread.error, NotPrepared):
            self._held.hold([], unread.error)
        else:
            self._release_first()

    def _release_first(self) -> None:
        self._skip(self._records[self._next : self._next + 1])
        self._next += 1

    def _skip(self, records: list[ConsumerRecord]) -> None:
        if self.is_in_session:
            offsets = [(record.offset, record.offset) for record in records]
            partition, broker, _, until = self.lock
            broker.skip(partition, offsets, AcknowledgeType.RELEASE, until)


def with_counts(records: Sequence[ConsumerRecord], counts: Sequence[int]) -> list[ShareRecord]:
    """Return the records with their delivery counts.

    Calls of the class with 10 arguments took a quarter of reading.
    """
    make = tuple.__new__
    return [
        make(ShareRecord, (*record, count)) for record, count in zip(records, counts, strict=True)
    ]
