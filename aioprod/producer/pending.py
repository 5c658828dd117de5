"""A call that may have to wait for its turn."""

from __future__ import annotations

import asyncio


class PendingCall:
    """A call that may have to wait for its turn.

    Other tasks change its state while it waits, so it checks its state whenever it wakes up.

    Attributes:
        deadline: loop time at which ``max.block.ms`` has passed.
        transaction: number of the transaction in which it began, to which its records belong.
        error: why it fails, if another task has failed it.
    """

    __slots__ = ("_future", "deadline", "error", "transaction")

    def __init__(self, deadline: float, transaction: int | None = None) -> None:
        self.deadline: float = deadline
        self.transaction: int | None = transaction
        self.error: BaseException | None = None
        self._future: asyncio.Future[None] | None = None

    @property
    def is_admitted(self) -> bool:
        """True if it no longer waits for its topic."""
        return False

    async def wait(self) -> None:
        """Sleep until another task calls :meth:`wake`, or until the deadline.

        Raises:
            TimeoutError: if the deadline has passed, and no task has changed the call's state.
        """
        loop = asyncio.get_running_loop()
        # A timer costs a third of asyncio.timeout, and loses no place that another task assigns in
        # the same turn of the event loop.
        timer = loop.call_at(self.deadline, self.time_out)
        try:
            await self.new_waiter(loop)
        finally:
            timer.cancel()
            self.forget_waiter()

    def new_waiter(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Return a future that :meth:`wake` and :meth:`time_out` complete, for this call alone to
        await.
        """
        future = self._future = loop.create_future()
        return future

    def forget_waiter(self) -> None:
        """Drop the future after waiting: it may have an error that refers to this call."""
        self._future = None

    def wake(self) -> None:
        """Let the call check its state; do nothing if it does not wait."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def time_out(self) -> None:
        """Let the call fail if it waits and no task has woken it."""
        if self._future is not None and not self._future.done():
            self._future.set_exception(TimeoutError())
