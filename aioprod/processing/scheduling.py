"""Decides which records are handled next: in the order of their key or partition, concurrently for
other keys. Of the records that can be handled, it takes the oldest, so that positions to commit
advance. Synchronous: the time is an argument.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heapify, heappop, heappush

from aioprod import ConsumerRecord, KafkaError
from aioprod.processing.partitions import PartitionProgress


class Order(StrEnum):
    """Determines which records wait for each other."""

    KEY = "key"
    PARTITION = "partition"
    NONE = "none"


@dataclass(slots=True, eq=False)
class Item:
    """A record that is being processed.

    Attributes:
        record: the record with key and value as bytes.
        partition: the partition that it was read from.
        due: the loop time before which it is not handled.
        attempt: the number of the next call of the handler with it, over all topics.
        attempt_here: the number of the next call since it was read from its current topic.
        delivery_count: how often it was delivered to the share group; 0 in a consumer group.
        alone: whether it is handled in a batch of its own.
        handling: counts how often it was handled, or was to be handled again.
        acknowledged: whether all outputs of the current handling are acknowledged.
        output_error: why an output of it was not stored, until the failure was processed.
        was_in_batch: whether it was in a batch with a failed output: its records are handled
            singly.
        arrival: its position in the order in which records were read.
    """

    record: ConsumerRecord
    partition: PartitionProgress
    due: float = 0.0
    attempt: int = 1
    attempt_here: int = 1
    delivery_count: int = 0
    alone: bool = False
    handling: int = 0
    acknowledged: bool = False
    output_error: KafkaError | None = None
    was_in_batch: bool = False
    arrival: int = field(init=False)
    lane: Lane = field(init=False)


@dataclass(slots=True, eq=False)
class Lane:
    """Records that are handled one after another. A lane is always in one state: ready, waiting
    until its first record is due, active, or empty.

    Attributes:
        name: identifies the lane; None if no later record can belong to it.
        active: the number of its records that are being handled.
        sent: records that were handled, from the first one on whose outputs are not all
            acknowledged.
    """

    name: Hashable | None
    partition: PartitionProgress
    items: deque[Item] = field(default_factory=deque)
    active: int = 0
    sent: deque[Item] = field(default_factory=deque)


# The arrival of a lane's first record, which is unique, and the lane.
_Entry = tuple[int, Lane]


class OrderedScheduler:
    """The records that were read and are not handled yet.

    Records without a key have no order with ``Order.KEY``.

    Args:
        one_lane: whether records that are taken together belong to one lane.
    """

    def __init__(self, order: Order, *, one_lane: bool = False) -> None:
        self._one_lane = one_lane
        self._lane_name = _LANE_NAMES[order]
        self._lanes: dict[Hashable, Lane] = {}
        self._ready: list[_Entry] = []  # a heap: the lane with the oldest record first
        self._arrivals = 0
        self._waiting: list[tuple[float, int, Lane]] = []
        self._waits = 0  # makes entries with the same time comparable
        self.queued: int = 0

    @property
    def next_due(self) -> float | None:
        """The loop time at which the next waiting record is due; None without a waiting record."""
        return self._waiting[0][0] if self._waiting else None

    def due_of(self, partition: PartitionProgress, offset: int) -> float | None:
        """Return the loop time at which a record is due; None unless it waits for that time."""
        for due, _, lane in self._waiting:
            if lane.partition is partition and lane.items[0].record.offset == offset:
                return due
        return None

    @property
    def has_next(self) -> bool:
        """True if a record can be handled now, or later when it is due."""
        return bool(self._ready or self._waiting)

    def add(self, item: Item, now: float) -> None:
        """Add a record that was read, after the earlier ones of its lane."""
        name = self._lane_name(item)
        lane = self._lanes.get(name) if name is not None else None
        if lane is None:
            lane = Lane(name, item.partition)
            if name is not None:
                self._lanes[name] = lane
        self._arrivals += 1
        item.arrival = self._arrivals
        item.lane = lane
        lane.items.append(item)
        self.queued += 1
        if len(lane.items) == 1 and not lane.active:
            self._queue(lane, now)

    def take(self, now: float, most: int = 1) -> list[Item]:
        """Take up to ``most`` records that can be handled now, together; none if none can be."""
        while self._waiting and self._waiting[0][0] <= now:
            self._make_ready(self._ready, heappop(self._waiting)[2])
        taken: list[Item] = []
        open_lanes: list[_Entry] = []  # lanes from which a record was taken now
        while len(taken) < most and (lanes := self._next_lanes(open_lanes)):
            lane = lanes[0][1]
            if taken and lane.items[0].alone:
                break
            heappop(lanes)
            item = lane.items.popleft()
            lane.active += 1
            taken.append(item)
            if item.alone:
                break
            if lane.items and lane.items[0].due <= now:
                self._make_ready(open_lanes, lane)
            elif self._one_lane:
                break
        self.queued -= len(taken)
        return taken

    def _next_lanes(self, open_lanes: list[_Entry]) -> list[_Entry]:
        """Return the heap with the record to take next."""
        if not open_lanes or not self._ready:
            return open_lanes or self._ready
        if self._one_lane:
            return open_lanes
        return min(open_lanes, self._ready)

    def finish(self, item: Item, now: float) -> None:
        """Record that the handling of a record has ended: the next one of its lane may begin."""
        lane = item.lane
        lane.active -= 1
        if lane.active:
            return
        if lane.items:
            self._queue(lane, now)
        else:
            self._forget_unused(lane)

    def trim(self, lane: Lane) -> None:
        """Forget the records whose outputs are acknowledged, and all before them."""
        while lane.sent and lane.sent[0].acknowledged:
            lane.sent.popleft()
        self._forget_unused(lane)

    def _forget_unused(self, lane: Lane) -> None:
        if (
            not (lane.items or lane.active or lane.sent)
            and lane.name is not None
            and self._lanes.get(lane.name) is lane
        ):
            del self._lanes[lane.name]

    def put_in(self, item: Item, now: float) -> None:
        """Queue a handled record again, before the later ones of its lane."""
        lane = item.lane
        self._insert(lane, item)
        if lane.active:
            return  # the lane is queued when they end
        # It may already wait for its former first record.
        self._ready = [entry for entry in self._ready if entry[1] is not lane]
        heapify(self._ready)
        self._waiting = [entry for entry in self._waiting if entry[2] is not lane]
        heapify(self._waiting)
        self._queue(lane, now)

    def _insert(self, lane: Lane, item: Item) -> None:
        """Insert a record in the order in which records were read: usually as the first one."""
        index = 0
        while index < len(lane.items) and lane.items[index].arrival < item.arrival:
            index += 1
        lane.items.insert(index, item)
        self.queued += 1

    def put_back(self, item: Item, now: float, *, keep_order: bool) -> None:
        """Queue a record again, to be handled when it is due.

        Args:
            keep_order: whether later records of its lane wait for it; otherwise they overtake it.
        """
        if item.partition.closed:
            self.finish(item, now)
            return
        if keep_order:
            self._insert(item.lane, item)
            self.finish(item, now)
            return
        self.finish(item, now)
        item.lane = Lane(None, item.partition, deque([item]))
        self.queued += 1
        self._queue(item.lane, now)

    def drop(self, partition: PartitionProgress) -> None:
        """Forget the records of a partition that are not being handled."""
        for lane in {id(lane): lane for lane in self._all_lanes()}.values():
            if lane.partition is partition:
                self.queued -= len(lane.items)
                lane.items.clear()
                lane.sent.clear()
                if lane.name is not None:
                    del self._lanes[lane.name]
        self._ready = [entry for entry in self._ready if entry[1].items]
        heapify(self._ready)
        self._waiting = [entry for entry in self._waiting if entry[2].items]
        heapify(self._waiting)

    def _all_lanes(self) -> list[Lane]:
        waiting = [lane for _, _, lane in self._waiting]
        return [*self._lanes.values(), *(lane for _, lane in self._ready), *waiting]

    def _queue(self, lane: Lane, now: float) -> None:
        due = lane.items[0].due
        if due <= now:
            self._make_ready(self._ready, lane)
        else:
            self._waits += 1
            heappush(self._waiting, (due, self._waits, lane))

    @staticmethod
    def _make_ready(lanes: list[_Entry], lane: Lane) -> None:
        heappush(lanes, (lane.items[0].arrival, lane))


def _by_key(item: Item) -> Hashable | None:
    key = item.record.key
    return None if key is None else (item.partition, key)


_LANE_NAMES: dict[Order, Callable[[Item], Hashable | None]] = {
    Order.KEY: _by_key,
    Order.PARTITION: lambda item: item.partition,
    Order.NONE: lambda item: None,
}
