"""Sends fetches: decides which partitions to fetch from which node now. It runs in callbacks, not
in a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from aioprod.config.consumer import ConsumerConfig
from aioprod.config.settings.client import ISOLATION_LEVELS
from aioprod.consumer.connections import Connections
from aioprod.consumer.fetch_buffer import FetchBuffer
from aioprod.consumer.fetch_results import FetchResults, PartitionFetch
from aioprod.consumer.fetch_routes import DuePartition, FetchRoutes
from aioprod.consumer.fetch_sessions import Asked, FetchSession
from aioprod.consumer.fetch_sizes import FetchSizes
from aioprod.consumer.problems import Problems
from aioprod.consumer.reporting import ConsumerReporter
from aioprod.consumer.scheduler import Scheduler
from aioprod.consumer.subscription import SubscriptionState
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
    fetches: dict[TopicPartition, PartitionFetch] = field(default_factory=dict)  # asked last
    is_slow: bool = False  # as of the last response: larger ones might exceed the time limit
    failures: int = 0
    retry_at: float = 0.0


class _Request:
    """A request in flight. It gets its reply, or the error."""

    __slots__ = ("_on_failure", "_on_reply", "_scheduler", "node_id", "sent_at")

    def __init__(
        self,
        node_id: int,
        sent_at: float,
        scheduler: Scheduler,
        on_reply: Callable[[_Request, FetchResponse, float], None],
        on_failure: Callable[[_Request, KafkaError], None],
    ) -> None:
        self.node_id = node_id
        self.sent_at = sent_at
        self._scheduler = scheduler
        self._on_reply = on_reply
        self._on_failure = on_failure

    def replied(self, reply: FetchResponse, now: float) -> None:
        self._scheduler.run(self._on_reply, self, reply, now)

    def failed(self, error: KafkaError) -> None:
        self._scheduler.run_soon(self._on_failure, self, error)


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
        self._routes = FetchRoutes(self._metadata, subscription, buffer, results, scheduler)
        self._buffer = buffer
        self._problems = problems
        self._backoff = connections.backoff
        self._reporter = reporter
        self._results = results
        self._scheduler = scheduler
        self._nodes: dict[int, _NodeState] = {}
        self._sizes = FetchSizes(config)
        self._ended = False

    # -- requests ----------------------------------------------------------------------------------

    def step(self, now: float) -> float:
        """Send the requests that are due; return the loop time of the next call, at the latest."""
        if self._ended:
            return _NEVER
        by_node, again_at = self._routes.due(now)
        for node_id, node in self._nodes.items():
            if node_id not in by_node and not node.reserved:
                self._problems.over(node_id)  # none of its partitions is read any more
        for node_id, due in by_node.items():
            again_at = min(again_at, self._ask(node_id, due, now))
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

    def _ask(self, node_id: int, due: Sequence[DuePartition], now: float) -> float:
        """Send a request to a node, unless one is in flight, the node is in backoff, or the buffer
        has enough.
        """
        node = self._nodes.get(node_id)
        if node is None:
            node = self._nodes[node_id] = _NodeState(FetchSession())
        if node.reserved:
            return _NEVER
        if node.retry_at > now:
            if self._backoff.searches(node.failures) and not self._requests.connected(node_id):
                self._metadata.request_update()  # at its pace: another node may lead by now
            return node.retry_at
        sizes = self._sizes.of(
            [each.state for each in due],
            0.0 if node.is_slow else self._requests.round_trip_s(node_id),
        )
        fetches = _fetches(node_id, node.fetches, due, sizes)
        room = self._room_for(fetches)
        if room is None:
            self._scheduler.wait_for_read()
            return _NEVER
        for fetch in fetches.values():
            # Replaces a request to the former leader, whose response may never arrive.
            fetch.state.fetch = fetch
        node.fetches = fetches
        most = min(self._config.fetch_max_bytes, room)
        node.reserved = min(most, sum(sizes))
        self._send(node_id, node.session, fetches, most, now)
        return _NEVER

    def _send(
        self,
        node_id: int,
        session: FetchSession,
        fetches: Mapping[TopicPartition, PartitionFetch],
        most: int,
        now: float,
    ) -> None:
        config = self._config
        change = session.begin(
            {tp: fetch.asked for tp, fetch in fetches.items()},
            unanswered=[tp for tp, fetch in fetches.items() if fetch.state.high_watermark < 0],
        )
        request = FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=most,
            isolation_level=ISOLATION_LEVELS[config.isolation_level],
            session_id=change.session_id,
            session_epoch=change.epoch,
            topics=change.topics,
            forgotten_topics_data=change.forgotten,
            rack_id=config.client_rack,
        )
        self._requests.post(
            node_id,
            request,
            _Request(node_id, now, self._scheduler, self._replied, self._unanswered),
            change.newest,
        )

    def _room_for(self, fetches: Mapping[TopicPartition, PartitionFetch]) -> int | None:
        """Return how many bytes the buffer may get; None if it must not get these responses. If
        paused partitions have the room, they are dropped.
        """
        # A request for only a few bytes would return a single batch.
        least = min(self._config.max_partition_fetch_bytes, self._config.max_buffered_bytes)
        room = self._room()
        if room < least:
            self._buffer.drop_paused()
            room = self._room()
            if room < least:
                return None
        for tp, unread in self._buffer.unread_bytes().items():
            # Not if there is one full response: while the application reads that, the broker
            # prepares the next, and the socket buffers it.
            if tp in fetches and unread > fetches[tp].asked.max_bytes:
                return None
        return room

    def _room(self) -> int:
        return (
            self._config.max_buffered_bytes
            - self._buffer.size
            - sum(node.reserved for node in self._nodes.values())
        )

    # -- responses ---------------------------------------------------------------------------------

    def _unanswered(self, request: _Request, error: KafkaError) -> None:
        now = asyncio.get_running_loop().time()
        node = self._end(request, now)
        node.session.lost()
        self._reporter.fetched(request.node_id, now - request.sent_at, error, now)
        self._node_failed(request.node_id, error, now)
        self._scheduler.wake()

    def _replied(self, request: _Request, reply: FetchResponse, now: float) -> None:
        node_id = request.node_id
        node = self._end(request, now)
        self._reporter.fetched(node_id, now - request.sent_at, None, now)
        node.session.answered(reply.error_code, reply.session_id)
        news = False
        if reply.error_code in _SESSION_ERRORS and not node.failures:
            node.failures = 1  # the next request begins a new session, without a pause
        elif reply.error_code:
            error = BrokerError(ErrorCode.of(reply.error_code), f"fetch from broker {node_id}")
            self._node_failed(node_id, error, now)
        else:
            node.failures = 0
            self._problems.over(node_id)
            news = self._results.take(reply, node.fetches, node.session.names, now)
        if news:
            self._scheduler.wake_all()
        else:
            self._scheduler.wake()

    def _end(self, request: _Request, now: float) -> _NodeState:
        node = self._nodes[request.node_id]
        node.reserved = 0
        node.is_slow = is_slow(now - request.sent_at, self._config.request_timeout_ms)
        return node

    def _node_failed(self, node_id: int, error: KafkaError, now: float) -> None:
        node = self._nodes[node_id]
        node.failures += 1
        node.retry_at = now + self._backoff.seconds(node.failures)
        self._metadata.request_update()
        for fetch in node.fetches.values():
            if fetch.state.fetch is fetch:
                fetch.state.preferred_replica = -1
        self._problems.add(node_id, error, now)


def _fetches(
    node_id: int,
    before: Mapping[TopicPartition, PartitionFetch],
    due: Sequence[DuePartition],
    sizes: Sequence[int],
) -> dict[TopicPartition, PartitionFetch]:
    """Return the parts of a request to a node. Those that are as ``before`` are the same objects:
    to make new ones for 100 partitions would take longer than the request.
    """
    fetches: dict[TopicPartition, PartitionFetch] = {}
    for (state, leader, start), size in zip(due, sizes, strict=True):
        asked = Asked(leader.topic_id, start.offset, leader.info.leader_epoch, size)
        fetch = before.get(state.tp)
        if (
            fetch is None
            or fetch.state is not state
            or fetch.version != state.version
            or fetch.start != start
            or fetch.asked != asked
        ):
            fetch = PartitionFetch(node_id, state, state.version, start, asked)
        fetches[state.tp] = fetch
    return fetches
