"""Records that were read, and that the application has not taken yet. Synchronous, except for
waiting.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

import aioprod
from aioprod import TopicPartition
from aioprod.compat.aiokafka.errors import ConsumerStoppedError
from aioprod.compat.aiokafka.structs import ConsumerRecord
from aioprod.compat.aiokafka.translation import translated
from aioprod.metrics import TopicRecreated

# A partition with this many records, or ``most_bytes``, is paused until half of them are taken.
MOST_RECORDS = 2_000
_PLACE = itemgetter(0, 1)  # topic and partition of a record
_VALUE = itemgetter(6)

Deserialize = Callable[[bytes], Any]


class ReadPartition:
    """One assigned partition.

    Attributes:
        next_offset: the one after the last record that the application took; None if it took none.
        turn: how many of its records are returned before it is another partition's turn.
        paused: whether the application has paused it.
        most: with this many records it is full; estimated from their size.
        full: whether reading is paused until the application has taken half of the records.
        moving: the number of seeks in progress; records that arrive meanwhile are discarded.
        polled_ms: when records last arrived, in milliseconds since 1970.
    """

    __slots__ = (
        "full",
        "most",
        "moving",
        "next_offset",
        "paused",
        "polled_ms",
        "records",
        "tp",
        "turn",
    )

    def __init__(self, tp: TopicPartition) -> None:
        self.tp: TopicPartition = tp
        self.records: deque[aioprod.ConsumerRecord] = deque()
        self.next_offset: int | None = None
        self.turn: int = 0
        self.paused: bool = False
        self.most: int = MOST_RECORDS
        self.full: bool = False
        self.moving: int = 0
        self.polled_ms: int | None = None


class ReadAhead:
    """The records by partition, and the error that the next call raises.

    Args:
        most_bytes: the maximum size of the values to buffer for one partition, in bytes.

    Attributes:
        on_room: called when a partition may be read again, and when an error was raised.
        now: the event loop's clock.
        last_call: when the last call for records ended.
        calls: how many calls for records are waiting.
    """

    def __init__(
        self,
        key_deserializer: Deserialize | None,
        value_deserializer: Deserialize | None,
        most_bytes: int,
    ) -> None:
        self._deserializes = not (key_deserializer is value_deserializer is None)
        self._most_bytes = most_bytes
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self.on_room: Callable[[], None] = lambda: None
        self._partitions: dict[TopicPartition, ReadPartition] = {}
        # The partition whose turn it is, if its records may be returned.
        self._current: ReadPartition | None = None
        self._revoking: set[TopicPartition] = set()
        # Changes of the assignment in progress: records that arrive meanwhile are discarded.
        self._changes = 0
        self._waiters: set[asyncio.Future[None]] = set()
        self.error: Exception | None = None
        self._error_place: TopicPartition | None = None
        self.calls: int = 0
        self.last_call: float = 0.0
        self.now: Callable[[], float] = float
        self.closed: bool = False

    def __getitem__(self, tp: TopicPartition) -> ReadPartition:
        found = self._partitions.get(tp)
        if found is None:
            found = self._partitions[tp] = ReadPartition(tp)
        return found

    # -- for the application -----------------------------------------------------------------------

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count a call of the application for records as running (``max_poll_interval_ms``)."""
        self.calls += 1
        if self.calls == 1:
            self.on_room()
        try:
            yield
        finally:
            self.calls -= 1
            self.last_call = self.now()

    def take_one(self) -> ConsumerRecord[Any, Any] | None:
        """Return the next record of the partition whose turn it is. If there is none, return None;
        :meth:`take` then looks at all partitions.

        Raises:
            Exception: raised by a deserializer.
        """
        current = self._current
        if current is None or current.paused or not current.records:
            return None
        record = self._convert(current.records[0])
        current.records.popleft()
        self._took(current, 1, record.offset)
        self.last_call = self.now()
        return record

    def take(
        self, chosen: Collection[TopicPartition], most: int | None
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Return up to ``most`` records of ``chosen``, or of all partitions. Partitions take turns;
        a turn lasts for the records that are buffered when it begins.

        Raises:
            Exception: the pending error if there is no record, or that of a deserializer if it is
                raised for the first record.
        """
        found: dict[TopicPartition, list[ConsumerRecord[Any, Any]]] = {}
        for tp, partition in list(self._partitions.items()):
            if (
                self._changes
                or not partition.records
                or partition.paused
                or tp in self._revoking
                or (chosen and tp not in chosen)
            ):
                continue
            partition.turn = partition.turn or len(partition.records)
            records = self._converted(partition, most, bool(found))
            if records:
                found[tp] = records
                most = None if most is None else most - len(records)
            if partition.turn and not chosen:
                self._current = partition
            if most == 0:
                break
        if not found and self.error is not None:
            error, self.error = self.error, None
            self.on_room()
            raise error
        return found

    async def wait(self, timeout_s: float | None) -> bool:
        """Wait for records or an error; return False after the timeout.

        Raises:
            ConsumerStoppedError: if the consumer is stopped.
        """
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(waiter)
        if self.closed:
            raise ConsumerStoppedError
        return True

    def _converted(
        self, partition: ReadPartition, most: int | None, any_found: bool
    ) -> list[ConsumerRecord[Any, Any]]:
        converted: list[ConsumerRecord[Any, Any]] = []
        waiting = partition.records
        if self._deserializes:
            try:
                for record in islice(waiting, most):
                    converted.append(self._convert(record))
            except Exception:
                if not converted and not any_found:
                    raise
                # The next call starts with this record, and raises the error.
        else:
            converted = _plain(waiting if most is None else islice(waiting, most))
        if len(converted) == len(waiting):
            waiting.clear()
        for _ in range(min(len(converted), len(waiting))):
            waiting.popleft()
        if converted:
            self._took(partition, len(converted), converted[-1].offset)
        return converted

    def _took(self, partition: ReadPartition, count: int, last: int) -> None:
        partition.next_offset = last + 1
        partition.turn -= count
        if partition.turn <= 0:  # it is another partition's turn
            partition.turn = 0
            self._current = None
            self._partitions[partition.tp] = self._partitions.pop(partition.tp)
        if partition.full and len(partition.records) <= partition.most // 2:
            partition.full = False
            self.on_room()

    def _convert(self, record: aioprod.ConsumerRecord) -> ConsumerRecord[Any, Any]:
        topic, partition, offset, at, kind, key, value, headers, _ = record
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        if self._key_deserializer is not None:
            key = self._key_deserializer(key)
        if self._value_deserializer is not None:
            value = self._value_deserializer(value)
        return ConsumerRecord(
            topic, partition, offset, at, kind, key, value, None, key_size, value_size, headers
        )

    # -- for the driver ----------------------------------------------------------------------------

    def add(self, records: Iterable[aioprod.ConsumerRecord]) -> None:
        """Buffer records, except of partitions whose position changes meanwhile."""
        if self._changes:
            return
        now_ms = int(time.time() * 1000)
        for place, some in groupby(records, _PLACE):
            partition = self[TopicPartition(*place)]
            if not partition.moving:
                portion = list(some)
                size = sum(map(len, filter(None, map(_VALUE, portion))))
                enough = self._most_bytes * len(portion) // max(size, 1)
                partition.most = max(min(enough, MOST_RECORDS), 1)
                partition.records.extend(portion)
                partition.polled_ms = now_ms
                partition.full = len(partition.records) >= partition.most
        self.notify()

    def fail(self, error: Exception) -> None:
        """Raise an error in the next call for which no record is buffered."""
        found = translated(error)
        assert isinstance(found, Exception)
        self.error = found
        self._error_place = getattr(error, "topic_partition", None)
        self.notify()

    def fail_with(self, call: asyncio.Future[None]) -> None:
        """Raise the error of a call that runs in the background in the next call for records."""
        error = None if call.cancelled() else call.exception()
        if isinstance(error, Exception) and not self.closed:
            self.fail(error)

    def notify(self) -> None:
        """Wake all waiting calls."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def close(self) -> None:
        """End all waiting calls."""
        self.closed = True
        self.end_turn()
        self.notify()

    def end_turn(self) -> None:
        """End the turn of the current partition, so that the next call has to use :meth:`take`."""
        self._current = None

    def stop_returning(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no more records of these partitions: they are about to be revoked."""
        self.end_turn()
        self._revoking.update(partitions)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that were revoked."""
        self.end_turn()
        for tp in partitions:
            self._partitions.pop(tp, None)
            self._revoking.discard(tp)

    def restart(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the records and the positions of partitions whose topic was deleted and created
        again.
        """
        self.end_turn()
        for tp in partitions:
            partition = self[tp]
            partition.records.clear()
            partition.next_offset = None
            partition.turn = 0
            partition.full = False
        self.on_room()

    def begin_move(self, tp: TopicPartition, offset: int | None) -> None:
        """Forget the records of a partition whose position changes; None if it is not known yet."""
        partition = self[tp]
        partition.records.clear()
        partition.next_offset = offset
        partition.full = False
        partition.moving += 1
        self._clear_error(tp)

    def end_move(self, tp: TopicPartition) -> None:
        """Buffer records again after a change of position."""
        partition = self[tp]
        partition.moving = max(partition.moving - 1, 0)
        self._clear_error(tp)

    def _clear_error(self, tp: TopicPartition) -> None:
        """Forget the error of a partition whose position has changed."""
        if self._error_place == tp:
            self.error = self._error_place = None

    def begin_change(self) -> None:
        """Return no records until the assignment has changed. Keep the positions: they may have to
        be committed.
        """
        self.error = None
        self.end_turn()
        self._changes += 1
        for partition in self._partitions.values():
            partition.paused = False

    def forget(self) -> None:
        """Forget everything, except which partitions were paused since the change began."""
        paused = [tp for tp, partition in self._partitions.items() if partition.paused]
        self._partitions.clear()
        self._revoking.clear()
        for tp in paused:
            self[tp].paused = True

    def end_change(self) -> None:
        """Return records again."""
        self._changes -= 1


class RecreatedTopics(aioprod.ConsumerObserver):
    """Reacts to topics that were deleted and created again."""

    def __init__(self, ahead: ReadAhead) -> None:
        self._ahead = ahead

    def on_topic_recreated(self, event: TopicRecreated) -> None:
        """Forget what was read from the deleted topic."""
        self._ahead.restart(event.partitions)


def _plain(records: Iterable[aioprod.ConsumerRecord]) -> list[ConsumerRecord[Any, Any]]:
    """Return records without deserializers; calling a function for each takes a third longer."""
    return [
        ConsumerRecord(
            topic,
            partition,
            offset,
            timestamp,
            timestamp_type,
            key,
            value,
            None,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
            headers,
        )
        for topic, partition, offset, timestamp, timestamp_type, key, value, headers, _ in records
    ]
