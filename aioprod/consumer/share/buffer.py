"""The records that brokers have sent, and the application has not got."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable

from aioprod.cluster.metadata import Metadata
from aioprod.cluster.snapshot import PartitionInfo
from aioprod.config.share_consumer import ShareConsumerConfig
from aioprod.consumer.record_conversion import RecordConverter
from aioprod.consumer.share.acknowledgements import GAP, SharePartition
from aioprod.consumer.share.acquired import acquired_ranges, read_acquired
from aioprod.consumer.share.broker import ShareBroker
from aioprod.consumer.share.fetched import Delivered, FetchedRecords, Lock
from aioprod.consumer.share.reporting import ShareReporter
from aioprod.preparation import NotPrepared
from aioprod.protocol.messages.share_fetch import PartitionData
from aioprod.types import AcknowledgeType, TopicPartition


class ShareBuffer:
    """Holds acquired records in the order in which they came, while no other member can have got
    them: their locks have not ended, nor the session with the broker, and it leads the partition.

    Args:
        config: says whether checksums are verified.
        metadata: says who leads a partition.
        converter: has the deserializers.
        reporter: hears of records.

    Attributes:
        handed_out: the number of records that the application got.
    """

    def __init__(
        self,
        config: ShareConsumerConfig,
        metadata: Metadata,
        converter: RecordConverter,
        reporter: ShareReporter,
    ) -> None:
        self.handed_out = 0
        self._check_crcs = config.check_crcs
        self._metadata = metadata
        self._converter = converter
        self._reporter = reporter
        self._topics: frozenset[str] = frozenset()
        self._fetched: deque[FetchedRecords] = deque()
        self._failure: BaseException | None = None  # of a record behind those returned last

    def __bool__(self) -> bool:
        return bool(self._fetched)

    def by_partition(self) -> Counter[TopicPartition]:
        """Return the number of records by partition."""
        found: Counter[TopicPartition] = Counter()
        for fetched in self._fetched.copy():  # another thread may read metrics
            found[fetched.lock.partition.tp] += fetched.left
        return found

    def keep(self, topics: frozenset[str]) -> None:
        """Release the records of all except these topics, also those that come later."""
        self._topics = topics
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
        if partition.topic not in self._topics:  # it was requested before
            fetched.release()
        if fetched:
            self._fetched.append(fetched)
        self._reporter.data_came(partition.topic, len(data.records or b""))
        return len(acquired.records)

    def take(self, limit: int) -> list[Delivered]:
        """Return the next records, none if there are none. Errors are those of
        :meth:`aioprod.consumer.share.fetched.FetchedRecords.take`.
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
            self.handed_out += len(part.records)
            self._reporter.handed_out(part.lock.partition.tp, part.records, now)
            taken.append(part)
        return taken

    def forget(self, node_id: int) -> None:
        """Forget the records of a broker: it has released them when its connection closed."""
        self._keep_unless(lambda lock: lock.broker.node_id == node_id)

    def metadata_changed(self) -> None:
        """Forget the records of partitions that another broker leads by now: their locks are gone,
        also if the leader comes back.
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

    def _is_locked(self, fetched: FetchedRecords, now: float) -> bool:
        """Whether no other member can have got the records."""
        lock = fetched.lock
        # The response may have come when the metadata named another leader already.
        return fetched.is_in_session and now < lock.until and not self._is_moved(lock)

    def _is_moved(self, lock: Lock) -> bool:
        leader = self._metadata.snapshot.find_leader(lock.partition.tp)
        return isinstance(leader, PartitionInfo) and leader.leader != lock.broker.node_id

    def _keep_unless(self, is_gone: Callable[[Lock], bool]) -> None:
        kept = [fetched for fetched in self._fetched if not is_gone(fetched.lock)]
        self._fetched = deque(kept)
