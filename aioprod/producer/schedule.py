"""Finds the partitions that have a batch to send now, without a scan of all others: a thousand
lingering partitions cost as much as one.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator

from aioprod.producer.partition_queue import PartitionQueue
from aioprod.producer.wakeup import NEVER

_Entry = tuple[float, int, PartitionQueue]


class Schedule:
    """Queues by the time at which their first batch is due, and the due ones by leader.

    A queue is checked when it changes (:meth:`look_at`) and when it is due, which corrects an
    outdated time.

    Args:
        due_at: returns the loop time at which a queue with batches is due.
        wake: called with a time at which :meth:`advance` has to be called, at the latest.
    """

    def __init__(
        self, due_at: Callable[[PartitionQueue], float], wake: Callable[[float], None]
    ) -> None:
        self._due_at = due_at
        self._wake = wake
        self._due: dict[int, dict[PartitionQueue, None]] = {}
        self._later: list[_Entry] = []
        self._numbers = itertools.count()

    def look_at(self, queue: PartitionQueue, now: float) -> None:
        """Check a queue that has got or lost a batch, or whose due time has changed."""
        if not queue.batches or queue in self._due.get(queue.leader, ()):
            return
        due = self._due_at(queue)
        if due <= now:
            self._due.setdefault(queue.leader, {})[queue] = None
        else:
            heapq.heappush(self._later, (due, next(self._numbers), queue))
            self._wake(due)

    def moved(self, queue: PartitionQueue, old_leader: int) -> None:
        """Note that a queue has another leader. Call :meth:`look_at` afterwards: its due time may
        have changed too.
        """
        if self._due.get(old_leader, {}).pop(queue, self) is None:
            self._due.setdefault(queue.leader, {})[queue] = None

    def advance(self, now: float, *, hurry: bool) -> float:
        """Mark the queues that are due at ``now``; return the loop time at which the next is due.

        Args:
            hurry: whether no batch may linger, so that all due times have changed.
        """
        if hurry:
            waiting, self._later = self._later, []
            for _, _, queue in waiting:
                self.look_at(queue, now)
        while self._later and self._is_settled(now):
            pass
        return self._later[0][0] if self._later else NEVER

    def _is_settled(self, now: float) -> bool:
        """Handle the earliest entry if it is due or outdated; return whether it was."""
        at, _, queue = self._later[0]
        if not queue.batches or queue in self._due.get(queue.leader, ()):
            heapq.heappop(self._later)
            return True
        due = self._due_at(queue)
        if due == at > now:
            return False
        heapq.heappop(self._later)
        self.look_at(queue, now)
        return True

    def leaders(self) -> list[int]:
        """Return the nodes that lead a due queue; -1 stands for queues without a leader."""
        return list(filter(self._due.get, self._due))

    def has_due(self, leader: int) -> bool:
        """Return whether a node leads a queue that is marked as due."""
        return bool(self._due.get(leader))

    def due(self, leader: int, now: float) -> Iterator[PartitionQueue]:
        """Yield a node's due queues, least recently served first. The caller may change them."""
        for queue in list(self._due.get(leader, ())):
            if queue.batches and self._due_at(queue) <= now:
                yield queue
            else:
                del self._due[leader][queue]
                self.look_at(queue, now)

    def served(self, queue: PartitionQueue, now: float) -> None:
        """Move a queue after the others: its first batch was taken."""
        due = self._due.get(queue.leader)
        if due is not None:
            due.pop(queue, None)
        if queue.batches:
            self.look_at(queue, now)
