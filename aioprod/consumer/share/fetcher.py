"""Fetches the assigned partitions from their leaders, and holds the records for the application."""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable

from aioprod.cluster.metadata import Metadata
from aioprod.cluster.snapshot import PartitionInfo
from aioprod.config.share_consumer import ShareConsumerConfig
from aioprod.consumer.problems import Problems
from aioprod.consumer.record_conversion import RecordConverter
from aioprod.consumer.share.acknowledgements import GAP, PartitionKey, SharePartition
from aioprod.consumer.share.acquired import acquired_ranges, read_acquired
from aioprod.consumer.share.broker import ShareBroker
from aioprod.consumer.share.fetched import Delivery, FetchedRecords
from aioprod.consumer.share.outcomes import Outcomes
from aioprod.consumer.share.requests import Leader, ShareRequests
from aioprod.errors import KafkaError
from aioprod.net.backoff import Backoff
from aioprod.preparation import NotPrepared
from aioprod.protocol.messages.share_fetch import PartitionData
from aioprod.types import AcknowledgeType, TopicPartition


class ShareFetcher:
    """The sessions with all brokers. Implements
    :class:`aioprod.consumer.share.broker.Surroundings`, which documents the calls.

    Args:
        config: the settings.
        metadata: says who leads a partition.
        requests: sends to brokers.
        converter: has the deserializers.
        outcomes: hears of acknowledgements.
        problems: hears of errors.
        backoff: the pauses after failures.
        on_news: called when a request has ended.
        on_renewed: called with the new end of the lock of a record.

    Attributes:
        wants_records: whether the application waits for records. Set it with :meth:`want`.
    """

    def __init__(
        self,
        config: ShareConsumerConfig,
        metadata: Metadata,
        requests: ShareRequests,
        converter: RecordConverter,
        outcomes: Outcomes,
        problems: Problems,
        backoff: Backoff,
        on_news: Callable[[], None],
        on_renewed: Callable[[TopicPartition, int, float], None],
    ) -> None:
        self.wants_records = False
        self._check_crcs = config.check_crcs
        self._limit_s = config.default_api_timeout_ms / 1000
        self._metadata = metadata
        self._requests = requests
        self._converter = converter
        self._outcomes = outcomes
        self._problems = problems
        self._backoff = backoff
        self._on_news = on_news
        self._on_renewed = on_renewed
        self._brokers: dict[int, ShareBroker] = {}
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

    def holds_locks(self, node_id: int) -> bool:
        """Whether a broker may hold locks for this member, which end with its connection."""
        broker = self._brokers.get(node_id)
        return broker is not None and broker.holds_locks

    # -- what to fetch -----------------------------------------------------------------------------

    def subscribe(self, topics: frozenset[str]) -> None:
        """Fetch only partitions of these topics, and release records of others."""
        self._topics = topics
        others = [fetched for fetched in self._buffer if fetched.partition.topic not in topics]
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
        for topic_id, number in assigned:
            name = self._names.get(topic_id)
            leader = (
                snapshot.find_leader(TopicPartition(name, number)) if name is not None else None
            )
            if name is None or not isinstance(leader, PartitionInfo):
                self._metadata.request_update()
                continue
            if name not in self._topics:
                continue
            by_leader.setdefault(leader.leader, set()).add(SharePartition(topic_id, name, number))
        for node_id in by_leader.keys() - self._brokers.keys():
            self._brokers[node_id] = ShareBroker(
                node_id, self._requests, self, self._outcomes, self._backoff, self._limit_s
            )
        for node_id, broker in self._brokers.items():
            broker.wanted = frozenset(by_leader.get(node_id, ()))
        self._look()

    def want(self, wants: bool) -> None:
        """Fetch while the application waits for records."""
        self.wants_records = wants
        if wants:
            self._look()

    def flush(self) -> None:
        """Send all acknowledgements now."""
        for broker in self._brokers.values():
            broker.flush()

    def _look(self) -> None:
        for broker in list(self._brokers.values()):
            broker.look()

    # -- records -----------------------------------------------------------------------------------

    def take(self, limit: int) -> list[Delivery]:
        """Return the next records, none if there are none. Errors are those of
        :meth:`aioprod.consumer.share.fetched.FetchedRecords.take`.
        """
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        now = asyncio.get_running_loop().time()
        taken: list[Delivery] = []
        while self._buffer and len(taken) < limit:
            first = self._buffer[0]
            if not first or not self._is_locked(first, now):
                self._buffer.popleft()
                continue
            try:
                taken += first.take(limit - len(taken))
            except NotPrepared:
                if not taken:
                    raise
                break  # the next call raises it again
            except BaseException as error:
                if not taken:
                    raise
                self._failure = error
                break
        return taken

    def release(self) -> None:
        """Release the records that the application has not got."""
        for fetched in self._buffer:
            fetched.release()
        self._buffer.clear()

    def _is_locked(self, fetched: FetchedRecords, now: float) -> bool:
        """Whether no other member can have got the records."""
        leader = self._metadata.snapshot.find_leader(fetched.partition.tp)
        return (
            fetched.generation == fetched.broker.session.generation
            and now < fetched.locked_until
            and not (isinstance(leader, PartitionInfo) and leader.leader != fetched.broker.node_id)
        )

    # -- what brokers' sessions tell ---------------------------------------------------------------

    def fetched(
        self,
        broker: ShareBroker,
        partition: SharePartition,
        data: PartitionData,
        locked_until: float,
    ) -> None:
        """See :class:`aioprod.consumer.share.broker.Surroundings`."""
        ranges = acquired_ranges(data.acquired_records)
        acquired = read_acquired(partition.tp, data.records, ranges, check_crcs=self._check_crcs)
        broker.skip(partition, acquired.gaps, GAP)
        broker.skip(partition, acquired.unread, AcknowledgeType.RELEASE)
        fetched = FetchedRecords(broker, partition, acquired, locked_until, self._converter)
        if partition.topic not in self._topics:  # it was requested before
            fetched.release()
        if fetched:
            self._buffer.append(fetched)
            self.wants_records = False  # until these are returned: others may have further ones

    def renewed(self, partition: SharePartition, offset: int, locked_until: float) -> None:
        """See :class:`aioprod.consumer.share.broker.Surroundings`."""
        self._on_renewed(partition.tp, offset, locked_until)

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

    def failed(self, what: object, error: KafkaError | None) -> None:
        """See :class:`aioprod.consumer.share.broker.Surroundings`."""
        key = what if isinstance(what, SharePartition) else ("broker", what)
        if error is None:
            self._problems.over(key)
        else:
            self._problems.add(key, error, asyncio.get_running_loop().time())

    def changed(self) -> None:
        """See :class:`aioprod.consumer.share.broker.Surroundings`."""
        self._on_news()

    # -- end ---------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End all sessions; the caller sets the limit."""
        self.wants_records = False
        self._buffer.clear()
        await asyncio.gather(*(broker.close() for broker in self._brokers.values()))

    def end(self, error: KafkaError) -> None:
        """Fail all acknowledgements without an outcome; nothing is sent any more. Nothing is
        scheduled: the event loop may be closed.
        """
        self._buffer.clear()
        for broker in self._brokers.values():
            broker.end(error)
