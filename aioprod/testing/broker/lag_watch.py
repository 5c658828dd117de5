"""Removes followers that lag for too long from the in-sync replicas (broker setting
replica.lag.time.max.ms), using the event loop's clock.
"""

from __future__ import annotations

import asyncio

from aioprod.testing.broker.partition import Partition


class LagWatch:
    """A timer for each in-sync follower that lacks records. It starts with the first record that
    the follower lacks.
    """

    def __init__(self, lag_time_max_ms: int) -> None:
        self._lag_time_max_ms = lag_time_max_ms
        self._timers: dict[Partition, dict[int, asyncio.Handle]] = {}
        self._runs = False

    def update(self, partition: Partition) -> None:
        """Start and cancel timers after a partition's log, nodes or replicas have changed."""
        laggards = partition.laggards if self._runs else []
        timers = self._timers.pop(partition, {})
        for node_id in [each for each in timers if each not in laggards]:
            timers.pop(node_id).cancel()
        for node_id in laggards:
            if node_id not in timers:
                timers[node_id] = asyncio.get_running_loop().call_later(
                    self._lag_time_max_ms / 1000, self._expired, partition, node_id
                )
        if timers:
            self._timers[partition] = timers

    def forget(self, partition: Partition) -> None:
        """Cancel the timers of a deleted partition."""
        for timer in self._timers.pop(partition, {}).values():
            timer.cancel()

    def suspend(self) -> None:
        """Cancel all timers, because no node is running."""
        self._runs = False
        for partition in list(self._timers):
            self.forget(partition)

    def resume(self) -> None:
        """Allow timers again, because a node is running. The caller updates each partition."""
        self._runs = True

    def _expired(self, partition: Partition, node_id: int) -> None:
        partition.drop_from_in_sync(node_id)
        self.update(partition)
