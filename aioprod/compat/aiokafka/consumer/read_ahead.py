"""Records that were read and that the application has not taken yet. Synchronous, except for
waiting.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import aioprod
from aioprod import TopicPartition
from aioprod.compat.aiokafka.errors import ConsumerStoppedError
from aioprod.compat.aiokafka.structs import ConsumerRecord
from aioprod.compat.aiokafka.translation import translated

# A partition with this many records is not read until half of them are taken.
MOST_RECORDS = 1_000

Deserialize = Callable[[bytes], Any]


class ReadPartition:
    """One assigned partition.

    Attributes:
        next_offset: after the last record that the application took; None if it took none.
        paused: whether the application has paused it.
        full: whether no more records are to be read now.
        moving: how many seeks are under way: records that come now are void.
        polled_ms: when records came last, in milliseconds since 1970.
    """

    __slots__ = ("full", "moving", "next_offset", "paused", "polled_ms", "records")

    def __init__(self) -> None:
        self.records: deque[aioprod.ConsumerRecord] = deque()
        self.next_offset: int | None = None
        self.paused = False
        self.full = False
        self.moving = 0
        self.polled_ms: int | None = None


class ReadAhead:
    """The records by partition, and the error that the next call raises.

    Attributes:
        on_room: called if a partition may be read again, or an error was raised.
    """

    def __init__(
        self,
        key_deserializer: Deserialize | None,
        value_deserializer: Deserialize | None,
    ) -> None:
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self.on_room: Callable[[], None] = lambda: None
        self._partitions: dict[TopicPartition, ReadPartition] = {}
        self._held: set[TopicPartition] = set()
        self._changes = 0  # of the assignment, under way: records that come now are void
        self._waiters: set[asyncio.Future[None]] = set()
        self.error: Exception | None = None
        self._error_place: TopicPartition | None = None
        self.calls = 0
        self.last_call = 0.0
        self.closed = False

    def __getitem__(self, tp: TopicPartition) -> ReadPartition:
        found = self._partitions.get(tp)
        if found is None:
            found = self._partitions[tp] = ReadPartition()
        return found

    # -- for the application -----------------------------------------------------------------------

    @contextmanager
    def call(self) -> Iterator[None]:
        """Note a call of the application for records (``max_poll_interval_ms``)."""
        self.calls += 1
        if self.calls == 1:
            self.on_room()
        try:
            yield
        finally:
            self.calls -= 1
            self.last_call = asyncio.get_running_loop().time()

    def take(
        self, chosen: Collection[TopicPartition], most: int | None
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Return up to ``most`` records of ``chosen``, or of all partitions.

        Raises:
            Exception: the pending error, if there is no record; or of a deserializer, if the first
                record has it.
        """
        found: dict[TopicPartition, list[ConsumerRecord[Any, Any]]] = {}
        for tp, partition in self._partitions.items():
            if (
                self._changes
                or not partition.records
                or partition.paused
                or tp in self._held
                or (chosen and tp not in chosen)
            ):
                continue
            records = self._converted(partition, most, bool(found))
            if records:
                found[tp] = records
                most = None if most is None else most - len(records)
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
        try:
            while waiting and (most is None or len(converted) < most):
                converted.append(self._convert(waiting[0]))
                partition.next_offset = waiting.popleft().offset + 1
        except Exception:
            if not converted and not any_found:
                raise
            # The next call raises it.
        if partition.full and len(waiting) < MOST_RECORDS // 2:
            partition.full = False
            self.on_room()
        return converted

    def _convert(self, record: aioprod.ConsumerRecord) -> ConsumerRecord[Any, Any]:
        key, value = record.key, record.value
        sizes = -1 if key is None else len(key), -1 if value is None else len(value)
        if self._key_deserializer is not None:
            key = self._key_deserializer(key)
        if self._value_deserializer is not None:
            value = self._value_deserializer(value)
        topic, partition, offset, timestamp, timestamp_type = record[:5]
        headers: Any = record.headers
        return ConsumerRecord(
            topic, partition, offset, timestamp, timestamp_type, key, value, None, *sizes, headers
        )

    # -- for the driver ----------------------------------------------------------------------------

    def add(self, records: Iterable[aioprod.ConsumerRecord]) -> None:
        """Keep records, unless the application has moved elsewhere meanwhile."""
        if self._changes:
            return
        now_ms = int(time.time() * 1000)
        for record in records:
            partition = self[TopicPartition(record.topic, record.partition)]
            if not partition.moving:
                partition.records.append(record)
                partition.polled_ms = now_ms
                partition.full = len(partition.records) >= MOST_RECORDS
        self.notify()

    def fail(self, error: Exception) -> None:
        """Raise an error in the next call that has no record."""
        found = translated(error)
        assert isinstance(found, Exception)
        self.error = found
        self._error_place = getattr(error, "topic_partition", None)
        self.notify()

    def notify(self) -> None:
        """Wake all waiting calls."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def close(self) -> None:
        """End all waiting calls."""
        self.closed = True
        self.notify()

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no more records of these: they are about to be revoked."""
        self._held.update(partitions)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that were revoked."""
        for tp in partitions:
            self._partitions.pop(tp, None)
            self._held.discard(tp)

    def begin_move(self, tp: TopicPartition, offset: int | None) -> None:
        """Forget the records of a partition whose position changes; None if it is not known yet."""
        partition = self[tp]
        partition.records.clear()
        partition.next_offset = offset
        partition.full = False
        partition.moving += 1
        self._forgive(tp)

    def end_move(self, tp: TopicPartition) -> None:
        """Keep records again."""
        partition = self[tp]
        partition.moving = max(partition.moving - 1, 0)
        self._forgive(tp)

    def _forgive(self, tp: TopicPartition) -> None:
        """Forget the error of a partition that has another position now."""
        if self._error_place == tp:
            self.error = self._error_place = None

    def begin_change(self) -> None:
        """Return no records until the assignment has changed. Positions are kept: they may have to
        be committed.
        """
        self.error = None
        self._changes += 1
        for partition in self._partitions.values():
            partition.paused = False

    def forget(self) -> None:
        """Forget everything but what was paused since the change began."""
        paused = [tp for tp, partition in self._partitions.items() if partition.paused]
        self._partitions.clear()
        self._held.clear()
        for tp in paused:
            self[tp].paused = True

    def end_change(self) -> None:
        """Return records again."""
        self._changes -= 1
