"""Acquired records from their arrival until they are returned to the application."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from aioprod.config.share_consumer import ShareConsumerConfig
from aioprod.consumer.record_conversion import Preparation, RecordConverter, Unread
from aioprod.consumer.share.acknowledgements import GAP, SharePartition
from aioprod.consumer.share.assignment import ShareAssignment
from aioprod.consumer.share.broker import ShareBroker
from aioprod.consumer.share.reporting import ShareReporter
from aioprod.consumer.share.requests import Acquired, acquired_ranges, read_acquired
from aioprod.interceptors import ConsumerInterceptorChain
from aioprod.preparation import NotPrepared
from aioprod.protocol.messages.share_fetch import PartitionData
from aioprod.types import AcknowledgeType, ConsumerRecord, ShareRecord, TopicPartition

_REMEDY = "it is released, and delivered again up to group.share.delivery.count.limit times"


class Lock(NamedTuple):
    """The lock of records of a partition for this member.

    Attributes:
        partition: the partition.
        broker: the broker that has locked them.
        generation: the generation of the session in which it has locked them.
        until: loop time at which the lock ends at the earliest.
    """

    partition: SharePartition
    broker: ShareBroker
    generation: int
    until: float


class Delivered(NamedTuple):
    """Records to return, of one partition and one response."""

    records: list[ShareRecord]
    lock: Lock


class FetchedRecords:
    """The records of one partition in one response.

    Args:
        broker: has sent them.
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
        self.lock: Lock = Lock(partition, broker, broker.session.generation, locked_until)
        self._converter = converter
        self._records = acquired.records
        self._counts = acquired.delivery_counts
        self._next = 0
        self._preparation = Preparation()
        self._failure: BaseException | None = acquired.error

    def __bool__(self) -> bool:
        return self.left > 0 or self._failure is not None

    @property
    def left(self) -> int:
        """The number of records that were not returned."""
        return len(self._records) - self._next

    @property
    def is_in_session(self) -> bool:
        """True if the session in which the records were locked still exists."""
        return self.lock.generation == self.lock.broker.session.generation

    def take(self, limit: int) -> Delivered:
        """Return the next records.

        Raises:
            CorruptRecordError, DeserializationError: if the next record can't be read; it is
                released. Earlier calls have returned the records before it.
            NotPrepared: if a deserializer has to wait before it can read the next record.
            KeyboardInterrupt, SystemExit: if a deserializer raised it for the next record.
        """
        unready = self._preparation.failure()
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
            self._preparation.converted()
            self._next += len(records)
            counts = self._counts[begin : self._next]
            return Delivered(with_counts(records, counts), self.lock)
        assert unread is not None
        self._stop(unread)
        raise unread.error

    def release(self) -> None:
        """Release the records that were not returned."""
        self._skip(self._records[self._next :])
        self._next = len(self._records)
        self._failure = None

    def _stop(self, unread: Unread) -> None:
        """Keep the first record until its deserializer is prepared, or release it."""
        if isinstance(unread.error, NotPrepared):
            self._preparation.wait_for(unread.error)
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


class ShareBuffer:
    """Keeps acquired records in the order of their arrival, as long as no other member can have
    them: their locks and the session with the broker last, and the broker leads the partition.

    Args:
        config: has the deserializers, and whether checksums are verified.
        assignment: has the subscribed topics, and the leaders of partitions.
        reporter: called when records arrive, and when they are returned.

    Attributes:
        returned: the number of records that were returned.
    """

    def __init__(
        self, config: ShareConsumerConfig, assignment: ShareAssignment, reporter: ShareReporter
    ) -> None:
        self.returned: int = 0
        self._check_crcs = config.check_crcs
        self._assignment = assignment
        self._converter = RecordConverter(
            config.key_deserializer,
            config.value_deserializer,
            ConsumerInterceptorChain(()),
            _REMEDY,
        )
        self._reporter = reporter
        self._fetched: deque[FetchedRecords] = deque()
        self._failure: BaseException | None = None  # of the record after those returned last

    def __bool__(self) -> bool:
        return bool(self._fetched)

    def by_partition(self) -> Counter[TopicPartition]:
        """Return the number of records by partition."""
        found: Counter[TopicPartition] = Counter()
        for fetched in self._fetched.copy():  # another thread may read metrics
            found[fetched.lock.partition.tp] += fetched.left
        return found

    def release_others(self) -> None:
        """Release the records of topics that are not subscribed any more."""
        topics = self._assignment.topics
        for fetched in self._fetched:
            if fetched.lock.partition.topic not in topics:
                fetched.release()
        self._keep_unless(lambda lock: lock.partition.topic not in topics)

    def add(
        self,
        broker: ShareBroker,
        partition: SharePartition,
        data: PartitionData,
        locked_until: float,
    ) -> int:
        """Add the acquired records of a partition in a response, and acknowledge the acquired
        offsets without a record. Return the number of records.

        Args:
            broker: the broker that sent them.
            partition: their partition.
            data: the partition in the response.
            locked_until: loop time at which the locks end at the earliest.

        Raises:
            ProtocolError: if the acquired ranges are not in ascending order.
        """
        ranges = acquired_ranges(data.acquired_records)
        acquired = read_acquired(partition.tp, data.records, ranges, check_crcs=self._check_crcs)
        broker.skip(partition, acquired.gaps, GAP, locked_until)
        broker.skip(partition, acquired.unread, AcknowledgeType.RELEASE, locked_until)
        fetched = FetchedRecords(broker, partition, acquired, locked_until, self._converter)
        if partition.topic not in self._assignment.topics:  # it was requested before
            fetched.release()
        if fetched:
            self._fetched.append(fetched)
        self._reporter.data_came(partition.topic, len(data.records or b""))
        return len(acquired.records)

    def take(self, limit: int) -> list[Delivered]:
        """Return the next records, none if there are none. Errors are those of
        :meth:`FetchedRecords.take`.
        """
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        now = asyncio.get_running_loop().time()
        taken: list[Delivered] = []
        left = limit
        while self._fetched and left:
            first = self._fetched[0]
            if not first or not self._is_locked(first, now):
                self._fetched.popleft()
                continue
            try:
                part = first.take(left)
            except NotPrepared:
                if not taken:
                    raise
                break  # the next call raises it again
            except BaseException as error:
                if not taken:
                    raise
                self._failure = error
                break
            left -= len(part.records)
            self.returned += len(part.records)
            self._reporter.records_returned(part.lock.partition.tp, part.records, now)
            taken.append(part)
        return taken

    def forget(self, node_id: int) -> None:
        """Forget the records of a broker: it has released them when its connection closed."""
        self._keep_unless(lambda lock: lock.broker.node_id == node_id)

    def metadata_changed(self) -> None:
        """Forget the records of partitions that another broker leads now: their locks have ended,
        even if the leader returns.
        """
        self._keep_unless(self._is_moved)

    def release(self) -> None:
        """Release all records."""
        for fetched in self._fetched:
            fetched.release()
        self._fetched.clear()

    def clear(self) -> None:
        """Forget all records: their sessions end, which releases them."""
        self._fetched.clear()

    def close_deserializers(self) -> None:
        """Close the deserializers, once."""
        self._converter.close()

    def _is_locked(self, fetched: FetchedRecords, now: float) -> bool:
        """Return True if no other member can have the records."""
        lock = fetched.lock
        # The metadata may have named another leader before the response arrived.
        return fetched.is_in_session and now < lock.until and not self._is_moved(lock)

    def _is_moved(self, lock: Lock) -> bool:
        return self._assignment.has_moved(lock.partition.tp, lock.broker.node_id)

    def _keep_unless(self, is_gone: Callable[[Lock], bool]) -> None:
        kept = [fetched for fetched in self._fetched if not is_gone(fetched.lock)]
        self._fetched = deque(kept)


def with_counts(records: Sequence[ConsumerRecord], counts: Sequence[int]) -> list[ShareRecord]:
    """Return the records with their delivery counts.

    Calls of the class with 10 arguments took a quarter of reading.
    """
    make = tuple.__new__
    return [
        make(ShareRecord, (*record, count)) for record, count in zip(records, counts, strict=True)
    ]
