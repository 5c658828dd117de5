"""``commit``, ``commit_async``, ``committed`` and ``group_metadata``."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping

from aioprod.arguments import check_offsets, check_partitions
from aioprod.consumer.calls.guard import CallGuard
from aioprod.consumer.commit_queue import CommitQueue
from aioprod.consumer.membership import Membership
from aioprod.consumer.subscription import SubscriptionState
from aioprod.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

Offsets = Mapping[TopicPartition, int | OffsetAndMetadata | tuple[int, str]]


class CommitCalls:
    """Commits offsets to the group, and reads them.

    Args:
        queue: commits in the background.
    """

    def __init__(
        self,
        guard: CallGuard,
        subscription: SubscriptionState,
        membership: Membership,
        queue: CommitQueue,
    ) -> None:
        self._guard = guard
        self._subscription = subscription
        self._membership = membership
        self._queue = queue

    async def commit(self, offsets: Offsets | None, timeout_ms: float | None) -> None:
        """Commit, and wait until the coordinator has acknowledged it."""
        async with self._guard.waiting_call():
            await self._membership.commit(self._checked(offsets), self._guard.deadline(timeout_ms))

    def commit_async(self, offsets: Offsets | None) -> Awaitable[None]:
        """Commit in the background."""
        with self._guard.call():
            self._guard.check_open()
            return self._queue.add(self._checked(offsets))

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets."""
        async with self._guard.waiting_call():
            chosen = check_partitions(partitions) or list(self._subscription.partitions)
            return await self._membership.committed(chosen, self._guard.deadline(timeout_ms))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the group, and this member of it."""
        return self._membership.group_metadata()

    def _checked(self, offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._subscription.consumed() if offsets is None else check_offsets(offsets)
