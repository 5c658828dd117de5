"""What was fetched and waits for the application: in the order in which it came, bounded by whoever
fetches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from aioprod.consumer.fetched_data import FetchedData
from aioprod.consumer.subscription import PartitionState, Position
from aioprod.types import ConsumerRecord, TopicPartition


class _Waiting:
    """One partition's data, and where the next fetch of it goes on."""

    __slots__ = ("data", "next")

    def __init__(self) -> None:
        self.data: deque[FetchedData] = deque()
        self.next: Position | None = None


class FetchBuffer:
    """A queue of :class:`FetchedData`. What belongs to a paused partition stays where it is, and is
    passed over.
    """

    def __init__(self) -> None:
        self._queue: deque[FetchedData] = deque()
        self._partitions: dict[TopicPartition, _Waiting] = {}
        self.size = 0  # bytes held

    def add(self, data: FetchedData, following: Position | None) -> None:
        """Queue data; ``following`` is the position behind it, None if its end is corrupt."""
        waiting = self._partitions.setdefault(data.state.tp, _Waiting())
        waiting.data.append(data)
        waiting.next = following
        self._queue.append(data)
        self.size += data.size

    def unread_bytes(self, tp: TopicPartition) -> int:
        """How much of a partition waits to be decoded."""
        waiting = self._partitions.get(tp)
        return sum(data.unread_bytes for data in waiting.data) if waiting is not None else 0

    def next_position(self, state: PartitionState) -> Position | None:
        """Where the next fetch goes on: behind what waits, else at the partition's position.

        None if what waits is corrupt at its end: the application has to be told before.
        """
        waiting = self._partitions.get(state.tp)
        return waiting.next if waiting is not None else state.position

    def drop(self, tp: TopicPartition) -> None:
        """Forget what waits of a partition."""
        waiting = self._partitions.pop(tp, None)
        if waiting is not None:
            self.size -= sum(data.size for data in waiting.data)
            self._queue = deque(data for data in self._queue if data.state.tp != tp)

    def drop_paused(self) -> None:
        """Forget what waits of paused partitions; it is fetched again when they are resumed."""
        for tp in [tp for tp, waiting in self._partitions.items() if waiting.data[0].state.paused]:
            self.drop(tp)

    def take(self, limit: int) -> tuple[FetchedData, Sequence[ConsumerRecord]] | None:
        """The next records, all of one partition, at most ``limit``, and where they are from; None
        where nothing may be handed out.

        Data that has no more records moves its partition's position behind it and is gone.

        Raises:
            CorruptRecordError, DeserializationError: the next record of a partition can't be read;
                what waits of the partition is gone, so that it is fetched again.
        """
        queue = self._queue
        if queue and queue[0].state.may_be_handed_out:
            found = self._take_from(queue[0], limit)
            if found is not None:
                return found
        for data in list(queue):
            if data.state.may_be_handed_out and (found := self._take_from(data, limit)) is not None:
                return found
        return None

    def _take_from(
        self, data: FetchedData, limit: int
    ) -> tuple[FetchedData, Sequence[ConsumerRecord]] | None:
        tp = data.state.tp
        waiting = self._partitions.get(tp)
        if waiting is None or waiting.data[0] is not data:
            return None  # it went with an error, or is not the partition's first
        try:
            records = data.take(limit)
        except BaseException:  # what a deserializer raises is handed on, too
            data.state.position = data.position
            self.drop(tp)
            raise
        if records:
            return data, records
        data.state.position = data.position
        self._queue.remove(data)
        waiting.data.popleft()
        self.size -= data.size
        if not waiting.data:
            del self._partitions[tp]
        return None
