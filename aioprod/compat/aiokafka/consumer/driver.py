"""The task that owns the aioprod consumer. It reads ahead, takes part in the group's rebalances,
and runs the calls of all other tasks, since an aioprod consumer may be used by one task only.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

import aioprod
from aioprod import TopicPartition
from aioprod.compat.aiokafka.abc import ConsumerRebalanceListener
from aioprod.compat.aiokafka.consumer.read_ahead import ReadAhead
from aioprod.compat.aiokafka.errors import ConsumerStoppedError
from aioprod.logs import Logger, get_logger
from aioprod.running_loop import start_task

log: Logger = get_logger(__name__)

T = TypeVar("T")

# The most records to take from the aioprod consumer in one call.
_CHUNK = 1_000


class _Call(NamedTuple):
    function: Callable[[], Awaitable[Any]]
    outcome: asyncio.Future[Any]


class Driver(aioprod.RebalanceListener):
    """The task that owns the aioprod consumer; see the module.

    Args:
        auto_commit_s: the interval of automatic commits; None turns them off.
        max_idle_s: after this time without a call for records, the consumer stops polling and
            leaves its group.
        in_group: whether ``listener`` is called.

    Attributes:
        listener: the application's rebalance listener.
        subscribe: subscribes to the topics; None for assigned partitions.
        left: whether the consumer has left its group because the application did not call it.
        assigned: set when partitions of this subscription were assigned.
    """

    def __init__(
        self,
        consumer: aioprod.Consumer,
        ahead: ReadAhead,
        *,
        auto_commit_s: float | None,
        max_idle_s: float,
        in_group: bool,
    ) -> None:
        self._consumer = consumer
        self._ahead = ahead
        ahead.on_room = self.wake
        self._auto_commit_s = auto_commit_s
        self._max_idle_s = max_idle_s
        self._in_group = in_group
        self._calls: deque[_Call] = deque()
        self._wake = asyncio.Event()
        self._polling: asyncio.Timeout | None = None
        self._in_listener = False
        self._closing = False
        self._abandoned = False
        self._task: asyncio.Task[None] | None = None
        self._next_commit = 0.0
        self.listener: ConsumerRebalanceListener | None = None
        self.subscribe: Callable[[], None] | None = None
        self.left: bool = False
        self._released: set[TopicPartition] = set()
        self.assigned: asyncio.Event = asyncio.Event()
        self.has_subscription = False

    # -- for other tasks ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start the task."""
        loop = asyncio.get_running_loop()
        self._next_commit = loop.time() + (self._auto_commit_s or 0)
        self._ahead.now = loop.time
        self._ahead.last_call = loop.time()
        self._task = start_task(self._run(), name="aiokafka consumer")

    def post(self, function: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
        """Run a call in the task, after earlier ones."""
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._closing or (self._task is not None and self._task.done()):
            outcome.set_exception(ConsumerStoppedError())
        else:
            self._calls.append(_Call(function, outcome))
            self.wake()
        return outcome

    def wake(self) -> None:
        """Wake the task, which runs calls, and pauses or resumes partitions."""
        self._wake.set()
        if not self._in_listener:
            self._interrupt()

    async def close(self) -> None:
        """Commit, if commits are automatic, and end the task."""
        self._closing = True
        self.listener = None
        if self._task is not None:
            self.wake()
            try:
                await asyncio.wait([self._task])
            finally:
                self._task.cancel()
        self._refuse_calls()

    def _refuse_calls(self) -> None:
        while self._calls:
            outcome = self._calls.popleft().outcome
            if not outcome.done():
                outcome.set_exception(ConsumerStoppedError())
                outcome.exception()  # its caller may not await it

    def abandon(self) -> None:
        """Close a consumer that was not stopped."""
        if self._task is not None and not self._task.get_loop().is_closed():
            self._abandoned = True
            self._task.cancel()

    async def positions(self) -> dict[TopicPartition, int]:
        """Return the application's known positions; only for calls in the task."""
        found = {}
        for tp in self._consumer.assignment():
            partition = self._ahead[tp]
            if partition.moving:  # a seek is in progress
                if partition.next_offset is not None:
                    found[tp] = partition.next_offset
                continue
            if partition.records:
                found[tp] = await self.position(tp)
                continue
            try:
                found[tp] = await self._consumer.position(tp, timeout_ms=0)
            except (aioprod.KafkaTimeoutError, aioprod.InvalidOffsetError):
                continue
        return found

    async def position(self, tp: TopicPartition) -> int:
        """Return the application's position; only for calls in the task."""
        partition = self._ahead[tp]
        if partition.records:
            taken = partition.next_offset
            return partition.records[0].offset if taken is None else taken
        return await self._consumer.position(tp)

    async def unsubscribe(self) -> None:
        """Unsubscribe; only for calls in the task. As in aiokafka, the listener of the next
        subscription is called for the revoked partitions.
        """
        if self.subscribe is not None:
            self._released = set(self._consumer.assignment()) or self._released
        self.listener = None
        await self._consumer.unsubscribe()

    async def seek(self, tp: TopicPartition, offset: int) -> None:
        """Change the position of a partition; only for calls in the task."""
        try:
            self._consumer.seek(tp, offset)
        finally:
            self._ahead.end_move(tp)

    async def seek_by(
        self, partitions: list[TopicPartition], seek: Callable[..., Awaitable[None]]
    ) -> bool:
        """Change the positions of partitions, and return whether they are known; only for calls in
        the task.
        """
        try:
            await seek(*partitions)
        except aioprod.KafkaTimeoutError:
            return False
        finally:
            for tp in partitions:
                self._ahead.end_move(tp)
        return True

    async def begin_commit(
        self, offsets: dict[TopicPartition, Any] | None
    ) -> Callable[[], Awaitable[None]]:
        """Begin a commit, and return a function that waits for it; only for calls in the task."""
        committed = self._consumer.commit_async(
            await self.positions() if offsets is None else offsets
        )
        return lambda: committed

    # -- the task ----------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while not self._closing:
                self._wake.clear()
                await self._serve()
                self._pause_and_resume()
                if self._wake.is_set():
                    continue
                await self._poll()
                await self._maybe_commit()
            await self._serve()
            if self._auto_commit_s is not None and self._in_group:
                await self._commit()
        except asyncio.CancelledError:
            if self._abandoned:
                await self._consumer.close(timeout_ms=0)
            raise
        except Exception as error:
            self._ahead.fail(error)
            log.exception("the background task of the consumer failed")
            raise
        finally:
            self._refuse_calls()

    async def _serve(self) -> None:
        while self._calls:
            function, outcome = self._calls.popleft()
            if outcome.done():  # the caller was cancelled
                continue
            try:
                result = await function()
            except Exception as error:
                if not outcome.done():
                    outcome.set_exception(error)
            except BaseException:  # the task ends; it refuses this call too
                self._calls.appendleft(_Call(function, outcome))
                raise
            else:
                if not outcome.done():
                    outcome.set_result(result)

    async def _poll(self) -> None:
        loop = asyncio.get_running_loop()
        ahead = self._ahead
        limits = [self._next_commit] if self._auto_commit_s is not None else []
        idle_at = ahead.last_call + self._max_idle_s
        may_poll = self.has_subscription and ahead.error is None
        if self._in_group and not ahead.calls:
            if loop.time() < idle_at:
                limits.append(idle_at)
            else:
                await self._leave()
                may_poll = False
        elif self.left and self.subscribe is not None:
            self.left = False
            self.subscribe()
        try:
            async with asyncio.timeout_at(min(limits, default=None)) as self._polling:
                if may_poll:
                    ahead.add(await self._consumer.getmany(_CHUNK))
                else:
                    await self._wake.wait()
        except aioprod.KafkaError as error:
            ahead.fail(error)
        except TimeoutError:  # interrupted by a call, or a limit has passed
            pass
        finally:
            self._polling = None

    async def _leave(self) -> None:
        """Leave the group until the next call for records."""
        self._ahead.end_turn()  # so that the next call wakes this task
        if self.left or self.subscribe is None or not self.has_subscription:
            return
        log.warning(
            "no call for records within max_poll_interval_ms=%.0f; leaving the group, which the "
            "next call rejoins",
            self._max_idle_s * 1000,
        )
        self.left = True
        try:
            await self._consumer.unsubscribe()
        except aioprod.KafkaError as error:
            self._ahead.fail(error)

    def _interrupt(self) -> None:
        if self._polling is not None and not self._polling.expired():
            self._polling.reschedule(asyncio.get_running_loop().time())

    def _pause_and_resume(self) -> None:
        paused = self._consumer.paused()
        for tp in self._consumer.assignment():
            partition = self._ahead[tp]
            if partition.paused or partition.full:
                if tp not in paused:
                    self._consumer.pause(tp)
            elif tp in paused:
                self._consumer.resume(tp)

    # -- commits -----------------------------------------------------------------------------------

    async def _maybe_commit(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._auto_commit_s is not None and now >= self._next_commit:
            self._next_commit = now + self._auto_commit_s
            if self._in_group and self.has_subscription:
                await self._commit()

    async def _commit(self) -> None:
        try:
            positions = await self.positions()
            if positions:
                await self._consumer.commit(positions)
        except aioprod.KafkaError as error:
            log.warning("automatic commit failed: %s", error)

    # -- the listener ------------------------------------------------------------------------------

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        """Commit, if commits are automatic, and call the application's listener."""
        self._ahead.stop_returning(partitions)
        if self._auto_commit_s is not None and self._in_group and not self._closing:
            await self._commit()
        await self._lose(partitions)

    async def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        """Call the application's listener."""
        self._ahead.stop_returning(partitions)
        await self._lose(partitions)

    async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        """Call the application's listener, before the first record is read."""
        if self.listener is not None and not self.assigned.is_set():
            released, self._released = self._released, set()
            await self._call_listener(self.listener.on_partitions_revoked, released)
        self._ahead.drop(partitions)
        if self.listener is not None:
            await self._call_listener(self.listener.on_partitions_assigned, set(partitions))
        self.assigned.set()
        self._ahead.notify()

    async def _lose(self, partitions: list[TopicPartition]) -> None:
        if self.listener is not None:
            await self._call_listener(self.listener.on_partitions_revoked, set(partitions))
        self._ahead.drop(partitions)

    async def _call_listener(
        self, method: Callable[[Any], Any], partitions: set[TopicPartition]
    ) -> None:
        """Run the listener in a separate task, and run the calls that it makes on the consumer."""
        if not self._in_group:
            return
        self._in_listener = True
        if self._polling is not None and not self._polling.expired():
            self._polling.reschedule(None)  # withdraw an interruption that has not taken effect
        task = start_task(_run_listener(method, partitions), name="aiokafka rebalance listener")
        task.add_done_callback(lambda _: self._wake.set())
        try:
            while not task.done():
                self._wake.clear()
                await self._serve()
                if not task.done():
                    await self._wake.wait()
        finally:
            task.cancel()
            self._in_listener = False
            self._interrupt()


async def _run_listener(method: Callable[[Any], Any], partitions: set[TopicPartition]) -> None:
    try:
        result = method(partitions)
        if inspect.isawaitable(result):
            await result
    except Exception:
        log.exception("the rebalance listener failed")
