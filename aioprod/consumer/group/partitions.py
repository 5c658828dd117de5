"""Assigns and revokes partitions: changes the subscription and calls the listener, only inside
calls of the application.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from aioprod.consumer.reporting import ConsumerReporter
from aioprod.consumer.subscription import SubscriptionState
from aioprod.errors import ConsumerStateError
from aioprod.metrics.consumer_observers import PartitionsEvent
from aioprod.types import TopicPartition
from aioprod.user_code import is_cancelled


class GroupPartitions:
    """The partitions that the group has assigned to this consumer.

    Each step changes the subscription even if the listener raises or the caller is cancelled: the
    listener is called once for each change. Its exceptions are raised unchanged, except
    CancelledError if nothing was cancelled, which becomes the cause of a ConsumerStateError.

    Args:
        reporter: is called for each change.
        listener_call: returns a context manager for each call of the listener.
    """

    def __init__(
        self,
        subscription: SubscriptionState,
        reporter: ConsumerReporter,
        listener_call: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._subscription = subscription
        self._reporter = reporter
        self._listener_call = listener_call
        self._recreated: set[TopicPartition] = set()

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that are assigned now."""
        return frozenset(self._subscription.partitions)

    def stop_reading(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no more records of these: they are about to be revoked."""
        self._subscription.begin_revoking(partitions)

    async def revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Revoke partitions; the listener may still commit. Raise the listener's exception."""
        listener = self._subscription.listener()
        await self._drop(
            "revoked", partitions, listener.on_partitions_revoked if listener is not None else None
        )

    async def lose(self, partitions: Collection[TopicPartition]) -> None:
        """Drop partitions that other members have already. Raise the listener's exception."""
        listener = self._subscription.listener()
        await self._drop(
            "lost", partitions, listener.on_partitions_lost if listener is not None else None
        )

    async def release_all(self, *, lost: bool) -> None:
        """Revoke or lose the remaining partitions at the end of the time. The listener is cancelled
        after its first await.
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
        listener = self._subscription.listener()
        added = set(partitions) - self.owned
        self._subscription.take_assignment(
            sorted(partitions), awaiting_callback=listener is not None
        )
        try:
            if listener is not None:
                await self._call("assigned", listener.on_partitions_assigned, added)
            else:
                self._reporter.partitions_changed("assigned", added, 0.0)
        finally:
            self._subscription.release(added)
            self._reporter.rebalance_ended()

    @property
    def awaits_call(self) -> bool:
        """True if :meth:`call_for_recreated` has a call to make."""
        return bool(self._recreated)

    def recreated(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch no records of partitions whose topic was deleted and created again before the
        listener was called for them.
        """
        if self._subscription.listener() is not None:
            self._recreated.update(partitions)
            for tp in partitions:
                self._subscription[tp].awaiting_callback = True

    async def call_for_recreated(self) -> None:
        """Report to the listener that the partitions of deleted topics are lost, and those of the
        topics with their names assigned. They stay in the subscription. Raise the listener's
        exception.
        """
        recreated, self._recreated = self._recreated & self.owned, set()
        listener = self._subscription.listener()
        if not recreated or listener is None:
            self._subscription.release(recreated)
            return
        try:
            await self._call("lost", listener.on_partitions_lost, recreated)
        finally:
            try:
                await self._call("assigned", listener.on_partitions_assigned, recreated)
            finally:
                self._subscription.release(recreated)

    def rebalance_began(self) -> None:
        """Note that a rebalance begins; :meth:`assign` ends it."""
        self._reporter.rebalance_began()

    def rebalance_ended(self, error: BaseException | None = None) -> None:
        """Note that the rebalance, if there is one, has ended without an assignment."""
        self._reporter.rebalance_ended(error)

    def rebalance_abandoned(self) -> None:
        """Note that the consumer leaves its group."""
        self._reporter.rebalance_abandoned()

    async def _drop(
        self,
        event: PartitionsEvent,
        partitions: Collection[TopicPartition],
        callback: Callable[[list[TopicPartition]], Any] | None,
    ) -> None:
        self.stop_reading(partitions)
        try:
            if callback is not None:
                await self._call(event, callback, partitions)
            else:
                self._reporter.partitions_changed(event, partitions, 0.0)
        finally:
            self._subscription.take_assignment(sorted(self.owned.difference(partitions)))

    async def _call(
        self,
        event: PartitionsEvent,
        callback: Callable[[list[TopicPartition]], Any],
        partitions: Collection[TopicPartition],
    ) -> None:
        now = asyncio.get_running_loop().time
        began = now()
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
            finally:
                self._reporter.partitions_changed(event, partitions, now() - began)
