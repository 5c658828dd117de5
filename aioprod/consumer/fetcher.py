"""Fetches: which partitions are asked of which node now, and what is made of the answers. Decisions
and callbacks, no task.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from aioprod.cluster.metadata import Metadata
from aioprod.cluster.snapshot import PartitionInfo
from aioprod.config.consumer import ISOLATION_LEVELS, NONE, ConsumerConfig
from aioprod.consumer.aborted import AbortedBatches
from aioprod.consumer.fetch_buffer import FetchBuffer
from aioprod.consumer.fetch_sessions import Asked, FetchSession
from aioprod.consumer.fetched_batches import end_of
from aioprod.consumer.fetched_data import FetchedData, Finish
from aioprod.consumer.problems import Problems
from aioprod.consumer.requests import Requests
from aioprod.consumer.subscription import PartitionState, Position, SubscriptionState
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, KafkaError, OffsetOutOfRangeError
from aioprod.metrics import ConsumerMetrics
from aioprod.net.backoff import Backoff
from aioprod.net.brokers import Node
from aioprod.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from aioprod.types import TopicPartition

_NEVER = float("inf")
_SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


@dataclass(slots=True)
class _Asking:
    """One partition in a request that is under way; void once the partition is asked of another
    node, or its position has jumped.
    """

    node_id: int
    state: PartitionState
    version: int
    start: Position


@dataclass(slots=True)
class _NodeState:
    """What is known of fetching from a node."""

    session: FetchSession
    reserved: int = 0  # bytes that the answer may bring; 0 where nothing is under way
    failures: int = 0
    retry_at: float = 0.0


class Fetcher:
    """Keeps the buffer filled.

    A node has one request under way. It is asked when each of its partitions that may be fetched
    has little waiting, so that the session's set of partitions stays the same and none of them
    waits behind a request in which it could not take part.

    Args:
        config, metadata, subscription: as everywhere.
        requests: over connections of their own, as a broker answers what comes behind a Fetch only
            after it.
        buffer: where data goes.
        problems: where errors go.
        finish: what is done to records before they are handed out.
        on_data: called when there is something new to hand out.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        metadata: Metadata,
        subscription: SubscriptionState,
        requests: Requests,
        buffer: FetchBuffer,
        problems: Problems,
        backoff: Backoff,
        metrics: ConsumerMetrics,
        finish: Finish | None,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._subscription = subscription
        self._requests = requests
        self._buffer = buffer
        self._problems = problems
        self._backoff = backoff
        self._metrics = metrics
        self._finish = finish
        self._read_committed = config.isolation_level == "read_committed"
        self._nodes: dict[int, _NodeState] = {}
        self._asking: dict[TopicPartition, _Asking] = {}
        self._ended = False
        self.on_data: Callable[[], None] = lambda: None
        self.on_answer: Callable[[], None] = lambda: None
        self.on_new_leader: Callable[[PartitionState], None] = lambda state: None

    # -- asking ------------------------------------------------------------------------------------

    def step(self, now: float) -> float:
        """Send what is due; returns the loop time at which to look again without any news."""
        again_at = _NEVER
        if self._ended:
            return again_at
        by_node: defaultdict[int, list[tuple[PartitionState, PartitionInfo]]] = defaultdict(list)
        for state in self._subscription.partitions.values():
            if not state.may_be_fetched or self._buffer.next_position(state) is None:
                continue
            if state.retry_at > now:
                again_at = min(again_at, state.retry_at)
                continue
            info = self._metadata.snapshot.find_leader(state.tp)
            if not isinstance(info, PartitionInfo):
                self._metadata.request_topic(state.tp.topic)
                self._failed(state, info, now)
                again_at = min(again_at, state.retry_at)
            elif self._is_confirmed(state, info):
                by_node[self._node_for(state, info, now)].append((state, info))
        for node_id, node in self._nodes.items():
            if node_id not in by_node and not node.reserved:
                self._problems.over(node_id)  # nothing is wanted of it any more
        for node_id, partitions in by_node.items():
            again_at = min(again_at, self._ask(node_id, partitions, now))
        return again_at

    def forget(self, tp: TopicPartition) -> None:
        """What is under way of a partition is void."""
        self._asking.pop(tp, None)

    def end(self, requests: Requests) -> list[asyncio.Future[FetchResponse]]:
        """Ask for nothing more, and have the nodes forget what they remember of this consumer: else
        that takes others' room for minutes (KIP-227).

        Args:
            requests: over other connections, since what comes behind a Fetch waits for it.
        """
        self._ended = True
        answers = []
        for node_id, node in self._nodes.items():
            last = node.session.end()
            if last is not None and self._requests.connected(node_id):
                request = FetchRequest(
                    max_wait_ms=0,
                    min_bytes=0,
                    session_id=last.session_id,
                    session_epoch=last.epoch,
                    topics=last.topics,
                )
                answer = requests.send(node_id, request)
                answer.add_done_callback(
                    lambda done: done.cancelled() or done.exception()
                )  # it was worth a try
                answers.append(answer)
        return answers

    def _is_confirmed(self, state: PartitionState, info: PartitionInfo) -> bool:
        """Whether the position is known to be right for the present leader (KIP-320); if not, that
        is found out first.
        """
        if info.leader_epoch > state.validated_epoch:
            assert state.position is not None
            if state.position.leader_epoch >= 0 and state.validated_epoch >= 0:
                self.on_new_leader(state)
                return False
            state.validated_epoch = info.leader_epoch
        return True

    def _node_for(self, state: PartitionState, info: PartitionInfo, now: float) -> int:
        """The leader, or the follower that it named (KIP-392)."""
        if state.preferred_replica < 0:
            return info.leader
        if now < state.preferred_until and state.preferred_replica in self._metadata.snapshot.nodes:
            return state.preferred_replica
        state.preferred_replica = -1
        return info.leader

    def _ask(
        self, node_id: int, partitions: list[tuple[PartitionState, PartitionInfo]], now: float
    ) -> float:
        """Send a request to a node, unless one is under way, it failed a moment ago, or enough
        waits already.
        """
        node = self._nodes.setdefault(node_id, _NodeState(FetchSession()))
        if node.reserved:
            return _NEVER
        if node.retry_at > now:
            return node.retry_at
        config = self._config
        # A request for a few bytes only would bring one batch after the other.
        least = min(config.max_partition_fetch_bytes, config.max_buffered_bytes)
        room = self._room()
        if room < least:
            self._buffer.drop_paused()  # others must not starve because of what nobody wants now
            room = self._room()
        if room < least or any(
            self._buffer.unread_bytes(state.tp) >= config.max_partition_fetch_bytes
            for state, _ in partitions
        ):
            return _NEVER  # the application's next call is news
        wanted: dict[TopicPartition, Asked] = {}
        topics = self._metadata.snapshot.topics
        for state, info in partitions:
            start = self._buffer.next_position(state)
            assert start is not None
            wanted[state.tp] = Asked(
                topics[state.tp.topic].topic_id,
                start.offset,
                info.leader_epoch,
                config.max_partition_fetch_bytes,
            )
            # It takes the place of a question to a node that led before, whose answer may never
            # come.
            self._asking[state.tp] = _Asking(node_id, state, state.version, start)
        most = min(config.fetch_max_bytes, room)
        session = node.session.begin(wanted)
        request = FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=most,
            isolation_level=ISOLATION_LEVELS[config.isolation_level],
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=session.topics,
            forgotten_topics_data=session.forgotten,
            rack_id=config.client_rack,
        )
        node.reserved = min(most, config.max_partition_fetch_bytes * len(wanted))
        answer = self._requests.send(node_id, request)
        answer.add_done_callback(partial(self._answered, node_id, tuple(wanted), now))
        return _NEVER

    def _room(self) -> int:
        return (
            self._config.max_buffered_bytes
            - self._buffer.size
            - sum(node.reserved for node in self._nodes.values())
        )

    # -- answers -----------------------------------------------------------------------------------

    def _answered(
        self,
        node_id: int,
        asked: Iterable[TopicPartition],
        sent_at: float,
        answer: asyncio.Future[FetchResponse],
    ) -> None:
        now = asyncio.get_running_loop().time()
        node = self._nodes[node_id]
        node.reserved = 0
        mine = {
            tp: asking
            for tp in asked
            if (asking := self._asking.get(tp)) is not None and asking.node_id == node_id
        }
        for tp in mine:
            del self._asking[tp]
        error = None if answer.cancelled() else answer.exception()
        if answer.cancelled() or error is not None:
            node.session.lost()
            assert isinstance(error, KafkaError), error
            self._node_failed(node_id, mine, error, now)
        else:
            reply = answer.result()
            self._metrics.fetched(now - sent_at, now)
            node.session.answered(reply.error_code, reply.session_id)
            if reply.error_code in _SESSION_ERRORS and not node.failures:
                node.failures = 1  # the next request begins a new session, without a pause
            elif reply.error_code:
                self._node_failed(
                    node_id,
                    mine,
                    BrokerError(ErrorCode.of(reply.error_code), f"fetch from broker {node_id}"),
                    now,
                )
            else:
                node.failures = 0
                self._problems.over(node_id)
                self._take(reply, mine, now)
        self.on_answer()

    def _node_failed(
        self, node_id: int, mine: dict[TopicPartition, _Asking], error: KafkaError, now: float
    ) -> None:
        node = self._nodes[node_id]
        node.failures += 1
        node.retry_at = now + self._backoff.seconds(node.failures)
        self._metadata.request_update()
        for asking in mine.values():
            asking.state.preferred_replica = -1
        self._problems.add(node_id, error, now)

    def _take(self, reply: FetchResponse, mine: dict[TopicPartition, _Asking], now: float) -> None:
        names = {asked.topic_id: tp.topic for tp, asked in self._sessions_topics(mine)}
        leaders: dict[TopicPartition, tuple[int, int]] = {}
        news = False
        for topic in reply.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                tp = TopicPartition(name, data.partition_index)
                if data.current_leader.leader_epoch >= 0:
                    leaders[tp] = data.current_leader.leader_id, data.current_leader.leader_epoch
                asking = mine.get(tp)
                if (
                    asking is None
                    or asking.state.version != asking.version
                    or self._subscription.get(tp) is not asking.state
                ):
                    continue
                if data.error_code:
                    self._refused(asking, data, now)
                else:
                    news |= self._accept(asking, data, now)
        if leaders:
            self._metadata.take_leaders(
                leaders, [Node(node.node_id, node.host, node.port) for node in reply.node_endpoints]
            )
        if news:
            self.on_data()

    def _sessions_topics(
        self, mine: dict[TopicPartition, _Asking]
    ) -> Iterable[tuple[TopicPartition, Asked]]:
        for tp, asking in mine.items():
            asked = self._nodes[asking.node_id].session.known.get(tp)
            if asked is not None:
                yield tp, asked

    def _accept(self, asking: _Asking, data: PartitionData, now: float) -> bool:
        """Take over one partition's data; whether there is something to hand out."""
        state, tp = asking.state, asking.state.tp
        state.high_watermark, state.last_stable_offset = (
            data.high_watermark,
            data.last_stable_offset,
        )
        if data.log_start_offset >= 0:
            state.log_start_offset = data.log_start_offset
        state.succeeded()
        state.resets = 0
        self._problems.over(tp)
        if data.preferred_read_replica >= 0:
            self._prefer(state, data.preferred_read_replica, now)
        present = self._buffer.next_position(state)
        if not data.records or present is None or present.offset != asking.start.offset:
            return False
        following = end_of(data.records, check_crcs=self._config.check_crcs)
        aborted = AbortedBatches(data.aborted_transactions or ()) if self._read_committed else None
        self._metrics.data_came(tp.topic, len(data.records), now)
        fetched = FetchedData(
            state,
            data.records,
            asking.start,
            aborted,
            self._finish,
            check_crcs=self._config.check_crcs,
        )
        self._buffer.add(fetched, following)
        return True

    def _prefer(self, state: PartitionState, replica: int, now: float) -> None:
        """The leader has named a follower instead of giving records (KIP-392)."""
        state.preferred_replica = replica
        state.preferred_until = now + self._config.metadata_max_age_ms / 1000
        if replica not in self._metadata.snapshot.nodes:
            # It was away when metadata were fetched; the leader would name it again and again.
            self._metadata.request_update()
            self._failed(state, None, now)

    def _refused(self, asking: _Asking, data: PartitionData, now: float) -> None:
        state, code = asking.state, ErrorCode.of(data.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(asking, now)
            return
        state.preferred_replica = -1
        if code.refresh_metadata or code.retriable:
            self._metadata.request_topic(state.tp.topic)
        self._failed(
            state,
            BrokerError(
                code,
                f"fetch from {state.tp.topic}-{state.tp.partition} at offset {asking.start.offset}",
            ),
            now,
        )

    def _failed(self, state: PartitionState, error: BrokerError | None, now: float) -> None:
        state.failures += 1
        state.retry_at = now + self._backoff.seconds(state.failures)
        if error is not None:
            self._problems.add(state.tp, error, now)

    def _out_of_range(self, asking: _Asking, now: float) -> None:
        state = asking.state
        if asking.node_id == state.preferred_replica:
            state.preferred_replica = -1  # a follower may lag behind: the leader knows better
            return
        if state.position is None or asking.start.offset != state.position.offset:
            # What was read before waits for the application; by the time it has that, the log may
            # reach so far.
            self._failed(state, None, now)
            return
        if self._config.offset_reset.strategy != NONE:
            self._subscription.seek_by([state.tp], self._config.offset_reset)
            # Reset again although it was just found: a broker contradicts itself, or deletes faster
            # than this consumer asks.
            state.retry_at = now + self._backoff.seconds(state.resets)
            state.resets += 1
            return
        tp, offset = state.tp, state.position.offset
        state.failure = OffsetOutOfRangeError(
            (
                f"{tp.topic}-{tp.partition} has no offset {offset}, and auto_offset_reset is "
                "'none': seek to where to go on"
            ),
            tp,
            offset,
        )
        self._problems.tell(tp, state.failure, now)
