"""``commit``, ``commit_async``, ``committed`` and ``group_metadata``."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping

from aioprod.arguments import check_offsets, check_partitions
from aioprod.consumer.calls.guard import CallGuard
from aioprod.consumer.commit_queue import CommitQueue, failed_future
from aioprod.consumer.group.offsets import of_former_topic
from aioprod.consumer.membership import Membership
from aioprod.consumer.subscription import SubscriptionState
from aioprod.errors import CommitFailedError
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
            checked = self._checked(offsets)
            if (refusal := self._refusal(checked)) is not None:
                raise refusal
            await self._membership.commit(checked, self._guard.deadline(timeout_ms))

    def commit_async(self, offsets: Offsets | None) -> Awaitable[None]:
        """Commit in the background."""
        with self._guard.call():
            self._guard.check_open()
            checked = self._checked(offsets)
            if (refusal := self._refusal(checked)) is not None:
                return failed_future(refusal)
            return self._queue.add(checked)

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

    def _refusal(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> CommitFailedError | None:
        """Return the error if an offset can only be that of a topic that was deleted."""
        for tp, at in offsets.items():
            state = self._subscription.get(tp)
            if state is not None and state.is_of_former_topic(at.offset):
                return of_former_topic(tp, at.offset)
        return None

    def _checked(self, offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._subscription.consumed() if offsets is None else check_offsets(offsets)
