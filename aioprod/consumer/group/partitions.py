"""Assigns and revokes partitions: changes the subscription and calls the listener, only inside
calls of the application.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from aioprod.consumer.subscription import SubscriptionState
from aioprod.errors import ConsumerStateError
from aioprod.types import TopicPartition
from aioprod.user_code import is_cancelled


class GroupPartitions:
    """The partitions that the group has assigned to this consumer.

    Each step changes the subscription even if the listener raises or the caller is cancelled: the
    listener is called once for each change. Its exceptions are raised unchanged, except
    CancelledError if nothing was cancelled, which becomes the cause of a ConsumerStateError.

    Args:
        listener_call: returns a context manager for each call of the listener.
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
        """The partitions that are assigned now."""
        return frozenset(self._subscription.partitions)

    def stop_reading(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no more records of these: they are about to be revoked."""
        self._subscription.begin_revoking(partitions)

    async def revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Revoke partitions; the listener may still commit. Raise the listener's exception."""
        listener = self._subscription.listener
        await self._drop(
            partitions, listener.on_partitions_revoked if listener is not None else None
        )

    async def lose(self, partitions: Collection[TopicPartition]) -> None:
        """Drop partitions that other members have already. Raise the listener's exception."""
        listener = self._subscription.listener
        await self._drop(partitions, listener.on_partitions_lost if listener is not None else None)

    async def give_up(self, *, lost: bool) -> None:
        """Revoke or lose all that are left when the time is over. What the listener does after its
        first await is cancelled.
        """
        owned = self.owned
        if owned:
            with suppress(TimeoutError):
                async with asyncio.timeout(0):
                    await (self.lose(owned) if lost else self.revoke(owned))

    async def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions; new ones are fetched after the listener was called. Raise
        the listener's exception.
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
                # It would look like a cancellation, and silently end the application's task.
                name = getattr(callback, "__name__", callback)
                raise ConsumerStateError(
                    f"rebalance listener: {name} raised CancelledError, but nothing was cancelled"
                ) from error
