"""Sends fetches: decides which partitions to fetch from which node now. It runs in callbacks, not
in a task.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from aioprod.cluster.snapshot import PartitionInfo
from aioprod.config.consumer import ConsumerConfig
from aioprod.config.settings.client import ISOLATION_LEVELS
from aioprod.consumer.connections import Connections
from aioprod.consumer.fetch_buffer import FetchBuffer
from aioprod.consumer.fetch_results import FetchResults, PartitionFetch
from aioprod.consumer.fetch_sessions import Asked, FetchSession
from aioprod.consumer.fetch_sizes import FetchSizes
from aioprod.consumer.problems import Problems
from aioprod.consumer.reporting import ConsumerReporter
from aioprod.consumer.scheduler import Scheduler
from aioprod.consumer.subscription import PartitionState, SubscriptionState
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, KafkaError
from aioprod.net.distance import is_slow
from aioprod.protocol.messages.fetch import FetchRequest, FetchResponse
from aioprod.types import TopicPartition

_NEVER = float("inf")
_SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


@dataclass(slots=True)
class _NodeState:
    """The state of fetching from one node."""

    session: FetchSession
    reserved: int = 0  # most bytes of the response; 0 if no request is in flight
    is_slow: bool = False  # as of the last response: larger ones might exceed the time limit
    failures: int = 0
    retry_at: float = 0.0


class Fetcher:
    """Keeps the fetch buffer filled.

    A node has one request in flight. It is sent when each of the node's partitions that may be
    fetched has little in the buffer, so that the set of partitions of the fetch session stays the
    same, and no partition waits for a request that leaves it out.

    Args:
        config: the consumer's settings.
        connections: has separate connections for fetches.
        subscription: the partitions to fetch, with their positions.
        buffer: gets the fetched data.
        problems: collects errors of nodes.
        reporter: reports responses and failures.
        results: handles the data in responses.
        scheduler: woken after each response.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        connections: Connections,
        subscription: SubscriptionState,
        buffer: FetchBuffer,
        problems: Problems,
        reporter: ConsumerReporter,
        results: FetchResults,
        scheduler: Scheduler,
    ) -> None:
        self._config = config
        self._metadata = connections.metadata
        self._connections = connections
        self._requests = connections.fetch_requests
        self._subscription = subscription
        self._buffer = buffer
        self._problems = problems
        self._backoff = connections.backoff
        self._reporter = reporter
        self._results = results
        self._scheduler = scheduler
        self._nodes: dict[int, _NodeState] = {}
        self._in_flight: dict[TopicPartition, PartitionFetch] = {}
        self._sizes = FetchSizes(config)
        self._ended = False

    # -- requests ----------------------------------------------------------------------------------

    def step(self, now: float) -> float:
        """Send the requests that are due; return the loop time of the next call, at the latest."""
        again_at = _NEVER
        if self._ended:
            return again_at
        by_node: defaultdict[int, list[tuple[PartitionState, PartitionInfo]]] = defaultdict(list)
        for state in self._subscription.partitions.values():
            if not state.may_be_fetched:
                continue
            if self._buffer.next_position(state) is None:
                self._scheduler.wait_for_read()
                continue
            if state.retry_at > now:
                again_at = min(again_at, state.retry_at)
                continue
            info = self._metadata.snapshot.find_leader(state.tp)
            if not isinstance(info, PartitionInfo):
                self._metadata.request_topic(state.tp.topic)
                self._results.failed(state, info, now)
                again_at = min(again_at, state.retry_at)
            elif self._is_confirmed(state, info):
                by_node[self._node_for(state, info, now)].append((state, info))
        for node_id, node in self._nodes.items():
            if node_id not in by_node and not node.reserved:
                self._problems.over(node_id)  # none of its partitions is read any more
        for node_id, partitions in by_node.items():
            again_at = min(again_at, self._ask(node_id, partitions, now))
        return again_at

    def end(self) -> list[asyncio.Future[FetchResponse]]:
        """Send no more fetches, and end the fetch sessions: otherwise they would occupy the nodes'
        session caches for minutes (KIP-227).

        The requests use other connections, because a request behind a Fetch waits for it.
        """
        self._ended = True
        requests = self._connections.requests
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
                answer = requests.send(node_id, request, last.newest)
                # Best effort. Retrieve the error, which asyncio would log otherwise.
                answer.add_done_callback(lambda done: done.cancelled() or done.exception())
                answers.append(answer)
        return answers

    def _is_confirmed(self, state: PartitionState, info: PartitionInfo) -> bool:
        """Return whether the position is validated for the current leader (KIP-320); if not, begin
        to validate it.
        """
        if info.leader_epoch > state.validated_epoch:
            assert state.position is not None
            if state.position.leader_epoch >= 0 and state.validated_epoch >= 0:
                self._in_flight.pop(state.tp, None)  # the response would be the old leader's
                self._subscription.revalidate(state.tp)
                self._buffer.drop(state.tp)  # records that the new leader may not have
                return False
            state.validated_epoch = info.leader_epoch
        return True

    def _node_for(self, state: PartitionState, info: PartitionInfo, now: float) -> int:
        """Return the leader, or the follower that it named (KIP-392)."""
        if state.preferred_replica < 0:
            return info.leader
        if now < state.preferred_until and state.preferred_replica in self._metadata.snapshot.nodes:
            return state.preferred_replica
        state.preferred_replica = -1
        return info.leader

    def _ask(
        self, node_id: int, partitions: list[tuple[PartitionState, PartitionInfo]], now: float
    ) -> float:
        """Send a request to a node, unless one is in flight, the node is in backoff, or the buffer
        has enough.
        """
        node = self._nodes.setdefault(node_id, _NodeState(FetchSession()))
        if node.reserved:
            return _NEVER
        if node.retry_at > now:
            if self._backoff.searches(node.failures) and not self._requests.connected(node_id):
                self._metadata.request_update()  # at its pace: another node may lead by now
            return node.retry_at
        sizes = self._sizes.of(
            [state for state, _ in partitions],
            0.0 if node.is_slow else self._requests.round_trip_s(node_id),
        )
        if not self._has_room(sizes):
            self._scheduler.wait_for_read()
            return _NEVER
        config = self._config
        wanted: dict[TopicPartition, Asked] = {}
        topics = self._metadata.snapshot.topics
        for state, info in partitions:
            start = self._buffer.next_position(state)
            assert start is not None
            size = sizes[state.tp]
            wanted[state.tp] = Asked(
                topics[state.tp.topic].topic_id, start.offset, info.leader_epoch, size
            )
            # Replaces a request to the former leader, whose response may never arrive.
            self._in_flight[state.tp] = PartitionFetch(node_id, state, state.version, start, size)
        most = min(config.fetch_max_bytes, self._room())
        session = node.session.begin(
            wanted, unanswered=[state.tp for state, _ in partitions if state.high_watermark < 0]
        )
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
        node.reserved = min(most, sum(sizes.values()))
        answer = self._requests.send(node_id, request, session.newest)
        handle = partial(self._answered, node_id, tuple(wanted), now)
        answer.add_done_callback(self._scheduler.guarded(handle))
        return _NEVER

    def _has_room(self, sizes: Mapping[TopicPartition, int]) -> bool:
        """Return whether the buffer may get responses of these sizes. If paused partitions have the
        room, they are dropped.
        """
        # A request for only a few bytes would return a single batch.
        least = min(self._config.max_partition_fetch_bytes, self._config.max_buffered_bytes)
        if self._room() < least:
            self._buffer.drop_paused()
        return self._room() >= least and all(
            # Not if there is one full response: while the application reads that, the broker
            # prepares the next, and the socket buffers it.
            self._buffer.unread_bytes(tp) <= size
            for tp, size in sizes.items()
        )

    def _room(self) -> int:
        return (
            self._config.max_buffered_bytes
            - self._buffer.size
            - sum(node.reserved for node in self._nodes.values())
        )

    # -- responses ---------------------------------------------------------------------------------

    def _answered(
        self,
        node_id: int,
        asked: Iterable[TopicPartition],
        sent_at: float,
        answer: asyncio.Future[FetchResponse],
    ) -> None:
        now = asyncio.get_running_loop().time()
        news = False
        node = self._nodes[node_id]
        node.reserved = 0
        node.is_slow = is_slow(now - sent_at, self._config.request_timeout_ms)
        mine = {
            tp: fetch
            for tp in asked
            if (fetch := self._in_flight.get(tp)) is not None and fetch.node_id == node_id
        }
        for tp in mine:
            del self._in_flight[tp]
        error = None if answer.cancelled() else answer.exception()
        if answer.cancelled() or error is not None:
            node.session.lost()
            assert isinstance(error, KafkaError), error
            self._reporter.fetched(node_id, now - sent_at, error, now)
            self._node_failed(node_id, mine, error, now)
        else:
            reply = answer.result()
            self._reporter.fetched(node_id, now - sent_at, None, now)
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
                known = node.session.known
                names = {known[tp].topic_id: tp.topic for tp in mine if tp in known}
                news = self._results.take(reply, mine, names, now)
        if news:
            self._scheduler.wake_all()
        else:
            self._scheduler.wake()

    def _node_failed(
        self,
        node_id: int,
        mine: dict[TopicPartition, PartitionFetch],
        error: KafkaError,
        now: float,
    ) -> None:
        node = self._nodes[node_id]
        node.failures += 1
        node.retry_at = now + self._backoff.seconds(node.failures)
        self._metadata.request_update()
        for fetch in mine.values():
            fetch.state.preferred_replica = -1
        self._problems.add(node_id, error, now)
