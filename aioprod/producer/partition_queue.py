"""The state of each topic and partition in the producer.

A :class:`PartitionQueue` owns everything about its partition: the waiting batches, the batches in
flight, the sequence numbers, and when the first batch is due. All changes are its methods. The
:class:`Schedule` finds the partitions that have a batch to send now.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator

from aioprod.cluster.snapshot import TopicInfo
from aioprod.codecs import Codec
from aioprod.error_codes import ErrorCode
from aioprod.producer.batch import ProducerBatch
from aioprod.producer.partitioner import Partitions, StickyPartition
from aioprod.producer.pending import PendingCall
from aioprod.producer.sequences import PartitionSequence, ProducerState
from aioprod.producer.shared_fields import PartitionFields, TopicFields
from aioprod.producer.wakeup import NEVER
from aioprod.types import TopicPartition

# Kafka's steps: the estimate falls slowly and rises fast, as a batch that is too large costs more
# than one that is too small.
_RATIO_FALLS_BY = 0.005
_RATIO_RISES_BY = 0.05


class Topic(TopicFields):
    """The state of a topic that ``send`` needs, updated by each metadata refresh, not per record.

    Attributes:
        topic_id: changes if the topic is deleted and created again.
        available: numbers of the partitions that have a leader; all if none has.
        info: the topic in the last metadata.
        codec, level: how its batches are compressed.
        ratio: estimated ratio of compressed to uncompressed size.
        leaders: node id of each partition's leader, by number; -1 for one without a leader.
        partitions: ``count``, ``available`` and ``leaders`` for the application.
        longest: the number of batches in the longest of its queues.
        largest: bytes of records up to which a batch grows while it can't be sent.
        reserved_by: the call that puts many records into the topic, if any; other calls wait in
            ``line`` until it has finished.
    """

    __slots__ = (
        "_of_length",
        "available",
        "codec",
        "info",
        "largest",
        "leaders",
        "level",
        "line",
        "longest",
        "name",
        "partitions",
        "ratio",
        "reserved_by",
        "split_noted",
        "topic_id",
    )

    queues: list[PartitionQueue]  # type: ignore[assignment]  # of this class only
    sticky: StickyPartition

    def __init__(self, name: str, sticky: StickyPartition, codec: Codec, level: int | None) -> None:
        self.name: str = name
        self.sticky = sticky
        self.codec: Codec = codec
        self.level: int | None = level
        self.ratio: float = 1.0
        self.longest: int = 0
        self.largest: int = 0
        self._of_length: dict[int, int] = {}  # the number of queues with at least that many batches
        self.split_noted: bool = False
        self.info: TopicInfo | None = None
        self.topic_id: uuid.UUID | None = None
        self.count = 0
        self.queues = []
        self.available: list[int] = []
        self.leaders: list[int] = []
        self.partitions: Partitions = Partitions(0, ())
        self.reserved_by: PendingCall | None = None
        # An OrderedDict finds its first item in constant time, also after many removals.
        self.line: OrderedDict[PendingCall, None] = OrderedDict()

    def queue_length(self, partition: int) -> int:
        """Return how many batches wait for a partition."""
        return len(self.queues[partition].batches)

    def grew(self, length: int) -> None:
        """Note that a queue has got a batch, and now has ``length`` of them."""
        self._of_length[length] = self._of_length.get(length, 0) + 1
        if length > self.longest:
            self.longest = length

    def shrank(self, length: int) -> None:
        """Note that a queue with ``length`` batches loses one."""
        self._of_length[length] -= 1
        while self.longest and not self._of_length[self.longest]:
            self.longest -= 1

    def was_too_large(self, grown_to: int | None, smallest: int) -> None:
        """Note that a batch was too large for the broker: expect no compression of the next ones.

        Args:
            grown_to: the bytes of its records if it grew because it could not be sent. Later
                batches grow to half of that, but to ``smallest`` in any case.
        """
        self.ratio = max(1.0, self.ratio)
        if grown_to is not None:
            self.largest = max(smallest, min(self.largest, grown_to // 2))

    def observe_ratio(self, observed: float) -> None:
        """Update the estimate with a compressed batch."""
        if observed > self.ratio:
            self.ratio = max(self.ratio + _RATIO_RISES_BY, observed)
        elif observed < self.ratio:
            self.ratio = max(self.ratio - _RATIO_FALLS_BY, observed)


class PartitionQueue(PartitionFields):
    """A partition's batches, oldest first; only the last one accepts records.

    Args:
        producer: the producer id and epoch.
        schedule: finds the queue when its first batch is due.

    Attributes:
        batches: the batches that are not in flight; read only.
        tail: the batch that accepts records now, if any.
        open: the same batch; None while calls wait in line.
        line: calls that wait for a place here, in the order of the calls.
        resting: whether the first call in line only lets other tasks run, see :meth:`rest`.
        opened: the number of created batches.
        muted: whether nothing may be sent before the reply to the request in flight.
    """

    __slots__ = (
        "_lingers",
        "_lingers_s",
        "_schedule",
        "_sequence",
        "batches",
        "leader",
        "line",
        "muted",
        "opened",
        "resting",
        "tail",
        "topic",
        "tp",
    )

    open: ProducerBatch | None

    def __init__(
        self, topic: Topic, partition: int, producer: ProducerState, schedule: Schedule
    ) -> None:
        self.topic: Topic = topic
        self.tp: TopicPartition = TopicPartition(topic.name, partition)
        self.batches: deque[ProducerBatch] = deque()
        self.tail: ProducerBatch | None = None
        self.open = None
        self.line: OrderedDict[PendingCall, None] = OrderedDict()
        self.resting: bool = False
        self.leader: int = -1
        self.muted: bool = False
        self.opened: int = 0
        self._lingers: ProducerBatch | None = None  # the tail, if it grew and is not due for that
        self._lingers_s: float = 0.0
        self._sequence = PartitionSequence(producer)
        self._schedule = schedule

    # -- waiting calls -----------------------------------------------------------------------------

    @property
    def first(self) -> PendingCall | None:
        """The first call in line, if any."""
        return next(iter(self.line), None)

    def join(self, pending: PendingCall) -> None:
        """Add a call to the end of the line."""
        self.line[pending] = None
        self.open = None

    def leave(self, pending: PendingCall) -> None:
        """Remove a call from the line, if it is in it; after the last one the fast path is open."""
        self.line.pop(pending, None)
        if not self.line:
            self.open = self.tail

    async def rest(self) -> None:
        """Let other tasks run once, as the first call in line. Another call ends it earlier by
        :meth:`end_rest`, to serve the line at once.
        """
        self.resting = True
        try:
            await asyncio.sleep(0)
        finally:
            self.resting = False

    def end_rest(self) -> None:
        """Note that the line is served, though its first call has not run again."""
        self.resting = False

    # -- before an attempt -------------------------------------------------------------------------

    def add(self, batch: ProducerBatch, now: float, *, complete: bool) -> None:
        """Add a new batch after all others; a ``complete`` one accepts no more records."""
        if self.tail is not None:
            self.close(self.tail)
        self.opened += 1
        self.batches.append(batch)
        if complete:
            batch.closed = True
        else:
            self.tail = batch
            self.open = None if self.line else batch
        self.topic.grew(len(self.batches))
        self._schedule.look_at(self, now, wake=True)

    def close(self, batch: ProducerBatch) -> None:
        """Close a batch: it accepts no more records."""
        batch.closed = True
        if self.tail is batch:
            self.tail = self.open = self._lingers = None

    def close_full(self, batch: ProducerBatch, now: float) -> None:
        """Close a full batch: it is due, and sent soon."""
        self.close(batch)
        self._schedule.look_at(self, now, wake=True)

    def grow_past_full(self, batch: ProducerBatch, linger_s: float | None, *, wake: bool) -> None:
        """Let a full batch accept more records until it is sent, up to ``topic.largest`` bytes. It
        lingers for the linger time and at least ``linger_s``, or is due and may wake the sender.
        """
        batch.ceiling = self.topic.largest
        if linger_s is not None:
            self._lingers, self._lingers_s = batch, linger_s
        if not batch.grown:
            batch.grown = True
            self._schedule.look_at(self, asyncio.get_running_loop().time(), wake=wake)

    def due_at(self, linger_s: float) -> float:
        """Return the loop time at which the first batch may be sent: after its backoff, and unless
        it is full, after ``linger_s``.
        """
        first = self.batches[0]
        if first is self._lingers and linger_s:
            linger_s = max(linger_s, self._lingers_s)
        elif first.grown:
            return first.retry_at
        if first.closed or first.attempts or len(self.batches) > 1:
            return first.retry_at
        lingered_at = first.created_at + linger_s
        return lingered_at if lingered_at > first.retry_at else first.retry_at

    def may_send(self) -> bool:
        """Return whether the first batch may be sent now with a sequence number, which it gets if
        it has none.
        """
        return self._sequence.may_send(self.batches[0])

    def may_send_after(self, before: int) -> bool:
        """Return whether a batch may be sent before the next response, after ``before`` others
        that have no sequence number yet.
        """
        return self._sequence.has_room_after(before)

    def take(self, now: float, *, mute: bool) -> ProducerBatch:
        """Remove the first batch, for a request.

        Args:
            mute: whether nothing else may be sent before the reply.
        """
        batches = self.batches
        batch = batches[0]
        self.close(batch)  # its number of records determines its sequence numbers
        self.topic.shrank(len(batches))
        batches.popleft()
        self._schedule.served(self, now)
        self.muted = mute
        batch.in_flight = True
        batch.attempts += 1
        if batch.attempts == 1:
            batch.first_sent_at = now
        return batch

    def lead_by(self, leader: int) -> None:
        """Note which node leads the partition now; -1 for none. Backoffs were for the old one."""
        if leader == self.leader:
            return
        for batch in self.batches:
            batch.retry_at = 0.0
        old, self.leader = self.leader, leader
        if self.batches:
            self._schedule.moved(self, old)
            self._schedule.look_at(self, asyncio.get_running_loop().time())

    def forgotten_by_broker(self) -> None:
        """Note that the topic was created again, so that the broker may not know this producer."""
        self._sequence.forgotten_by_broker()

    # -- after an attempt --------------------------------------------------------------------------

    def attempt_ended(self, batch: ProducerBatch, unanswered_at: float | None) -> None:
        """Note that a request with a batch has ended.

        Args:
            unanswered_at: the loop time, if the batch may be stored nevertheless.
        """
        batch.in_flight = False
        self.muted = False
        if unanswered_at is not None:
            batch.may_be_stored = True
            batch.unanswered_at = unanswered_at

    def is_first_unresolved(self, batch: ProducerBatch) -> bool:
        """Return whether all earlier batches of the partition have their outcome."""
        return self._sequence.is_first_unresolved(batch)

    @property
    def is_broken(self) -> bool:
        """True if the broker certainly stores no batch that has a sequence number."""
        return self._sequence.broken

    def put_back(self, batch: ProducerBatch, retry_at: float, now: float) -> None:
        """Insert a batch that has to be sent again, in the order in which batches were created."""
        batch.retry_at = retry_at
        index = 0
        while index < len(self.batches) and self.batches[index].order < batch.order:
            index += 1
        self.batches.insert(index, batch)
        self.topic.grew(len(self.batches))
        self._schedule.look_at(self, now)

    def lose_sequence(self, batch: ProducerBatch, code: ErrorCode) -> None:
        """Note that the broker has refused the batch's sequence number: it and all later ones need
        new ones.
        """
        self._sequence.rewrite(batch, code)

    def split(self, batch: ProducerBatch, now: float, *, smallest: int) -> list[ProducerBatch]:
        """Replace a batch that was too large with smaller ones, which get its memory and sequence
        numbers. Return them.

        Args:
            smallest: see :meth:`Topic.was_too_large`.
        """
        size = batch.writer.size
        parts = batch.split()
        self._sequence.split(batch, parts)
        self.topic.was_too_large(size if batch.grown else None, smallest)
        for part in parts:
            self.put_back(part, 0.0, now)
        return parts

    def stored(self, batch: ProducerBatch, now: float) -> None:
        """Note that a batch is stored."""
        self.drop(batch, now)
        self._sequence.stored(batch)

    def given_up(self, batch: ProducerBatch, now: float) -> None:
        """Note that a batch has failed, which leaves a gap in the sequence numbers."""
        self.drop(batch, now)
        self._sequence.given_up(batch)

    def drop(self, batch: ProducerBatch, now: float) -> None:
        """Remove a batch that has ended, in flight or not, without a change of the sequence
        numbers.
        """
        self.close(batch)
        if batch.in_flight:
            self.muted = False
        if batch in self.batches:
            self.topic.shrank(len(self.batches))
            self.batches.remove(batch)
            self._schedule.look_at(self, now)


_Entry = tuple[float, int, PartitionQueue]


class Schedule:
    """Finds the partitions that have a batch to send now, without a scan of all others: a thousand
    lingering partitions cost as much as one. It has the queues by the time at which their first
    batch is due, and the due ones by leader.

    A queue is checked when it changes (:meth:`look_at`) and when it is due, which corrects an
    outdated time.

    Args:
        linger_s: how long a batch with room waits for more records.
        wake: called with a time at which :meth:`advance` has to be called, at the latest; 0 for
            soon.
    """

    def __init__(self, linger_s: float, wake: Callable[[float], None]) -> None:
        self._configured_linger_s = linger_s
        self._linger_s = linger_s
        self._wake = wake
        self._due: dict[int, dict[PartitionQueue, None]] = {}
        self._later: list[_Entry] = []
        self._numbers = itertools.count()

    def look_at(self, queue: PartitionQueue, now: float, *, wake: bool = False) -> None:
        """Check a queue that has got or lost a batch, or whose due time has changed.

        Args:
            wake: True to let a batch that is due be sent soon.
        """
        if not queue.batches:
            return
        of_leader = self._due.get(queue.leader)
        if of_leader is None or queue not in of_leader:
            due = queue.due_at(self._linger_s)
            if due > now:
                heapq.heappush(self._later, (due, next(self._numbers), queue))
                self._wake(due)
                return
            if of_leader is None:
                of_leader = self._due[queue.leader] = {}
            of_leader[queue] = None
        if wake:
            self._wake(0.0)

    def moved(self, queue: PartitionQueue, old_leader: int) -> None:
        """Note that a queue has another leader. Call :meth:`look_at` afterwards: its due time may
        have changed too.
        """
        if self._due.get(old_leader, {}).pop(queue, self) is None:
            self._due.setdefault(queue.leader, {})[queue] = None

    def advance(self, now: float, *, hurry: bool) -> float:
        """Mark the queues that are due at ``now``; return the loop time at which the next is due.

        Args:
            hurry: whether no batch may linger, until the next call.
        """
        self._linger_s = 0.0 if hurry else self._configured_linger_s
        if hurry:
            waiting, self._later = self._later, []
            for _, _, queue in waiting:
                self.look_at(queue, now)
        while self._later and self._pass_earliest(now):
            pass
        return self._later[0][0] if self._later else NEVER

    def _pass_earliest(self, now: float) -> bool:
        """Remove the earliest entry if it is due or outdated; return whether it was."""
        at, _, queue = self._later[0]
        if not queue.batches or queue in self._due.get(queue.leader, ()):
            heapq.heappop(self._later)
            return True
        due = queue.due_at(self._linger_s)
        if due == at > now:
            return False
        heapq.heappop(self._later)
        self.look_at(queue, now)
        return True

    def leaders(self) -> list[int]:
        """Return the nodes that lead a due queue; -1 stands for queues without a leader."""
        return list(filter(self._due.get, self._due))

    @property
    def any_due(self) -> bool:
        """True if a queue is marked as due."""
        return any(self._due.values())

    def has_due(self, leader: int) -> bool:
        """Return whether a node leads a queue that is marked as due."""
        return bool(self._due.get(leader))

    def due(self, leader: int, now: float) -> Iterator[PartitionQueue]:
        """Yield a node's due queues, least recently served first. The caller may change them."""
        due = self._due.get(leader)
        for queue in list(due) if due else ():
            if queue.batches and queue.due_at(self._linger_s) <= now:
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
