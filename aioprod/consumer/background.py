"""Runs the background work of a consumer, from start to close."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from aioprod.closing import close_in_turn
from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.calls.guard import CallGuard
from aioprod.consumer.commit_queue import CommitQueue
from aioprod.consumer.connections import Connections
from aioprod.consumer.fetcher import Fetcher
from aioprod.consumer.membership import Membership
from aioprod.consumer.metadata_updates import MetadataUpdates
from aioprod.consumer.positions import PositionFinder
from aioprod.consumer.ready_records import ReadyRecords
from aioprod.consumer.run_state import RunState
from aioprod.consumer.scheduler import Scheduler
from aioprod.consumer.subscription import SubscriptionState
from aioprod.counts import counted
from aioprod.protocol.messages.fetch import FetchResponse

# How long close() waits for brokers to confirm the end of their fetch sessions.
_END_SESSIONS_S = 0.5


class Reading:
    """Looks up positions, fetches records, and watches whether they are read.

    Args:
        watching: steps of what watches.
    """

    def __init__(
        self,
        connections: Connections,
        run_state: RunState,
        positions: PositionFinder,
        fetcher: Fetcher,
        updates: MetadataUpdates,
        scheduler: Scheduler,
        watching: Sequence[Callable[[float], float]],
    ) -> None:
        self._connections = connections
        self._run_state = run_state
        self._positions = positions
        self._fetcher = fetcher
        self._updates = updates
        self._scheduler = scheduler
        self._watching = watching

    async def connect(self) -> None:
        """Get the metadata of the topics that are read."""
        topics = sorted(self._updates.topics())
        await self._connections.metadata.first(topics, "default_api_timeout_ms")

    def apply_metadata(self) -> None:
        """Apply the metadata, now and after each refresh."""
        self._connections.metadata.start(self._updates.apply, self._scheduler.fail)
        self._updates.apply(self._connections.metadata.snapshot)

    def start(self) -> None:
        """Start to send requests."""
        steps = self._positions.step, self._fetcher.step, *self._watching
        self._scheduler.start(steps, self._run_state.fail)

    def end_sessions(self) -> list[asyncio.Future[FetchResponse]]:
        """Fetch no more, and end the fetch sessions."""
        return self._fetcher.end()

    async def close(self) -> None:
        """End all requests and tasks."""
        self._scheduler.stop()
        self._connections.close()
        await self._positions.close()


class Background:
    """Reading, the membership in the group, and commits."""

    def __init__(
        self,
        config: ConsumerConfig,
        guard: CallGuard,
        ready: ReadyRecords,
        subscription: SubscriptionState,
        membership: Membership,
        commits: CommitQueue,
        reading: Reading,
    ) -> None:
        self._guard = guard
        self._ready = ready
        self._group_id = config.group_id
        self._subscription = subscription
        self._membership = membership
        self._commits = commits
        self._reading = reading
        self._started = False

    async def connect(self) -> None:
        """Get the metadata of the topics that are read."""
        await self._reading.connect()

    def start(self) -> None:
        """Start the background tasks, once the consumer is connected."""
        self._started = True
        self._membership.start()
        self._reading.apply_metadata()
        self._membership.subscription_changed()
        self._reading.start()

    async def finish(self, deadline: float, timeout: asyncio.Timeout) -> None:
        """Commit, and leave the group and the fetch sessions.

        Args:
            deadline: loop time by which it should be done.
            timeout: cancels the whole call.
        """
        self._ready.take_back()
        try:
            await self._commits.finish(deadline)
        except asyncio.CancelledError:
            deadline = asyncio.get_running_loop().time()
            raise
        finally:
            # Otherwise other members would get the partitions only after the session timeout.
            sessions = self._reading.end_sessions()
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
            await self._reading.close()

    def loss(self) -> str:
        """Return what is lost if the consumer is dropped now, for the warning."""
        partitions = len(self._subscription.partitions)
        if not self._group_id or not partitions:
            return ""
        return (
            f": group {self._group_id!r} keeps its {counted(partitions, 'partition')} for it until "
            "the session timeout"
        )

    async def _end_membership(self) -> None:
        if self._started:
            # The deadline has passed already, so its tasks end without sending a request.
            await self._membership.close(asyncio.get_running_loop().time(), leave=False)
