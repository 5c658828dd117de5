"""Fetches the assigned partitions from their leaders, and holds the records for the application."""

from __future__ import annotations

import asyncio
import math
import uuid
from collections import Counter, deque
from collections.abc import Collection, Hashable, Iterable, Iterator

from aioprod.cluster.runtime import ClientRuntime
from aioprod.cluster.snapshot import PartitionInfo
from aioprod.config.share_consumer import ShareConsumerConfig
from aioprod.consumer.notifier import Notifier
from aioprod.consumer.problems import Problems
from aioprod.consumer.record_conversion import RecordConverter
from aioprod.consumer.share.acknowledgements import GAP, PartitionKey, SharePartition
from aioprod.consumer.share.acquired import acquired_ranges, read_acquired
from aioprod.consumer.share.broker import ShareBroker
from aioprod.consumer.share.fetched import Delivered, FetchedRecords
from aioprod.consumer.share.in_hand import RecordsInHand
from aioprod.consumer.share.outcomes import Outcomes
from aioprod.consumer.share.reporting import ShareReporter
from aioprod.consumer.share.requests import Leader, ShareRequests
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, KafkaError
from aioprod.preparation import NotPrepared
from aioprod.protocol.messages.share_fetch import PartitionData
from aioprod.types import AcknowledgeType, TopicPartition


class ShareFetcher:
    """The sessions with all brokers. Implements
    :class:`aioprod.consumer.share.broker.Surroundings`, which documents the calls.

    Args:
        config: the settings.
        runtime: its metadata say who leads a partition; it has the pauses after failures.
        requests: sends to brokers.
        converter: has the deserializers.
        outcomes: hears of acknowledgements.
        problems: hears of errors.
        reporter: hears of requests, records and assigned partitions.
        notifier: wakes the waiting call when a request has ended.
        in_hand: hears of the new end of the lock of a record.

    Attributes:
        partitions: the assigned partitions whose topics are known.
        handed_out: the number of records that the application got.
        wanted_at: loop time at which a call last waited for records.
        wants_records: whether the application waits for records. Set it with :meth:`want`.
    """

    def __init__(
        self,
        config: ShareConsumerConfig,
        runtime: ClientRuntime,
        requests: ShareRequests,
        converter: RecordConverter,
        outcomes: Outcomes,
        problems: Problems,
        reporter: ShareReporter,
        notifier: Notifier,
        in_hand: RecordsInHand,
    ) -> None:
        self.wants_records = False
        self.partitions: frozenset[TopicPartition] = frozenset()
        self.handed_out = 0
        self.wanted_at = -math.inf
        self._check_crcs = config.check_crcs
        self._limit_s = config.default_api_timeout_ms / 1000
        self._metadata = runtime.metadata
        self._requests = requests
        self._converter = converter
        self._outcomes = outcomes
        self._problems = problems
        self._reporter = reporter
        self._backoff = runtime.backoff
        self._notifier = notifier
        self._in_hand = in_hand
        self._brokers: dict[int, ShareBroker] = {}
        self._leaders: dict[SharePartition, int | None] = {}  # of the assigned partitions
        self._names: dict[uuid.UUID, str] = {}
        self._topics: frozenset[str] = frozenset()
        self._assigned: Collection[PartitionKey] = ()
        self._buffer: deque[FetchedRecords] = deque()
        self._failure: BaseException | None = None  # of a record behind those returned last

    @property
    def settled(self) -> bool:
        """Whether each acknowledgement has an outcome."""
        return all(broker.settled for broker in self._brokers.values())

    @property
    def lock_timeout_ms(self) -> int | None:
        """How long brokers lock records for this member; None before the first records."""
        return next(
            (
                broker.lock_timeout_ms
                for broker in self._brokers.values()
                if broker.lock_timeout_ms is not None
            ),
            None,
        )

    def buffered(self) -> Counter[TopicPartition]:
        """Return the number of records that the application has not got, by partition."""
        found: Counter[TopicPartition] = Counter()
        for fetched in self._buffer.copy():  # another thread may read metrics
            found[fetched.lock.partition.tp] += fetched.left
        return found

    def holds_locks(self, node_id: int) -> bool:
        """Whether a broker may hold locks for this member, which end with its connection."""
        broker = self._brokers.get(node_id)
        return broker is not None and broker.holds_locks

    # -- what to fetch -----------------------------------------------------------------------------

    def subscribe(self, topics: frozenset[str]) -> None:
        """Fetch only partitions of these topics, and release records of others."""
        self._topics = topics
        others = [fetched for fetched in self._buffer if fetched.lock.partition.topic not in topics]
        for fetched in others:
            fetched.release()
            self._buffer.remove(fetched)
        if self._assigned:  # the coordinator learns of it with the next heartbeat
            self.assign(self._assigned)

    def assign(self, assigned: Collection[PartitionKey]) -> None:
        """Fetch these partitions, each from its leader."""
        self._assigned = assigned
        snapshot = self._metadata.snapshot
        self._names.update(
            {info.topic_id: name for name, info in snapshot.topics.items() if info.topic_id.int}
        )
        by_leader: dict[int, set[SharePartition]] = {}
        leaders: dict[SharePartition, int | None] = {}
        for topic_id, number in assigned:
            name = self._names.get(topic_id)
            if name is None:
                self._metadata.request_update()
                continue
            if name not in self._topics:
                continue
            partition = SharePartition(topic_id, name, number)
            leader = snapshot.find_leader(partition.tp)
            if isinstance(leader, PartitionInfo):
                leaders[partition] = leader.leader
                by_leader.setdefault(leader.leader, set()).add(partition)
                self._problems.over(_leader_of(partition))
            else:
                leaders[partition] = None
                self._has_no_leader(partition, leader)
        for node_id in by_leader.keys() - self._brokers.keys():
            self._brokers[node_id] = ShareBroker(
                node_id,
                self._requests,
                self,
                self._outcomes,
                self._reporter,
                self._backoff,
                self._limit_s,
            )
        for node_id, broker in self._brokers.items():
            broker.wanted = frozenset(by_leader.get(node_id, ()))
        self._adopt(leaders)
        self._look()

    def _adopt(self, leaders: dict[SharePartition, int | None]) -> None:
        """Note the assigned partitions with their leaders, and forget errors of others."""
        for gone in self._leaders.keys() - leaders.keys():
            self._problems.over(gone)
            self._problems.over(_leader_of(gone))
        for node_id, broker in self._brokers.items():
            if not broker.wanted:
                self._problems.over(_broker(node_id))
        self._leaders = leaders
        before, self.partitions = self.partitions, frozenset(each.tp for each in leaders)
        self._reporter.assignment_changed(before, self.partitions)

    def _has_no_leader(self, partition: SharePartition, error: BrokerError | None) -> None:
        self._metadata.request_update()
        if error is None:
            error = BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{partition.topic}-{partition.partition} is not in the metadata",
            )
        now = asyncio.get_running_loop().time()
        self._problems.note(_leader_of(partition), error, now)

    def troubles(self) -> Iterator[tuple[TopicPartition, KafkaError, float]]:
        """Yield the partitions that can't be read now, the error, and the time of the first."""
        for partition, node_id in self._leaders.items():
            for what in (_leader_of(partition), partition, _broker(node_id)):
                error, since = self._problems.of(what), self._problems.since(what)
                if error is not None and since is not None:
                    yield partition.tp, error, since
                    break

    def want(self, wants: bool) -> None:
        """Fetch while the application waits for records."""
        self.wants_records = wants
        if wants:
            self.wanted_at = asyncio.get_running_loop().time()
            self._look()

    def flush(self) -> None:
        """Send all acknowledgements now."""
        for broker in self._brokers.values():
            broker.flush()

    def _look(self) -> None:
        for broker in list(self._brokers.values()):
            broker.look()

    # -- records -----------------------------------------------------------------------------------

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
        while self._buffer and left:
            first = self._buffer[0]
            if not first or not self._is_locked(first, now):
                self._buffer.popleft()
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

    def release(self) -> None:
        """Release the records that the application has not got."""
        for fetched in self._buffer:
            fetched.release()
        self._buffer.clear()

    def _is_locked(self, fetched: FetchedRecords, now: float) -> bool:
        """Whether no other member can have got the records."""
        lock = fetched.lock
        leader = self._metadata.snapshot.find_leader(lock.partition.tp)
        return (
            fetched.is_in_session
            and now < lock.until
            and not (isinstance(leader, PartitionInfo) and leader.leader != lock.broker.node_id)
        )

    # -- what brokers' sessions tell ---------------------------------------------------------------

    def fetched(
        self,
        broker: ShareBroker,
        partition: SharePartition,
        data: PartitionData,
        locked_until: float,
    ) -> int:
        """See :class:`aioprod.consumer.share.broker.Surroundings`."""
        ranges = acquired_ranges(data.acquired_records)
        acquired = read_acquired(partition.tp, data.records, ranges, check_crcs=self._check_crcs)
        broker.skip(partition, acquired.gaps, GAP, locked_until)
        broker.skip(partition, acquired.unread, AcknowledgeType.RELEASE, locked_until)
        fetched = FetchedRecords(broker, partition, acquired, locked_until, self._converter)
        if partition.topic not in self._topics:  # it was requested before
            fetched.release()
        if fetched:
            self._buffer.append(fetched)
            self.wants_records = False  # until these are returned: others may have further ones
        self._reporter.data_came(partition.topic, len(data.records or b""))
        return len(acquired.records)

    def renewed(self, partition: SharePartition, offset: int, locked_until: float) -> None:
        """See :class:`aioprod.consumer.share.broker.Surroundings`."""
        self._in_hand.renewed(partition.tp, offset, locked_until)

    def stale(self, leaders: Iterable[Leader]) -> None:
        """See :class:`aioprod.consumer.share.broker.Surroundings`."""
        named = [leader for leader in leaders if leader.key[0] in self._names]
        self._metadata.take_leaders(
            {
                TopicPartition(self._names[topic_id], number): (node.node_id, epoch)
                for (topic_id, number), epoch, node in named
            },
            [leader.node for leader in named],
        )
        self._metadata.request_update()

    def failed(self, what: SharePartition | int, error: KafkaError | None) -> None:
        """See :class:`aioprod.consumer.share.broker.Surroundings`."""
        if isinstance(what, SharePartition):
            self._note(what, error, is_read=what in self._leaders)
        else:
            self._note(_broker(what), error, is_read=what in self._leaders.values())

    def _note(self, what: Hashable, error: KafkaError | None, *, is_read: bool) -> None:
        """Note an error, unless nothing is read there any more: no request would end it."""
        if error is not None and is_read:
            self._problems.add(what, error, asyncio.get_running_loop().time())
        else:
            self._problems.over(what)

    def changed(self) -> None:
        """See :class:`aioprod.consumer.share.broker.Surroundings`."""
        self._notifier.notify()

    # -- end ---------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End all sessions; the caller sets the limit."""
        self.wants_records = False
        self._buffer.clear()
        self._in_hand.close()
        await asyncio.gather(*(broker.close() for broker in self._brokers.values()))

    def end(self, error: KafkaError) -> None:
        """Fail all acknowledgements without an outcome; nothing is sent any more. Nothing is
        scheduled: the event loop may be closed.
        """
        self._buffer.clear()
        self._in_hand.close()
        for broker in self._brokers.values():
            broker.end(error)


def _broker(node_id: int | None) -> Hashable:
    """What errors of a broker are noted by."""
    return "broker", node_id


def _leader_of(partition: SharePartition) -> Hashable:
    """What is noted of a partition without a leader."""
    return "leader", partition
