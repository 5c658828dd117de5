"""Admits the application's calls: one task at a time, until the consumer is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from aioprod.arguments import check_timeout_ms
from aioprod.cluster.loop_binding import LoopBinding
from aioprod.consumer.run_state import RunState
from aioprod.errors import ConcurrentUseError, WakeupError


class CallGuard:
    """Tracks the task that uses the consumer, and lets ``wakeup`` and ``close`` end its call.

    A rebalance listener runs inside a call, and may call the consumer too: calls nest.

    Args:
        loop_binding: the event loop and process of the consumer.
        run_state: whether the consumer is open.
        take_back: called at the begin of each call, so that positions are those of the application.
        default_timeout_ms: the timeout of calls without one.
    """

    def __init__(
        self,
        loop_binding: LoopBinding,
        run_state: RunState,
        take_back: Callable[[], object],
        default_timeout_ms: float,
    ) -> None:
        self._loop_binding = loop_binding
        self._run_state = run_state
        self._take_back = take_back
        self._default_timeout_ms = default_timeout_ms
        self._owner: asyncio.Task[Any] | None = None
        self._depth = 0
        self._timeout: asyncio.Timeout | None = None  # of the outermost call that may wait
        self._left: asyncio.Future[None] | None = None  # close() waits for the owner to leave
        self._woken = False
        self._listeners = 0  # rebalance listeners that run now

    @contextmanager
    def call(self) -> Iterator[None]:
        """Guard a call that does not wait.

        Raises:
            ConcurrentUseError: if another task is in a call.
            ConsumerClosedError: if the consumer is closed.
            WrongEventLoopError: if the consumer belongs to another event loop or process.
        """
        self._enter()
        try:
            yield
        finally:
            self._leave()

    def waiting_call(self) -> _WaitingCall:
        """Guard a call that may wait: ``wakeup`` and ``close`` end it.

        Raises:
            ConcurrentUseError, ConsumerClosedError, WrongEventLoopError: see :meth:`call`.
            ConsumerStateError: if the consumer is not started.
            WakeupError: if ``wakeup`` was called.
        """
        return _WaitingCall(self)

    @contextmanager
    def closing_call(self, timeout: asyncio.Timeout | None) -> Iterator[None]:
        """Guard the end of ``close``, in which a listener may still call the consumer."""
        with self.call():
            before, self._timeout = self._timeout, timeout
            try:
                yield
            finally:
                self._timeout = before

    @contextmanager
    def listener_call(self) -> Iterator[None]:
        """Guard a call of a rebalance listener. ``wakeup`` does not interrupt it, because the
        listener would not be called again.
        """
        self._listeners += 1
        timeout = self._timeout if self._run_state.closing is None else None
        if self._woken and timeout is not None and not timeout.expired():
            timeout.reschedule(None)  # the interruption was requested and has not begun
        try:
            yield
        finally:
            self._listeners -= 1
        if not self._listeners and self._run_state.closing is None:
            self._check_woken()

    @property
    def is_nested(self) -> bool:
        """True if a rebalance listener makes the current call, inside another one."""
        return self._depth > 1

    @property
    def is_callers(self) -> bool:
        """True if the running task is inside a call."""
        return self._owner is asyncio.current_task()

    def wakeup(self) -> None:
        """End the call that waits, or the next one that would, with WakeupError."""
        self._loop_binding.check()
        if not self._woken:
            self._woken = True
            self._take_back()
            if not self._listeners and self._run_state.closing is None:
                self._interrupt()

    async def end_call(self) -> None:
        """End another task's call, if any, and wait until that task has left it."""
        if self._owner is not None and self._owner is not asyncio.current_task():
            self._left = asyncio.get_running_loop().create_future()
            self._interrupt()
            await self._left

    def deadline(self, timeout_ms: float | None) -> float:
        """Return the loop time at which a call that begins now ends.

        Raises:
            ConfigError: if ``timeout_ms`` is not a finite number of at least 0.
        """
        check_timeout_ms(timeout_ms)
        limit_ms = self._default_timeout_ms if timeout_ms is None else timeout_ms
        return asyncio.get_running_loop().time() + limit_ms / 1000

    def check_open(self) -> None:
        """Raise unless the consumer is started and open."""
        self._run_state.check_open()

    def _enter(self) -> None:
        self._loop_binding.check()
        # Before the start there may be no event loop.
        task = asyncio.current_task() if self._run_state.has_loop else None
        if self._owner is not None and self._owner is not task:
            name = self._owner.get_name()
            raise ConcurrentUseError(
                f"task {name!r} waits in a call of this consumer: only wakeup() and close() "
                "may be called until it returns"
            )
        self._run_state.check_not_stopped()
        self._take_back()
        self._owner = task
        self._depth += 1

    def _leave(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            if self._left is not None and not self._left.done():
                self._left.set_result(None)

    def _interrupt(self) -> None:
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time())

    def _check(self) -> None:
        self._run_state.check_open()
        self._check_woken()

    def _check_woken(self) -> None:
        if self._woken:
            self._woken = False
            raise WakeupError("wakeup() was called")


class _WaitingCall:
    """See :meth:`CallGuard.waiting_call`. A class, since a generator costs more for each call."""

    __slots__ = ("_guard", "_timeout")

    def __init__(self, guard: CallGuard) -> None:
        self._guard = guard
        self._timeout: asyncio.Timeout | None = None  # None inside another call: a listener's

    async def __aenter__(self) -> None:
        guard = self._guard
        guard._enter()
        if guard._timeout is not None:
            return
        try:
            guard._check()
            guard._timeout = self._timeout = asyncio.timeout(None)
            await self._timeout.__aenter__()
        except BaseException:
            guard._timeout = None
            guard._leave()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        guard, timeout = self._guard, self._timeout
        try:
            if timeout is None:
                return
            try:
                await timeout.__aexit__(kind, error, traceback)
            except TimeoutError:
                guard._check()
                raise
            if isinstance(error, TimeoutError) and timeout.expired():
                guard._check()
        finally:
            if timeout is not None:
                guard._timeout = None
            guard._leave()
