"""``seek`` and its variants, and ``position``."""

from __future__ import annotations

from collections.abc import Iterable

from aioprod.arguments import check_partition, check_partitions, check_position
from aioprod.config.offset_reset import OffsetReset
from aioprod.consumer.calls.guard import CallGuard
from aioprod.consumer.membership import Membership
from aioprod.consumer.notifier import Notifier
from aioprod.consumer.problems import Problems
from aioprod.consumer.subscription import Phase, Position, SubscriptionState
from aioprod.errors import KafkaTimeoutError
from aioprod.types import OffsetAndMetadata, TopicPartition


class PositionCalls:
    """Reads and changes positions of assigned partitions."""

    def __init__(
        self,
        guard: CallGuard,
        subscription: SubscriptionState,
        membership: Membership,
        problems: Problems,
        notifier: Notifier,
    ) -> None:
        self._guard = guard
        self._subscription = subscription
        self._membership = membership
        self._problems = problems
        self._notifier = notifier

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Continue at this offset."""
        tp, place = check_partition(partition), check_position(offset)
        with self._guard.call():
            self._subscription.seek(tp, Position(place.offset, place.leader_epoch))

    async def seek_by(self, partitions: Iterable[TopicPartition], strategy: str) -> None:
        """Continue at the first or the last offset, and wait until it is known."""
        async with self._guard.waiting_call():
            chosen = self._chosen(partitions)
            self._subscription.seek_by(chosen, OffsetReset(strategy))
            deadline = self._guard.deadline(None)
            for tp in chosen:
                await self._valid_position(tp, deadline)

    async def seek_to_committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Continue at the committed offsets, and return them."""
        async with self._guard.waiting_call():
            chosen = self._chosen(partitions)
            committed = await self._membership.committed(chosen, self._guard.deadline(None))
            for tp, offset in committed.items():
                if offset is not None:
                    self._subscription.seek(tp, Position(offset.offset, offset.leader_epoch))
            return committed

    async def position(self, partition: TopicPartition, timeout_ms: float | None) -> int:
        """Return the offset of the next record."""
        async with self._guard.waiting_call():
            tp = check_partition(partition)
            return (await self._valid_position(tp, self._guard.deadline(timeout_ms))).offset

    def _chosen(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        chosen = check_partitions(partitions) or list(self._subscription.partitions)
        for tp in chosen:
            self._subscription[tp]  # raises if it is not assigned
        return chosen

    async def _valid_position(self, tp: TopicPartition, deadline: float) -> Position:
        while True:
            state = self._subscription[tp]
            if state.failure is not None:
                self._problems.forget_report(tp)
                raise state.failure.with_traceback(None)
            if state.phase is Phase.FETCHING and state.position is not None:
                return state.position
            self._guard.check_open()  # a background task may have failed
            if not await self._notifier.wait(deadline):
                latest = self._problems.latest
                raise KafkaTimeoutError(f"no position of {tp.topic}-{tp.partition} in time") from (
                    latest[0] if latest else None
                )
