"""Takes followers that lag for too long out of sync (broker setting replica.lag.time.max.ms), by
the event loop's clock.
"""

from __future__ import annotations

import asyncio

from aioprod.testing.broker.partition import Partition


class LagWatch:
    """A timer for each follower that is in sync and lacks records. It begins with the first record
    that the follower lacks.
    """

    def __init__(self, lag_time_max_ms: int) -> None:
        self._lag_time_max_ms = lag_time_max_ms
        self._timers: dict[Partition, dict[int, asyncio.TimerHandle]] = {}
        self._runs = False

    def update(self, partition: Partition) -> None:
        """Look at a partition whose log, nodes or replicas have changed."""
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
        """The partition is deleted."""
        for timer in self._timers.pop(partition, {}).values():
            timer.cancel()

    def suspend(self) -> None:
        """No node runs: leave nothing on the event loop."""
        self._runs = False
        for partition in list(self._timers):
            self.forget(partition)

    def resume(self) -> None:
        """A node runs; each partition is to be looked at again."""
        self._runs = True

    def _expired(self, partition: Partition, node_id: int) -> None:
        partition.drop_from_in_sync(node_id)
        self.update(partition)
