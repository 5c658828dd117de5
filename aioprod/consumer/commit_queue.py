"""Commits in the background. Offsets added during a commit go into the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aioprod.consumer.membership import Membership
from aioprod.errors import KafkaError
from aioprod.running_loop import start_task
from aioprod.types import OffsetAndMetadata, TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class CommitQueue:
    """At most one commit in flight, and one that collects further offsets.

    Args:
        membership: commits offsets.
        timeout_ms: the timeout of each commit.
    """

    def __init__(self, membership: Membership, timeout_ms: float) -> None:
        self._membership = membership
        self._limit_s = timeout_ms / 1000
        self._offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, offsets: Offsets) -> asyncio.Future[None]:
        """Commit these soon; return a future of the outcome, which need not be awaited."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._offsets.update(offsets)
        self._waiting.append(future)
        if self._task is None or self._task.done():
            self._task = start_task(self._run(), name="aioprod-commits")
            self._task.add_done_callback(self._ended)
        return future

    async def _run(self) -> None:
        waiting: list[asyncio.Future[None]] = []
        try:
            while self._waiting:
                offsets, self._offsets = self._offsets, {}
                waiting, self._waiting = self._waiting, []
                try:
                    await self._membership.commit(
                        offsets, asyncio.get_running_loop().time() + self._limit_s
                    )
                except Exception as error:
                    _complete(waiting, error)
                else:
                    _complete(waiting, None)
        finally:
            for future in waiting:
                future.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() and self._task is task:  # perhaps before it began
            waiting, self._waiting = self._waiting, []
            _complete(waiting, KafkaError("offsets were not committed: the task was cancelled"))

    async def finish(self, deadline: float) -> None:
        """Wait until all is committed, or until loop time ``deadline``."""
        if self._task is not None:
            await asyncio.wait(
                [self._task], timeout=max(deadline - asyncio.get_running_loop().time(), 0)
            )

    async def close(self) -> None:
        """Cancel all commits and their futures."""
        if self._task is not None:
            task = self._task
            task.cancel()
            await asyncio.wait([task], timeout=1)


def failed_future(error: Exception) -> asyncio.Future[None]:
    """Return the future of a commit that is refused at once."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    _complete([future], error)
    return future


def _complete(waiting: list[asyncio.Future[None]], error: Exception | None) -> None:
    for future in waiting:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
            future.exception()  # no warning if the caller ignores the result
