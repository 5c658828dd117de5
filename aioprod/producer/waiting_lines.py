"""The lines of calls that wait at partitions, and one timer for the deadlines of all of them.

A timer for each call would cost more than its place in line: 10,000 tasks that wait for memory each
wait in line with each of their records.
"""

from __future__ import annotations

import asyncio

from aioprod.earliest_timer import EarliestTimer
from aioprod.producer.partition_queue import PartitionQueue
from aioprod.producer.pending import PendingCall

# If many deadlines are close together, the timer looks at all calls once per step, not once per
# deadline.
_STEP_S = 0.01


class WaitingLines:
    """Calls that wait at partitions, each at most until its deadline."""

    def __init__(self) -> None:
        self._queues: dict[PartitionQueue, None] = {}
        self._timer = EarliestTimer(self._time_out)

    @property
    def waiting(self) -> int:
        """The number of calls in all lines."""
        return sum(len(queue.line) for queue in self._queues)

    def join(self, call: PendingCall, queue: PartitionQueue) -> None:
        """Add a call to the end of a partition's line."""
        queue.join(call)
        self._queues[queue] = None

    def withdraw(self, call: PendingCall, queue: PartitionQueue) -> None:
        """Remove a call from its line, if it is in it, and wake the first one of those left."""
        queue.leave(call)
        first = queue.first
        if first is not None:
            first.wake()
            return
        self._queues.pop(queue, None)
        if not self._queues:
            self._timer.stop()

    def new_waiter(
        self, call: PendingCall, loop: asyncio.AbstractEventLoop
    ) -> asyncio.Future[None]:
        """Return a future that is completed if another task wakes the call, which is in a line, and
        fails with TimeoutError at the call's deadline.
        """
        self._timer.set(call.deadline)
        return call.new_waiter(loop)

    def _time_out(self, now: float) -> None:
        """Time out the calls whose deadline has come, and set the timer for the next one."""
        following = float("inf")
        for queue in self._queues:
            for call in queue.line:
                if call.deadline <= now:
                    call.time_out()
                else:
                    following = min(following, call.deadline)
        if following < float("inf"):
            self._timer.set(max(following, now + _STEP_S))
