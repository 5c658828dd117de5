"""Runs the background work of a consumer, from start to close."""

from __future__ import annotations

import asyncio

from aioprod.closing import close_in_turn
from aioprod.consumer.calls.guard import CallGuard
from aioprod.consumer.commit_queue import CommitQueue
from aioprod.consumer.connections import Connections
from aioprod.consumer.fetcher import Fetcher
from aioprod.consumer.membership import Membership
from aioprod.consumer.metadata_updates import MetadataUpdates
from aioprod.consumer.positions import PositionFinder
from aioprod.consumer.ready_records import ReadyRecords
from aioprod.consumer.scheduler import Scheduler
from aioprod.consumer.stall_watch import StallWatch

# How long close() waits for brokers to confirm the end of their fetch sessions.
_END_SESSIONS_S = 0.5


class Background:
    """Connections, group membership, and the lookup of positions and records."""

    def __init__(
        self,
        guard: CallGuard,
        ready: ReadyRecords,
        connections: Connections,
        membership: Membership,
        commits: CommitQueue,
        positions: PositionFinder,
        fetcher: Fetcher,
        updates: MetadataUpdates,
        scheduler: Scheduler,
        watch: StallWatch,
    ) -> None:
        self._guard = guard
        self._ready = ready
        self._connections = connections
        self._membership = membership
        self._commits = commits
        self._positions = positions
        self._fetcher = fetcher
        self._updates = updates
        self._scheduler = scheduler
        self._watch = watch
        self._started = False

    async def connect(self) -> None:
        """Get the metadata of the topics that are read."""
        topics = sorted(self._updates.topics())
        await self._connections.metadata.first(topics, "default_api_timeout_ms")

    def start(self) -> None:
        """Start the background tasks, once the consumer is connected."""
        self._started = True
        self._connections.metadata.start(self._updates.apply, self._scheduler.fail)
        self._membership.start()
        self._updates.apply(self._connections.metadata.snapshot)
        self._membership.subscription_changed()
        self._scheduler.start((self._positions.step, self._fetcher.step, self._watch.step))

    async def finish(self, deadline: float, timeout: asyncio.Timeout) -> None:
        """Commit, and leave the group and the fetch sessions.

        Args:
            deadline: loop time by which it should be done.
            timeout: cancels the whole call.
        """
        self._ready.settle()
        try:
            await self._commits.finish(deadline)
        except asyncio.CancelledError:
            deadline = asyncio.get_running_loop().time()
            raise
        finally:
            # Otherwise other members would get the partitions only after the session timeout.
            sessions = self._fetcher.end(self._connections.requests)
            with self._guard.closing_call(timeout):
                await self._membership.close(deadline, leave=True)
        if sessions:
            await asyncio.wait(sessions, timeout=_END_SESSIONS_S)

    async def close(self) -> None:
        """End all tasks and requests."""
        self._ready.close()
        try:
            await close_in_turn(self._commits.close, self._end_membership)
        finally:
            self._scheduler.stop()
            self._connections.close()
            await self._positions.close()

    async def _end_membership(self) -> None:
        if self._started:
            # The deadline has passed already, so its tasks end without sending a request.
            await self._membership.close(asyncio.get_running_loop().time(), leave=False)
