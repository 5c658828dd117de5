"""Fetched data that the application has not read, in the order of the responses. The fetcher
limits its size.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from aioprod.consumer.fetched_data import FetchedData
from aioprod.consumer.subscription import PartitionState, Position
from aioprod.preparation import NotPrepared
from aioprod.types import ConsumerRecord, TopicPartition

T = TypeVar("T")


class FetchBuffer:
    """A queue of :class:`FetchedData`. Data of paused partitions stays in it and is skipped.

    Args:
        on_end: called when all records of a response were taken: there is room for more.
    """

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._queue: deque[FetchedData] = deque()
        self._partitions: defaultdict[TopicPartition, deque[FetchedData]] = defaultdict(deque)
        # The number of FetchedData objects that refer to a response, by its id.
        self._users: dict[int, int] = {}
        self.size: int = 0  # bytes buffered: the whole response, until all of its data is gone

    def add(self, data: FetchedData) -> None:
        """Queue data."""
        self._partitions[data.state.tp].append(data)
        self._queue.append(data)
        memory = id(data.memory)
        users = self._users.get(memory, 0)
        self._users[memory] = users + 1
        if not users:
            self.size += len(data.memory)

    def unread_bytes(self) -> dict[TopicPartition, int]:
        """Return the number of bytes that are not decoded yet, of each partition with data."""
        found: dict[TopicPartition, int] = {}
        for tp, waiting in self._partitions.items():
            for data in waiting:
                found[tp] = found.get(tp, 0) + data.unread_bytes
        return found

    def has_data(self, tp: TopicPartition) -> bool:
        """Return whether data of a partition are buffered."""
        return tp in self._partitions

    def next_position(self, state: PartitionState) -> Position | None:
        """Return where the next fetch begins: after the queued data, or at the partition's
        position if no data is queued.

        Return None if the queued data end with a corrupt batch: the application gets that error
        first.
        """
        waiting = self._partitions.get(state.tp)
        return waiting[-1].following if waiting else state.position

    def drop(self, tp: TopicPartition) -> None:
        """Drop the data of a partition."""
        waiting = self._partitions.pop(tp, ())
        if waiting:
            for data in waiting:
                self._release(data)
            self._queue = deque(data for data in self._queue if data.state.tp != tp)

    def drop_paused(self) -> None:
        """Drop the data of paused partitions; they are fetched again after ``resume``."""
        for tp in [tp for tp, waiting in self._partitions.items() if waiting[0].state.paused]:
            self.drop(tp)

    def take(self, limit: int) -> tuple[FetchedData, Sequence[ConsumerRecord]] | None:
        """Return at most ``limit`` records of one partition, and the data that they are from; None
        if no record may be returned now. See :meth:`_take`.
        """
        return self._take(FetchedData.take, limit)

    def take_arrow(
        self, limit: int, topic: str | None = None
    ) -> tuple[FetchedData, Sequence[Any]] | None:
        """Return the same as Arrow's columns, of one topic if it is given: see
        :meth:`FetchedData.take_arrow`.
        """
        return self._take(FetchedData.take_arrow, limit, topic)

    def returned(self, data: FetchedData) -> None:
        """Move the position of the partition: the application got the records that were taken.
        Data without further records are removed at once: to find that out in the next call would
        take 0.1 of what a record takes that comes alone.
        """
        data.state.position = data.position
        if data.at_end:
            waiting = self._partitions.get(data.state.tp)
            if waiting and waiting[0] is data:
                self._remove(data, waiting)

    def _take(
        self,
        take: Callable[[FetchedData, int], Sequence[T]],
        limit: int,
        topic: str | None = None,
    ) -> tuple[FetchedData, Sequence[T]] | None:
        """Return what ``take`` returns of the first data that have records, of ``topic`` if it is
        not None.

        Data without further records are removed, and the position moves past them.

        Raises:
            CorruptRecordError, DeserializationError: if the next record of a partition can't be
                read; the data of that partition are dropped, and fetched again.
            NotPrepared: if a deserializer has to wait before it can read the next record.
        """
        queue = self._queue
        if queue and topic is None and queue[0].state.may_be_returned:
            found = self._take_from(queue[0], take, limit)
            if found is not None:
                return found
        for data in list(queue):
            if not data.state.may_be_returned or topic not in (None, data.state.tp.topic):
                continue
            if (found := self._take_from(data, take, limit)) is not None:
                return found
        return None

    def _take_from(
        self, data: FetchedData, take: Callable[[FetchedData, int], Sequence[T]], limit: int
    ) -> tuple[FetchedData, Sequence[T]] | None:
        tp = data.state.tp
        waiting = self._partitions.get(tp)
        if not waiting or waiting[0] is not data:
            return None  # dropped because of an error, or not the first of its partition
        try:
            records = take(data, limit)
        except NotPrepared:
            raise  # reading continues when the deserializer is prepared
        except BaseException:  # also what a deserializer raises
            data.state.position = data.position
            self.drop(tp)
            raise
        if records:
            return data, records
        data.state.position = data.position
        self._remove(data, waiting)
        return None

    def _remove(self, data: FetchedData, waiting: deque[FetchedData]) -> None:
        self._queue.remove(data)
        waiting.popleft()
        self._release(data)
        if not waiting:
            del self._partitions[data.state.tp]
        self._on_end()

    def _release(self, data: FetchedData) -> None:
        memory = id(data.memory)
        users = self._users.pop(memory) - 1
        if users:
            self._users[memory] = users
        else:
            self.size -= len(data.memory)
        data.forget()
