"""Taking over and giving up partitions: what the subscription and the listener are told, only ever
inside the application's own calls.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from aioprod.consumer.subscription import SubscriptionState
from aioprod.errors import ConsumerStateError
from aioprod.types import TopicPartition
from aioprod.user_code import is_cancelled


class GroupPartitions:
    """The partitions that a group has given to this consumer.

    Each step changes the subscription also where the listener raises or the caller is cancelled in
    the middle of it: a listener is told once. What a listener raises is raised as it is, but for
    CancelledError if nothing was cancelled: that is the cause of a ConsumerStateError.
    """

    def __init__(
        self,
        subscription: SubscriptionState,
        listener_call: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._subscription = subscription
        self._listener_call = listener_call

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """What this consumer has now."""
        return frozenset(self._subscription.partitions)

    def stop_reading(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing more of these: they are about to be given up."""
        self._subscription.begin_revoking(partitions)

    async def revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Give up partitions; the listener may still commit. Raises what the listener raises."""
        listener = self._subscription.listener
        await self._drop(
            partitions, listener.on_partitions_revoked if listener is not None else None
        )

    async def lose(self, partitions: Collection[TopicPartition]) -> None:
        """Others have these partitions already. Raises what the listener raises."""
        listener = self._subscription.listener
        await self._drop(partitions, listener.on_partitions_lost if listener is not None else None)

    async def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Have these partitions and no others; nothing of new ones is fetched before the listener
        knows. Raises what the listener raises.
        """
        listener = self._subscription.listener
        added = set(partitions) - self.owned
        self._subscription.take_assignment(
            sorted(partitions), awaiting_callback=listener is not None
        )
        if listener is None:
            return
        try:
            await self._call(listener.on_partitions_assigned, added)
        finally:
            self._subscription.release(added)

    async def _drop(
        self,
        partitions: Collection[TopicPartition],
        callback: Callable[[list[TopicPartition]], Any] | None,
    ) -> None:
        self.stop_reading(partitions)
        try:
            if callback is not None:
                await self._call(callback, partitions)
        finally:
            self._subscription.take_assignment(sorted(self.owned.difference(partitions)))

    async def _call(
        self,
        callback: Callable[[list[TopicPartition]], Any],
        partitions: Collection[TopicPartition],
    ) -> None:
        with self._listener_call():
            try:
                result = callback(sorted(partitions))
                if inspect.isawaitable(result):
                    await result
            except asyncio.CancelledError as error:
                if is_cancelled():
                    raise
                # It would pass for a cancellation, and end the application's task silently.
                name = getattr(callback, "__name__", callback)
                raise ConsumerStateError(
                    f"rebalance listener: {name} raised CancelledError, but nothing was cancelled"
                ) from error
