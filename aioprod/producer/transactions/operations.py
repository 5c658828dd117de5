"""The work of one call. It runs in its own task, and any number of callers wait for it, each with
its own timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aioprod.errors import KafkaError, KafkaTimeoutError, TransactionAbortedError
from aioprod.producer.transactions.calls import Attempts
from aioprod.producer.transactions.states import Call


@dataclass(slots=True, eq=False)
class Operation:
    """The work of a call, running or done.

    Attributes:
        arguments: the call's arguments.
        seen: whether a caller has got the outcome.
        overtaken: whether it was a commit that an abort replaced before it was sent.
    """

    call: Call
    task: asyncio.Task[None]
    attempts: Attempts
    arguments: object = None
    seen: bool = False
    overtaken: bool = False

    @property
    def in_progress(self) -> bool:
        """True if it is still running."""
        return not self.task.done()

    def overtake(self) -> None:
        """End the commit, which was not sent: an abort replaces it."""
        self.overtaken = True
        self.task.cancel()

    def take_unseen_success(self) -> bool:
        """Return whether it succeeded while no caller waited for it, and mark it as seen."""
        unseen = (
            self.task.done()
            and not self.seen
            and not self.task.cancelled()
            and self.task.exception() is None
        )
        self.seen = self.seen or unseen
        return unseen

    async def wait(self, call: Call, max_block_ms: float, deadline: float) -> None:
        """Wait until it has ended. Cancelling the waiter does not cancel it.

        Raises:
            KafkaTimeoutError: if it has not ended by loop time ``deadline``. It continues.
        """
        await asyncio.wait(
            [self.task], timeout=max(0.0, deadline - asyncio.get_running_loop().time())
        )
        if self.in_progress:
            trouble = self.attempts.trouble
            continues = "" if call is Call.START else f": {self.call.value}() continues"
            raise KafkaTimeoutError(
                (
                    f"{call.value}() not done within max_block_ms={max_block_ms}{continues}, call "
                    f"{call.value}() again to wait for it"
                )
                + (f" (last error: {trouble})" if trouble is not None else "")
            )

    async def cancel(self) -> None:
        """Cancel it if it is running, whether its request is in flight or not."""
        if self.in_progress:
            self.task.cancel()
            await asyncio.wait([self.task])

    def raise_failure(self, call: Call, killed_by: KafkaError | None) -> None:
        """Raise the error with which it ended, if it failed.

        Args:
            call: the call whose caller gets the error.
            killed_by: why its task was cancelled, if known.
        """
        self.seen = True
        if self.task.cancelled():
            if killed_by is not None:
                raise killed_by.with_traceback(None)
            if self.overtaken:
                raise TransactionAbortedError(
                    f"{call.value}(): abort_transaction() was called before the commit was sent"
                )
            raise KafkaError(
                f"the task of {self.call.value}() was cancelled from outside; call "
                f"{call.value}() again"
            )
        error = self.task.exception()
        if error is not None:
            # Many callers may get this error, each without the tracebacks of the others.
            raise error.with_traceback(None)


class Flush:
    """Waits until every batch has its outcome.

    Args:
        wait_for_sent: flushes, and returns when every batch has its outcome.
    """

    def __init__(self, wait_for_sent: Callable[[], Awaitable[None]]) -> None:
        self._wait_for_sent = wait_for_sent
        self._scope: asyncio.Timeout | None = None

    async def run(self, matters: Callable[[], bool]) -> None:
        """Wait as long as ``matters()`` is true."""
        while matters():
            self._scope = scope = asyncio.timeout(None)
            try:
                async with scope:
                    await self._wait_for_sent()
                return
            except TimeoutError:
                pass  # given up
            finally:
                if self._scope is scope:
                    self._scope = None

    def give_up(self) -> None:
        """Make the waiting task check ``matters`` again."""
        scope, self._scope = self._scope, None
        if scope is not None:
            scope.reschedule(0)
