"""The interface that an application implements to be called when partitions are assigned or
revoked.
"""

from __future__ import annotations

from typing import Any

from aioprod.public_module import set_module
from aioprod.types import TopicPartition


@set_module("aioprod.consumer")
class RebalanceListener:
    """Base class of listeners of ``subscribe``: override what you need, with plain functions or
    coroutines (``ConsumerRebalanceListener``).

    They run inside ``getone``, ``getmany``, ``async for``, ``unsubscribe`` and ``close``, and may
    call the consumer. That call raises an exception of a method, after the partitions were assigned
    or revoked; the method is not called again. If a method raises CancelledError, and its task was
    not cancelled, the call raises ConsumerStateError with that as the cause. ``wakeup`` does not
    interrupt a method.
    """

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> Any:
        """Handle new partitions. Called before their first record is fetched, so that ``seek`` is
        possible.
        """

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> Any:
        """Handle partitions that are about to be revoked: the last chance to commit. They are still
        assigned.
        """

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> Any:
        """Handle partitions that other members may own already: commits would fail. Calls
        ``on_partitions_revoked`` unless it is overridden, as in Java.
        """
        return self.on_partitions_revoked(partitions)
