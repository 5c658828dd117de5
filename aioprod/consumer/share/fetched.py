"""Acquired records that the application has not got yet."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from aioprod.consumer.held_back import HeldBack
from aioprod.consumer.record_conversion import RecordConverter, Unread
from aioprod.consumer.share.acknowledgements import SharePartition
from aioprod.consumer.share.acquired import Acquired
from aioprod.consumer.share.broker import ShareBroker
from aioprod.preparation import NotPrepared
from aioprod.types import AcknowledgeType, ConsumerRecord, ShareRecord


class Delivery(NamedTuple):
    """A record for the application, and who locks it.

    Attributes:
        record: the record.
        partition: its partition.
        broker: the broker that has locked it for this member.
        generation: the session of the broker in which it did.
        locked_until: loop time at which its lock ends at the earliest.
    """

    record: ShareRecord
    partition: SharePartition
    broker: ShareBroker
    generation: int
    locked_until: float


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
        self.broker = broker
        self.partition = partition
        self.generation = broker.session.generation
        self.locked_until = locked_until
        self._converter = converter
        self._records = deque(acquired.records)
        self._counts = deque(acquired.delivery_counts)
        self._held = HeldBack()
        self._failure: BaseException | None = acquired.error

    def __bool__(self) -> bool:
        return bool(self._records) or self._failure is not None

    @property
    def left(self) -> int:
        """The number of records that the application has not got."""
        return len(self._records)

    def take(self, limit: int) -> list[Delivery]:
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
        if not self._records:
            error, self._failure = self._failure, None
            assert error is not None
            raise error
        raw = [self._records[index] for index in range(min(limit, len(self._records)))]
        records, unread = self._converter.convert(raw) if self._converter else (raw, None)
        if records:
            self._held.converted()
            return [self._deliver(record) for record in records]
        assert unread is not None
        self._stop(unread)
        raise unread.error

    def release(self) -> None:
        """Release the records: the application does not get them."""
        offsets = [(record.offset, record.offset) for record in self._records]
        if self.generation == self.broker.session.generation:
            self.broker.skip(self.partition, offsets, AcknowledgeType.RELEASE)
        self._records.clear()
        self._failure = None

    def _deliver(self, record: ConsumerRecord) -> Delivery:
        self._records.popleft()
        return Delivery(
            ShareRecord(*record, self._counts.popleft()),
            self.partition,
            self.broker,
            self.generation,
            self.locked_until,
        )

    def _stop(self, unread: Unread) -> None:
        """Keep the first record until its deserializer is prepared, or release it."""
        if isinstance(unread.error, NotPrepared):
            self._held.hold([], unread.error)
        else:
            self._release_first()

    def _release_first(self) -> None:
        offset = self._records.popleft().offset
        self._counts.popleft()
        if self.generation == self.broker.session.generation:
            self.broker.skip(self.partition, [(offset, offset)], AcknowledgeType.RELEASE)
