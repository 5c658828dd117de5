"""The parts of a consumer, put together, and what all its calls share: one owner at a time,
wake-ups, the end.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any
from weakref import WeakMethod

from aioprod.arguments import check_timeout_ms
from aioprod.cluster.client_ids import next_client_number
from aioprod.cluster.home import Home, weakly
from aioprod.cluster.metadata import Metadata
from aioprod.cluster.snapshot import ClusterSnapshot, PartitionInfo
from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.background import Background
from aioprod.consumer.fetch_buffer import FetchBuffer
from aioprod.consumer.fetched_data import FetchedData
from aioprod.consumer.fetcher import Fetcher
from aioprod.consumer.finishing import finisher
from aioprod.consumer.group.membership import group_membership
from aioprod.consumer.membership import Membership, NoGroup
from aioprod.consumer.positions import PositionFinder
from aioprod.consumer.problems import Problems
from aioprod.consumer.requests import Requests
from aioprod.consumer.state import ConsumerState, ConsumerStatus
from aioprod.consumer.subscription import PartitionState, SubscriptionState
from aioprod.errors import (
    BrokerError,
    ConcurrentUseError,
    ConsumerStateError,
    KafkaError,
    WakeupError,
)
from aioprod.interceptors import ConsumerInterceptorChain
from aioprod.metrics import ConsumerMetrics
from aioprod.net.backoff import Backoff
from aioprod.net.brokers import Brokers
from aioprod.net.silence import SILENCE_S
from aioprod.types import ConsumerRecord, TopicPartition

# The group learns at least that often that the application takes records, and is asked whether it
# needs anything.
_RECALL_S = 1.0


class ConsumerCore:
    """What a consumer is made of.

    Records that are laid ready for the application (``_ready``) are taken from there without any
    other work: whoever needs to know how far the application is, or needs the next call to do more
    than that, takes them back first (:meth:`_settle`).

    The parts refer to it weakly only: that is how one that is dropped without ``close`` is noticed.
    """

    def __init__(
        self, config: ConsumerConfig, clock: Callable[[], float], rng: random.Random
    ) -> None:
        self.config = config
        self._home = Home(f"consumer {config.client_id!r}")
        self._home.on_fork = weakly(self._drop_ready)
        self._clock = clock
        self._metrics = ConsumerMetrics(config.metrics_sample_window_ms, config.metrics_num_samples)
        self._interceptors = ConsumerInterceptorChain(config.interceptors)
        self._brokers = Brokers(
            config,
            rng,
            on_change=lambda: requests.brokers_changed(),
            on_silence=lambda: metadata.broker_silent(),
        )
        # Connections of their own: a broker answers what comes behind a Fetch only when that has
        # waited for records.
        self._fetch_brokers = Brokers(
            config,
            rng,
            on_change=lambda: fetch_requests.brokers_changed(),
            on_silence=weakly(self._fetch_silence),
        )
        metadata = self._metadata = Metadata(
            config, self._brokers, rng, create_topics=config.allow_auto_create_topics
        )
        requests = self._requests = Requests(config, self._brokers)
        fetch_requests = self._fetch_requests = Requests(config, self._fetch_brokers)
        self._snapshot = self._metadata.snapshot
        self._subscription = SubscriptionState()
        self._problems = Problems()
        self._buffer = FetchBuffer()
        backoff = self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self._membership: Membership = (
            NoGroup(config, self._subscription, self._metadata)
            if config.group_id is None
            else group_membership(
                config, self._subscription, self._metadata, self._interceptors, rng
            )
        )
        self._fetcher = Fetcher(
            config,
            self._metadata,
            self._subscription,
            fetch_requests,
            self._buffer,
            self._problems,
            backoff,
            self._metrics,
            finisher(config, self._interceptors),
        )
        self._finder = PositionFinder(
            config,
            self._metadata,
            self._subscription,
            self._requests,
            self._problems,
            backoff,
            self._membership,
            clock,
        )
        self._background = Background((self._finder.step, self._fetcher.step), weakly(self._broken))
        self._connect_parts()
        # What is laid ready, what it is from, and how many records it was.
        self._ready: Iterator[ConsumerRecord] = iter(())
        self._source: FetchedData | None = None
        self._laid = 0
        self._recall: asyncio.TimerHandle | None = None
        self._suspended_at = 0.0
        self._owner: asyncio.Task[Any] | None = None
        self._depth = 0
        self._scope: asyncio.Timeout | None = None
        self._left: asyncio.Future[None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._woken = False
        self._listeners = 0  # calls of the rebalance listener that run
        self._closing: KafkaError | None = None
        self._fault: KafkaError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = False
        self._status = ConsumerStatus.STOPPED
        self._status_since = clock()

    def _connect_parts(self) -> None:
        changed = weakly(self._changed)
        self._subscription.on_change = changed
        self._subscription.on_drop = weakly(self._dropped)
        self._subscription.on_pause = weakly(self._paused)
        telling = WeakMethod(self._telling)
        self._subscription.telling = lambda: (telling() or nullcontext)()
        self._requests.on_change = self._fetch_requests.on_change = self._background.wake
        self._fetcher.on_data = weakly(self._wake)
        self._fetcher.on_answer = self._background.wake
        self._fetcher.on_new_leader = weakly(self._leader_changed)
        self._finder.on_change = changed
        self._problems.on_untold = weakly(self._wake)
        self._membership.on_attention = weakly(self._attend)

    # -- news from the parts -----------------------------------------------------------------------

    def _changed(self) -> None:
        self._background.wake()
        self._wake()

    def _dropped(self, tp: TopicPartition) -> None:
        """What is known of a partition's records is void."""
        if self._source is not None and self._source.state.tp == tp:
            self._take_back(self._source)
        self._buffer.drop(tp)
        self._fetcher.forget(tp)
        self._problems.over(tp)

    def _paused(self, tp: TopicPartition) -> None:
        if self._source is not None and self._source.state.tp == tp:
            self._settle()

    def _leader_changed(self, state: PartitionState) -> None:
        """Nothing more is handed out before the new leader has confirmed the position; what waits
        may not be in its log.
        """
        self._settle()
        self._buffer.drop(state.tp)
        self._fetcher.forget(state.tp)
        state.validate()
        self._background.wake()

    def _attend(self) -> None:
        """The group needs the next call."""
        self._settle()
        self._wake()

    def _take_over(self, snapshot: ClusterSnapshot) -> None:
        """There is new metadata. Partitions that only lacked a leader don't wait for the end of
        their pause.
        """
        self._fetch_brokers.update_nodes(snapshot.nodes)
        before, self._snapshot = self._snapshot, snapshot
        for state in self._subscription.partitions.values():
            if isinstance(snapshot.find_leader(state.tp), PartitionInfo) and not isinstance(
                before.find_leader(state.tp), PartitionInfo
            ):
                state.retry_at = 0.0
        for topic in {tp.topic for tp in self._subscription.partitions} | self._subscription.topics:
            self._metadata.touch(topic)
        self._note_topics(snapshot)
        self._membership.metadata_changed(snapshot)
        self._background.wake()

    def _note_topics(self, snapshot: ClusterSnapshot) -> None:
        """Topics that are subscribed and not there, or not allowed; what the partitions of others
        lack is found out where they are read.
        """
        now = self._now()
        for topic in self._subscription.topics:
            info = snapshot.topics.get(topic)
            if info is None or not info.error:
                self._problems.over(topic)
                continue
            self._problems.add(topic, BrokerError(info.error, f"topic {topic}"), now)
            self._metadata.request_topic(topic)

    def _fetch_silence(self) -> None:
        """A broker owes an answer to a Fetch: it may take as long as it was told to wait for
        records, and a second.
        """
        limit = self.config.fetch_max_wait_ms / 1000 + SILENCE_S
        for node_id in self._metadata.snapshot.nodes:
            connection = self._fetch_brokers.live(node_id)
            if connection is not None and connection.waited_s >= limit:
                self._metadata.request_update()

    def _broken(self, error: KafkaError) -> None:
        self._fault = self._fault or error
        self._attend()

    # -- records that are laid ready ---------------------------------------------------------------

    def _lay_ready(self, source: FetchedData, records: Sequence[ConsumerRecord]) -> None:
        # Made all at once: between two of them a whole task runs, which would cost more than the
        # garbage collector does.
        self._ready = iter(list(records))
        self._source, self._laid = source, len(records)
        if self._recall is None and self.config.group_id is not None:
            self._recall = asyncio.get_running_loop().call_later(_RECALL_S, weakly(self._recalled))

    def _recalled(self) -> None:
        self._recall = None
        self._settle()

    def _drop_ready(self) -> None:
        """In a forked child: these are for the parent to take."""
        self._ready = iter(())

    def _settle(self) -> None:
        """Take back what was laid ready: the partition's position is now where the
        application is.
        """
        source = self._source
        if source is None:
            return
        if rest := self._take_back(source):
            source.give_back(rest)
        source.state.position = source.position

    def _take_back(self, source: FetchedData) -> list[ConsumerRecord]:
        """What the application did not take; the rest counts as handed out."""
        rest = list(self._ready)
        self._ready, self._source = iter(()), None
        self._metrics.handed_out(source.state.tp.topic, self._laid - len(rest), self._now())
        return rest

    # -- calls -------------------------------------------------------------------------------------

    @contextmanager
    def _own(self) -> Iterator[None]:
        """A call of the application's: refuses a second task, and has the positions right."""
        self._home.check()
        task = (
            asyncio.current_task() if self._loop is not None else None
        )  # before the start there need not be an event loop
        if self._owner is not None and self._owner is not task:
            name = self._owner.get_name()
            raise ConcurrentUseError(
                f"task {name!r} waits in a call of this consumer: only wakeup() and close() "
                "may be called meanwhile"
            )
        if self._closing is not None and self._status is ConsumerStatus.STOPPED:
            raise self._closing.with_traceback(None)
        self._settle()
        self._owner = task
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self._owner = None
                if self._left is not None and not self._left.done():
                    self._left.set_result(None)

    @asynccontextmanager
    async def _call(self) -> AsyncIterator[None]:
        """The same for a call that may wait: ``wakeup`` and ``close`` end it."""
        with self._own():
            if self._scope is not None:  # inside another call: a listener's
                yield
                return
            self._check_open()
            self._check_woken()
            try:
                async with asyncio.timeout(None) as self._scope:
                    yield
            except TimeoutError:
                if self._scope is None or not self._scope.expired():
                    raise
                self._check_open()
                self._check_woken()
                raise
            finally:
                self._scope = None

    def _interrupt(self) -> None:
        """End the call that waits."""
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(asyncio.get_running_loop().time())

    def _check_open(self) -> None:
        for error in (self._closing, self._fault):
            if error is not None:
                raise error.with_traceback(None)
        if not self._started:
            raise ConsumerStateError(
                "the consumer is not started: use 'async with', or call start()"
            )

    def _check_woken(self) -> None:
        if self._woken:
            self._woken = False
            raise WakeupError("wakeup() was called")

    def wakeup(self) -> None:
        """End the call that waits, or else the next one that would, with WakeupError.

        Any task of the consumer's event loop may call it.

        A rebalance listener that runs is not interrupted, nor are its own calls of this consumer:
        WakeupError is raised when the listener has ended. If the listener raises, its error comes
        out of the present call, and WakeupError out of the next one. ``close`` is not interrupted.
        """
        self._home.check()
        if not self._woken:
            self._woken = True
            self._settle()
            if not self._listeners and self._closing is None:
                self._interrupt()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Keep ``wakeup`` from breaking off a call of the listener, which is not made again."""
        self._listeners += 1
        scope = self._scope if self._closing is None else None
        if self._woken and scope is not None and not scope.expired():
            scope.reschedule(None)  # the interruption was asked for, and had not begun
        try:
            yield
        finally:
            self._listeners -= 1
        if not self._listeners and self._closing is None:
            self._check_woken()

    def _wake(self) -> None:
        """There is news for the call that waits."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait(self, deadline: float | None) -> bool:
        """Wait for news; False where ``deadline`` has come."""
        loop = asyncio.get_running_loop()
        if deadline is not None and loop.time() >= deadline:
            return False
        waiter = self._waiter = loop.create_future()
        timer = loop.call_at(deadline, self._wake) if deadline is not None else None
        try:
            await waiter
        finally:
            self._waiter = None
            self._suspended_at = loop.time()
            if timer is not None:
                timer.cancel()
        return True

    def _now(self) -> float:
        return self._loop.time() if self._loop is not None else 0.0

    def _deadline(self, timeout_ms: float | None) -> float:
        check_timeout_ms(timeout_ms)
        limit_ms = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        return asyncio.get_running_loop().time() + limit_ms / 1000

    # -- state -------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerState:
        """How the consumer is at this moment; for health checks, from any task."""
        if self._status is not ConsumerStatus.READING:
            return ConsumerState(self._status, self._status_since, self._fault)
        ended = self._fault or self._membership.failure
        if ended is not None:
            return ConsumerState(ConsumerStatus.FAILING, self._status_since, ended)
        latest = self._problems.latest
        if latest is not None:
            error, since = latest
            return ConsumerState(
                ConsumerStatus.FAILING, self._clock() - (self._now() - since), error
            )
        if self._membership.problem is not None:
            return ConsumerState(
                ConsumerStatus.FAILING, self._status_since, self._membership.problem
            )
        if self._membership.rebalancing:
            return ConsumerState(ConsumerStatus.REBALANCING, self._status_since)
        return ConsumerState(ConsumerStatus.READING, self._status_since)

    def _enter_status(self, status: ConsumerStatus) -> None:
        self._status, self._status_since = status, self._clock()


def client_id(group_id: str | None) -> str:
    """A client id for a consumer that was given none."""
    return (
        f"aioprod-consumer-{group_id}-{next_client_number('consumer')}"
        if group_id
        else f"aioprod-consumer-{next_client_number('consumer')}"
    )
