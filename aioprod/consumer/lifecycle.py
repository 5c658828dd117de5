"""Start and close of a consumer, and the end of one that was dropped without ``close``."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from aioprod.arguments import check_limit_ms
from aioprod.cluster.home import Home, bring_forward
from aioprod.consumer.background import Background
from aioprod.consumer.calls.guard import CallGuard
from aioprod.consumer.record_conversion import RecordConverter
from aioprod.consumer.run_state import RunState
from aioprod.consumer.subscription import SubscriptionState
from aioprod.errors import ConsumerClosedError

CLOSE_TIMEOUT_MS = 30_000


class Lifecycle:
    """Starts and closes a consumer once.

    Args:
        home: the event loop and process of the consumer.
        run_state: keeps the stage that the consumer is in.
        guard: the application's calls, which ``close`` ends.
        background: what starts and ends.
        converter: has the user's deserializers and interceptors, which are closed with it.
        subscription, group_id: what is lost if the consumer is dropped.

    Attributes:
        home: the same.
        released: whether the consumer is closed, or will be without any further call.
    """

    def __init__(
        self,
        home: Home,
        run_state: RunState,
        guard: CallGuard,
        background: Background,
        converter: RecordConverter,
        subscription: SubscriptionState,
        group_id: str | None,
    ) -> None:
        self.home = home
        self.released = False
        self._run_state = run_state
        self._guard = guard
        self._background = background
        self._converter = converter
        self._subscription = subscription
        self._group_id = group_id
        self._starting = asyncio.Lock()
        self._closed: asyncio.Future[None] | None = None
        self._close_timeout: asyncio.Timeout | None = None  # a second close() may shorten it

    async def start(self) -> None:
        """See :meth:`aioprod.Consumer.start`."""
        self.home.check()
        async with self._starting:
            run_state = self._run_state
            if run_state.closing is not None:
                raise run_state.closing.with_traceback(None)
            if run_state.started:
                return
            run_state.begin_start()
            async with self.home.starting(lambda: run_state.closing, self._undo_start):
                await self._background.open()
            run_state.end_start()
            self._background.start()

    async def _undo_start(self) -> None:
        self._run_state.stop()
        await self._background.undo_open()

    async def close(self, timeout_ms: float | None) -> None:
        """See :meth:`aioprod.Consumer.close`."""
        check_limit_ms(timeout_ms)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (CLOSE_TIMEOUT_MS if timeout_ms is None else timeout_ms) / 1000
        if self.home.is_gone:
            self._close_without_loop(loop)
            return
        self.home.check()
        if self._closed is not None:
            if not self._guard.is_callers:  # a listener would wait for its own call
                bring_forward(self._close_timeout, deadline)
                await asyncio.shield(self._closed)
            return
        closed = self._closed = loop.create_future()
        self._run_state.begin_close(ConsumerClosedError("the consumer is closed"))
        self.home.end_start()
        try:
            if self._run_state.started:
                await self._finish(deadline)
        finally:
            # Even if the caller is cancelled now, everything is closed.
            self.released = True
            release = loop.create_task(self._release(), name="aioprod-close")
            release.add_done_callback(lambda _: closed.set_result(None))
            await asyncio.shield(release)

    async def _finish(self, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline) as self._close_timeout:
                await self._guard.end_call()
                await self._background.finish(deadline, self._close_timeout)
        except TimeoutError:
            if self._close_timeout is not None and not self._close_timeout.expired():
                raise  # a listener has raised it
        finally:
            self._close_timeout = None

    async def _release(self) -> None:
        await self._background.close()
        self._converter.close()
        self._run_state.stop()
        self.home.leave()

    def _close_without_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close after the consumer's event loop: no task runs and no connection is open."""
        self._run_state.begin_close(ConsumerClosedError("the consumer is closed"))
        self._closed = loop.create_future()
        self._closed.set_result(None)
        self.released = True
        self._converter.close()
        self.home.leave()
        self._run_state.stop()

    # -- dropped without close ---------------------------------------------------------------------

    def loss(self) -> str:
        """Return what is lost because the consumer was dropped, for its warning; or nothing."""
        if self.home.is_gone:
            self._converter.close()  # otherwise abandon() does that in the event loop
        partitions = len(self._subscription.partitions)
        if not self._group_id or not partitions:
            return ""
        return (
            f": group {self._group_id!r} keeps its {partitions} partitions for it until its "
            "session is over"
        )

    def abandon(self) -> Coroutine[Any, Any, None]:
        """End the consumer at once, as if its process had died. The result closes the rest."""
        self._run_state.begin_close(ConsumerClosedError("the consumer was dropped without close()"))
        self._converter.close()  # the event loop may end before the rest is done
        return self._release()
