"""The consumer that users see."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Self, Unpack, cast

from aioprod.arguments import (
    check_limit_ms,
    check_max_records,
    check_offsets,
    check_partitions,
    check_sources,
    check_timeout_ms,
    check_topics,
)
from aioprod.cluster.home import bring_forward, weakly
from aioprod.config.checks import check_names
from aioprod.config.consumer import CONSUMER, ConsumerConfig, ConsumerSettings
from aioprod.config.kafka_properties import client_arguments
from aioprod.config.plugins import close_plugins
from aioprod.config.redaction import hide_arguments
from aioprod.consumer.assignment import AssignmentCalls
from aioprod.consumer.commits import CommitQueue
from aioprod.consumer.core import client_id
from aioprod.consumer.lookups import LookupCalls
from aioprod.consumer.records import Records
from aioprod.consumer.state import ConsumerStatus
from aioprod.consumer.subscription import Mode
from aioprod.errors import ConsumerClosedError, ConsumerStateError, KafkaTimeoutError
from aioprod.types import ConsumerGroupMetadata, ConsumerRecord, OffsetAndMetadata, TopicPartition
from aioprod.user_code import FallbackClock, surface

_CLOSE_TIMEOUT_MS = 30_000
# Records that are there already are handed out without giving way to other tasks for at most this
# long.
_BURST_S = 0.01
_JOIN_S = 30.0
# Longer than that no close waits for brokers to confirm that they have forgotten it.
_END_SESSIONS_S = 0.5


class Consumer(AssignmentCalls, LookupCalls):
    """Reads records from Kafka in asyncio code.

    ``async for`` over it, :meth:`getone` and :meth:`getmany` hand out records; those of one
    partition come in their order. Records are fetched ahead in the background. Make it anywhere
    (the constructor touches no event loop). It belongs to one task at a time: only :meth:`wakeup`,
    :meth:`close` and what doesn't wait may be called by others. All times are in milliseconds and
    all sizes in bytes; each name is Kafka's, with underscores.

    Args:
        topics: what to subscribe to; ``subscribe`` and ``assign`` do it later.
        bootstrap_servers: ``"host:port,host:port"`` or a list of these.
        clock: seconds since 1970; ``time.time`` if none is given, or if it fails, which is logged.
        rng: source of all random choices (jitter, nodes to ask).
        settings: the fields of :class:`aioprod.config.consumer.ConsumerConfig`; docs/consumer.md
            explains them.

    Raises:
        ConfigError: a setting is unknown, has a bad value, or contradicts another.
    """

    @hide_arguments
    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        clock: Callable[[], float] | None = None,
        rng: random.Random | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        check_names(ConsumerConfig, settings)
        check_sources(clock, rng)
        settings.setdefault("client_id", client_id(settings.get("group_id")))
        config = ConsumerConfig(
            bootstrap_servers=cast("tuple[str, ...]", bootstrap_servers), **settings
        )
        seconds = FallbackClock(clock) if clock is not None else time.time
        super().__init__(config, seconds, rng or random.Random())
        membership, limit_s = self._membership, config.default_api_timeout_ms / 1000

        async def commit_soon(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
            await membership.commit(offsets, asyncio.get_running_loop().time() + limit_s)

        self._commits = CommitQueue(commit_soon)
        self._starting = asyncio.Lock()
        self._closed: asyncio.Future[None] | None = None
        self._close_limit: asyncio.Timeout | None = (
            None  # of the close under way, for another one to shorten it
        )
        self._released = False  # or on its way to it, which needs no caller
        self._parts_closed = False
        if topics:
            self._subscription.subscribe(check_topics(topics))

    @classmethod
    @hide_arguments
    def from_config(cls, settings: Mapping[str, Any], *topics: str) -> Self:
        """Make a consumer from Kafka's own names and values, such as ``{"bootstrap.servers": "...",
        "group.id": "...", "max.poll.records": "50"}``.

        Deserializers, interceptors and assignors may be classes or import paths; they are made and
        configured.

        Raises:
            ConfigError: as the constructor does; and for a setting of Java's that is not there,
                which says why.
        """
        with client_arguments(
            CONSUMER, settings, lambda given: client_id(given.get("group_id"))
        ) as arguments:
            return cls(*topics, **arguments)

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect and learn the cluster, within ``default_api_timeout_ms``.

        After a failure it may be called again.

        Raises:
            BrokerConnectionError: no bootstrap address answers; the message names each and why.
            KafkaTimeoutError: the limit has passed: a server takes connections, and does not say
                which brokers there are.
            AuthenticationError: the broker refuses the credentials.
            ConsumerClosedError: it was closed before, or meanwhile.
            WrongEventLoopError: it was started in another event loop, or before this process was
                forked.
        """
        self._home.check()
        async with self._starting:
            if self._closing is not None:
                raise self._closing.with_traceback(None)
            if not self._started:
                await self._start()

    async def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._enter_status(ConsumerStatus.STARTING)
        async with self._home.starting(lambda: self._closing, self._undo_start):
            self._brokers.open()
            await self._metadata.first(sorted(self._topics()), "default_api_timeout_ms")
        self._metadata.on_update = weakly(self._take_over)
        self._metadata.on_fault = weakly(self._broken)
        self._metadata.start()
        self._fetch_brokers.open()
        self._membership.start()
        self._started = True
        self._enter_status(ConsumerStatus.READING)
        self._suspended_at = self._loop.time()
        self._take_over(self._metadata.snapshot)
        self._membership.subscription_changed()
        self._background.start()

    async def _undo_start(self) -> None:
        self._enter_status(ConsumerStatus.STOPPED)
        await self._brokers.close()

    def _topics(self) -> set[str]:
        return {*self._subscription.topics, *(tp.topic for tp in self._subscription.partitions)}

    async def stop(self) -> None:
        """Close, as :meth:`close` does."""
        await self.close()

    async def close(self, timeout_ms: float | None = _CLOSE_TIMEOUT_MS) -> None:
        """Commit (where ``enable_auto_commit`` is on), tell the listener, leave the group, close
        all connections; for at most ``timeout_ms``.

        A call that waits in another task, and a ``start`` under way, ends with ConsumerClosedError.
        A second ``close`` waits for the first, and ends it earlier if its limit is earlier; a
        cancelled ``close`` still closes, at once.

        Raises:
            ConfigError: ``timeout_ms`` is not a finite number from 0 on; nothing is closed.
            WrongEventLoopError: it was started in another event loop, which is not closed, or
                before this process was forked.
        """
        check_limit_ms(timeout_ms)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (_CLOSE_TIMEOUT_MS if timeout_ms is None else timeout_ms) / 1000
        if self._home.is_gone:  # no task runs and no connection is open any more
            self._closing = self._closing or ConsumerClosedError("the consumer is closed")
            self._closed = loop.create_future()
            self._closed.set_result(None)
            self._released = True
            self._close_parts()
            self._home.leave()
            self._enter_status(ConsumerStatus.STOPPED)
            return
        self._home.check()
        if self._closed is not None:
            if self._owner is not asyncio.current_task():  # a listener's call would wait for itself
                bring_forward(self._close_limit, deadline)
                await asyncio.shield(self._closed)
            return
        closed = self._closed = loop.create_future()
        self._closing = ConsumerClosedError("the consumer is closed")
        self._home.end_start()
        try:
            if self._started:
                await self._finish(deadline)
        finally:
            # Whatever happens to the caller now: nothing is left open.
            self._released = True
            release = loop.create_task(self._release(), name="aioprod-close")
            release.add_done_callback(lambda _: closed.set_result(None))
            await asyncio.shield(release)

    async def _finish(self, deadline: float) -> None:
        """Have the owner's call end, then commit and leave."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(deadline) as self._close_limit:
                if self._owner is not None and self._owner is not asyncio.current_task():
                    self._left = loop.create_future()
                    self._interrupt()
                    self._wake()
                    await self._left
                self._settle()
                await self._commits.finish(deadline)
                ended = self._fetcher.end(self._requests)
                with self._own():  # the listener may commit, and look at its positions
                    before, self._scope = self._scope, self._close_limit
                    try:
                        await self._membership.close(deadline, leave=True)
                    finally:
                        self._scope = before
                if ended:
                    await asyncio.wait(ended, timeout=_END_SESSIONS_S)
        except TimeoutError:
            if self._close_limit is not None and not self._close_limit.expired():
                raise  # the listener's own
        finally:
            self._close_limit = None

    async def _release(self) -> None:
        self._settle()
        if self._recall is not None:
            self._recall.cancel()
        await self._commits.close()
        if self._started:
            # Its tasks end in any case; where the time was over before, nothing is sent any more.
            await self._membership.close(asyncio.get_running_loop().time(), leave=False)
        self._background.stop()
        await self._finder.close()
        self._requests.close()
        self._fetch_requests.close()
        await self._metadata.close()
        await asyncio.gather(self._brokers.close(), self._fetch_brokers.close())
        self._close_parts()
        self._enter_status(ConsumerStatus.STOPPED)
        self._home.leave()

    def _close_parts(self) -> None:
        if self._parts_closed:
            return
        self._parts_closed = True
        self._interceptors.close()
        close_plugins((self.config.key_deserializer, self.config.value_deserializer))

    def __del__(self) -> None:
        if (
            "_released" not in self.__dict__ or self._released
        ):  # the settings were refused, or it was closed
            return
        if self._home.is_gone:
            self._close_parts()  # else they are closed in its event loop
        partitions, group = len(self._subscription.partitions), self.config.group_id
        kept = (
            f": group {group!r} keeps its {partitions} partitions for it until its session is over"
            if group and partitions
            else ""
        )
        self._home.forgotten(self, kept, self._abandon)

    def _abandon(self) -> Coroutine[Any, Any, None]:
        """End it at once, as if its process had died; this keeps it alive until that is done."""
        self._closing = self._closing or ConsumerClosedError(
            "the consumer was dropped without close()"
        )
        self._close_parts()  # the event loop may end before the rest is done
        return self._release()

    async def __aenter__(self) -> Self:
        """As :meth:`start`."""
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """As :meth:`close`."""
        await self.close()

    # -- records -----------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        # The fast path: no more than this, for most records.
        for record in self._ready:
            return record
        return await self._next(None)

    async def getone(self, timeout_ms: float | None = None) -> ConsumerRecord:
        """The next record.

        Args:
            timeout_ms: the limit on waiting for it; None waits for ever, through failures that may
                end (``state`` tells of them).

        Raises:
            KafkaTimeoutError: there was none in time; its cause is what does not work, if anything.
            DeserializationError, CorruptRecordError: the next record can't be read. ``seek`` past
                it, or the next call finds it again.
            NoOffsetError, OffsetOutOfRangeError, LogTruncationError: ``auto_offset_reset`` is
            "none", and a partition's position is not valid.
            BrokerError, AuthenticationError: something is not allowed, or can't be done. Each is
                told once per time that it happens.
            WakeupError: ``wakeup`` was called.
            ConcurrentUseError: another task waits in a call of this consumer.
            ConsumerClosedError: it was closed. ConsumerStateError: it is not started, or nothing is
                subscribed or assigned.
        """
        for record in self._ready:
            return record
        return await self._next(timeout_ms)

    async def getmany(
        self, max_records: int | None = None, timeout_ms: float | None = None
    ) -> Sequence[ConsumerRecord]:
        """The next records: those that are there, as soon as there are any. What is returned can be
        gone through again and again, but not changed.

        Args:
            max_records: the most to return; ``max_poll_records`` where None.
            timeout_ms: the limit on waiting for the first; afterwards the list is empty. None waits
                for ever.

        Raises:
            ConfigError: ``max_records`` is below 1, or an argument is no number.
            KafkaError: as :meth:`getone`, but for a limit that is over.
        """
        most = self.config.max_poll_records if max_records is None else max_records
        check_max_records(most)
        async with self._call():
            deadline = self._limit(timeout_ms)
            while True:
                await self._prepare(deadline)
                records = self._collect(most)
                if records or not await self._wait_for_records(deadline):
                    return records

    async def _next(self, timeout_ms: float | None) -> ConsumerRecord:
        async with self._call():
            deadline = self._limit(timeout_ms)
            while True:
                await self._prepare(deadline)
                found = self._buffer.take(self.config.max_poll_records)
                if found is not None:
                    source, records = found
                    self._lay_ready(source, records)
                    return next(self._ready)
                if not await self._wait_for_records(deadline):
                    raise self._nothing_came(timeout_ms) from self.state.error

    def _nothing_came(self, timeout_ms: float | None) -> KafkaTimeoutError:
        where = ", ".join(sorted(self._topics())) or "no partition at all"
        read = int(self._metrics.snapshot(self._now(), {})["records-consumed-total"])
        error = self.state.error
        why = f"; what does not work: {error}" if error is not None else ""
        return KafkaTimeoutError(
            f"no record from {where} within {timeout_ms:g} ms, after {read} that were read "
            f"before{why}"
        )

    def _collect(self, most: int) -> Records:
        """What is there, of as many partitions as it takes; nothing waits in between, so nothing
        can be lost.
        """
        collected: list[Sequence[ConsumerRecord]] = []
        now = self._now()
        try:
            while most and (found := self._buffer.take(most)) is not None:
                source, records = found
                source.state.position = source.position
                self._metrics.handed_out(source.state.tp.topic, len(records), now)
                collected.append(records)
                most -= len(records)
        except BaseException as error:
            if not collected:
                raise
            # First those that can be read; the next call finds the others again.
            surface(error)
        return Records(collected)

    async def _prepare(self, deadline: float | None) -> None:
        """What comes before records are handed out: the group's wishes, and errors."""
        if self._depth > 1:
            raise ConsumerStateError(
                "a rebalance listener can't ask for records: the call that it runs in does that"
            )
        now = self._now()
        membership = self._membership
        membership.polled(now)
        if membership.needs_attention:
            await membership.ensure_active(now + _JOIN_S if deadline is None else deadline)
            self._check_open()  # a listener may have closed it
        if membership.failure is not None:
            raise membership.failure.with_traceback(None)
        membership.maybe_auto_commit(now)
        untold = self._problems.take_untold()
        if untold is not None:
            raise untold.with_traceback(None)
        if now - self._suspended_at >= _BURST_S:
            await asyncio.sleep(0)
            self._suspended_at = self._now()

    async def _wait_for_records(self, deadline: float | None) -> bool:
        """Wait for news; False where the time is over."""
        if self._subscription.mode is Mode.NONE:
            raise ConsumerStateError(
                "nothing to read: give topics, or call subscribe() or assign()"
            )
        for state in self._subscription.partitions.values():
            if state.failure is not None:
                raise state.failure.with_traceback(None)
        if self._membership.needs_attention:
            return deadline is None or self._now() < deadline
        self._background.wake()
        began = self._now()
        waited = await self._wait(deadline)
        now = self._now()
        self._metrics.waited(now - began, now)
        return waited

    def _limit(self, timeout_ms: float | None) -> float | None:
        check_timeout_ms(timeout_ms)
        return None if timeout_ms is None else self._now() + timeout_ms / 1000

    # -- commits -----------------------------------------------------------------------------------

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata | tuple[int, str]] | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit positions to the group, and wait for the coordinator to have them.

        Args:
            offsets: the offset of the next record to read, by partition; the present positions of
                all where None.
            timeout_ms: the limit; ``default_api_timeout_ms`` where None.

        Raises:
            CommitFailedError: the partitions are another member's already.
            ConsumerStateError: there is no group.
            KafkaError: the coordinator could not be reached in time, or refuses.
        """
        async with self._call():
            await self._membership.commit(
                self._offsets_to_commit(offsets), self._deadline(timeout_ms)
            )

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata | tuple[int, str]] | None = None,
    ) -> Awaitable[None]:
        """Commit in the background, in the order of the calls; those that come while one is under
        way go together.

        What it returns may be awaited for the outcome, or left alone. Each commit has
        ``default_api_timeout_ms``. Errors as of :meth:`commit`.
        """
        with self._own():
            self._check_open()
            return self._commits.add(self._offsets_to_commit(offsets))

    def _offsets_to_commit(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata | tuple[int, str]] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._subscription.consumed() if offsets is None else check_offsets(offsets)

    async def committed(
        self, *partitions: TopicPartition, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets of these partitions, or of all assigned ones; None for
        none.

        Args:
            timeout_ms: the limit; ``default_api_timeout_ms`` where None.

        Raises:
            ConsumerStateError, KafkaError: as :meth:`commit` does.
        """
        async with self._call():
            chosen = check_partitions(partitions) or list(self._subscription.partitions)
            return await self._membership.committed(chosen, self._deadline(timeout_ms))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this is, for ``Producer.send_offsets_to_transaction`` (KIP-447). ConsumerStateError:
        there is no group.
        """
        return self._membership.group_metadata()
