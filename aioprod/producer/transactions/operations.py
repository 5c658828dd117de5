"""One call's work: it runs in a task of its own, and any number of callers wait for it, each with a
limit of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from aioprod.errors import KafkaError, KafkaTimeoutError, TransactionAbortedError
from aioprod.producer.transactions.calls import Attempts
from aioprod.producer.transactions.states import Call


@dataclass(slots=True, eq=False)
class Operation:
    """A call's work under way, or done.

    Attributes:
        arguments: what it was called with.
        seen: whether a caller has had the outcome.
        overtaken: whether it was a commit, and an abort came before it was sent.
    """

    call: Call
    task: asyncio.Task[None]
    attempts: Attempts
    arguments: object = None
    seen: bool = False
    overtaken: bool = False

    @property
    def under_way(self) -> bool:
        """Whether it has no outcome yet."""
        return not self.task.done()

    @property
    def succeeded_unseen(self) -> bool:
        """Whether it succeeded while nobody waited for it."""
        return (
            self.task.done()
            and not self.seen
            and not self.task.cancelled()
            and self.task.exception() is None
        )

    def overtake(self) -> None:
        """End the commit, which has not been sent: an abort comes before it."""
        self.overtaken = True
        self.task.cancel()

    def succeeds_unseen(self) -> bool:
        """Return :attr:`succeeded_unseen`; a caller sees it now."""
        unseen = self.succeeded_unseen
        self.seen = self.seen or unseen
        return unseen

    async def over(self, call: Call, max_block_ms: float, deadline: float) -> None:
        """Wait until it has an outcome, whichever. Cancelling the waiter leaves it alone.

        Raises:
            KafkaTimeoutError: the loop's time is past ``deadline``. It goes on.
        """
        await asyncio.wait(
            [self.task], timeout=max(0.0, deadline - asyncio.get_running_loop().time())
        )
        if self.under_way:
            trouble = self.attempts.trouble
            goes_on = "" if call is Call.START else f": {self.call.value}() goes on"
            raise KafkaTimeoutError(
                (
                    f"{call.value}() not done within max_block_ms={max_block_ms}{goes_on}, call "
                    f"{call.value}() again to wait for it"
                )
                + (f" (last trouble: {trouble})" if trouble is not None else "")
            )

    async def end(self) -> None:
        """Where it has no outcome yet: have it go on no more, whether its request is on its way or
        not.
        """
        if self.under_way:
            self.task.cancel()
            await asyncio.wait([self.task])

    def outcome(self, call: Call, killed_by: KafkaError | None) -> None:
        """Raise what it ended with, unless that is success.

        Args:
            call: whose caller it is for.
            killed_by: why its task was cancelled, if it was, as far as is known.
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
            # It may be raised for many callers: without the tracebacks of the others.
            raise error.with_traceback(None)


class Flush:
    """Waits until every batch has its outcome; may be given up from outside.

    Args:
        wait_for_sent: flushes, and returns when every batch has its outcome.
        spawn: starts a task that ends with the producer at the latest.
    """

    def __init__(
        self,
        wait_for_sent: Callable[[], Awaitable[None]],
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        self._wait_for_sent = wait_for_sent
        self._spawn = spawn
        self._task: asyncio.Task[None] | None = None

    async def run(self, matters: Callable[[], bool]) -> None:
        """Wait, as long as it matters."""
        while matters():
            self._task = flushing = self._spawn(self._all_sent(), "flush-transaction")
            try:
                await asyncio.wait([flushing])
            finally:
                flushing.cancel()
                if self._task is flushing:
                    self._task = None
            if not flushing.cancelled():
                flushing.result()
                return

    def give_up(self) -> None:
        """Whoever waits for it looks again whether it still matters."""
        if self._task is not None:
            self._task.cancel()

    async def _all_sent(self) -> None:
        await self._wait_for_sent()
