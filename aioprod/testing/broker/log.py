"""The log of one partition. It stores batches as bytes, and finds them by offset and by timestamp.
Records are not decoded when they are written or read.
"""

from __future__ import annotations

import asyncio
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from aioprod.protocol.checksum import crc32c
from aioprod.protocol.record_batch import BatchHeader, read_header
from aioprod.protocol.record_reader import Record, read_batch_records, read_records
from aioprod.testing.broker.leader_epochs import LeaderEpochs

# The part of a batch that a broker writes: base offset, length, leader epoch.
_START = struct.Struct(">qii")
_CRC = struct.Struct(">I")
_CRC_AT = 17
_ATTRIBUTES = struct.Struct(">h")
_ATTRIBUTES_AT = 21  # the CRC covers the bytes from here on
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_AT = 35
_LOG_APPEND_TIME = 0x08


class MemoryUse:
    """The total size of the record batches in several logs, in bytes."""

    def __init__(self) -> None:
        self.size = 0


class PartitionLog:
    """The record batches of a partition.

    Attributes:
        start_offset: the first offset that can be read.
        end_offset: the offset of the next record. The partition limits what consumers may read.
        leader_epoch: written into each batch.
        epochs: the start of each leader epoch.
        size: the total size of all batches in bytes, which ``memory`` counts too.
        record_count: the number of records, without transaction markers.
    """

    def __init__(self, memory: MemoryUse | None = None) -> None:
        self.start_offset: int = 0
        self.end_offset: int = 0
        self.leader_epoch = 0
        self.epochs: LeaderEpochs = LeaderEpochs()
        self.size: int = 0
        self.record_count: int = 0
        self._memory = memory or MemoryUse()
        self._batches: list[bytes] = []
        self._base_offsets: list[int] = []
        self._newest_timestamps: list[
            int
        ] = []  # the highest timestamp up to and including each batch: sorted, for bisecting
        self._waiters: set[asyncio.Future[None]] = set()

    def append(self, header: BatchHeader, batch: bytes | memoryview, timestamp: int) -> int:
        """Append a batch whose latest record has ``timestamp``, and return its first offset."""
        base_offset = self.end_offset
        stored = (
            _START.pack(base_offset, header.batch_length, self.leader_epoch)
            + memoryview(batch)[_START.size :]
        )
        newest = self._newest_timestamps[-1] if self._newest_timestamps else -1
        self._batches.append(stored)
        self._base_offsets.append(base_offset)
        self._newest_timestamps.append(max(newest, timestamp))
        self.end_offset += header.last_offset_delta + 1
        self._grow(len(stored))
        self.record_count += 0 if header.is_control else header.record_count
        self.wake()
        return base_offset

    def truncate(self, end_offset: int) -> list[bytes]:
        """Remove and return the batches from ``end_offset`` on, which must be a batch boundary."""
        end_offset = max(end_offset, self.start_offset)
        kept = bisect_left(self._base_offsets, end_offset)
        dropped = self._batches[kept:]
        self.record_count -= self._count_records(end_offset, self.end_offset)
        del self._batches[kept:], self._base_offsets[kept:], self._newest_timestamps[kept:]
        self._grow(-sum(map(len, dropped)))
        self.end_offset = end_offset
        self.epochs.truncate(end_offset)
        return dropped

    def advance_start(self, offset: int) -> None:
        """Set the start to ``offset`` and drop the batches that end before it. Do nothing if the
        log starts later.
        """
        if offset <= self.start_offset:
            return
        self.record_count -= self._count_records(self.start_offset, offset)
        gone = len(self._batches) if offset >= self.end_offset else self._range(offset, None).start
        self._grow(-sum(map(len, self._batches[:gone])))
        del self._batches[:gone], self._base_offsets[:gone]
        self._note_timestamps()
        self.start_offset = offset
        self.epochs.advance_start(offset)
        self.wake()

    def rewrite(self, change: Callable[[BatchHeader, bytes], bytes | None]) -> None:
        """Replace each batch with the result of ``change``, or remove it if that is None. The log's
        start and end offsets stay.
        """
        changed = [(header, change(header, batch)) for header, batch in self.batches()]
        kept = [(header.base_offset, batch) for header, batch in changed if batch is not None]
        self._batches = [batch for _, batch in kept]
        self._base_offsets = [offset for offset, _ in kept]
        self._note_timestamps()
        self._grow(sum(map(len, self._batches)) - self.size)
        self.record_count = self._count_records(self.start_offset, self.end_offset)

    def _note_timestamps(self) -> None:
        self._newest_timestamps = list(
            accumulate(
                (
                    _MAX_TIMESTAMP.unpack_from(batch, _MAX_TIMESTAMP_AT)[0]
                    for batch in self._batches
                ),
                max,
            )
        )

    def _grow(self, size: int) -> None:
        self.size += size
        self._memory.size += size

    def _count_records(self, start: int, end: int) -> int:
        """Count the records from ``start`` to before ``end``, without transaction markers."""
        count = 0
        for index in self._range(start, end):
            batch = self._batches[index]
            header = read_header(batch)
            if header.is_control:
                continue
            if start <= header.base_offset and header.last_offset < end:
                count += header.record_count
            else:
                records = read_batch_records(batch, 0, header)
                count += sum(start <= record.offset < end for record in records)
        return count

    def release(self) -> None:
        """Free the memory of a deleted partition, and wake the waiting tasks."""
        self._memory.size -= self.size
        self.wake()

    def wake(self) -> None:
        """Wake the tasks that wait for new records."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def read(
        self, offset: int, max_bytes: int, *, at_least_one: bool, end: int | None = None
    ) -> list[bytes]:
        """Return whole batches, starting with the one that contains ``offset``, without those that
        start at ``end`` or later.

        At most ``max_bytes`` are returned; if requested, the first batch may be larger.
        """
        found: list[bytes] = []
        for index in self._range(offset, end):
            batch = self._batches[index]
            if len(batch) > max_bytes and (found or not at_least_one):
                break
            found.append(batch)
            max_bytes -= len(batch)
        return found

    def available_bytes(self, offset: int, enough: int, end: int | None = None) -> int:
        """Count the bytes that can be read from ``offset`` to ``end``, but stop at ``enough``."""
        total = 0
        for index in self._range(offset, end):
            total += len(self._batches[index])
            if total >= enough:
                break
        return total

    def batches(self) -> Iterator[tuple[BatchHeader, bytes]]:
        """Iterate over all batches."""
        return ((read_header(batch), batch) for batch in self._batches)

    def records(self) -> list[Record]:
        """Decode all records."""
        return self.visible(read_records(b"".join(self._batches)))

    def visible(self, records: list[Record]) -> list[Record]:
        """Remove the records before the start offset, which may be in the first batch."""
        return (
            records
            if not records or records[0].offset >= self.start_offset
            else [each for each in records if each.offset >= self.start_offset]
        )

    def find_by_timestamp(self, timestamp: int) -> Record | None:
        """Return the first record whose timestamp is at least ``timestamp``."""
        for index in range(bisect_left(self._newest_timestamps, timestamp), len(self._batches)):
            batch = self._batches[index]
            # As in Kafka, transaction markers count.
            for record in read_batch_records(batch, 0, read_header(batch)):
                if record.timestamp >= timestamp and record.offset >= self.start_offset:
                    return record
        return None

    def find(self, offset: int) -> Record | None:
        """Return a record, or None if it does not exist or was removed."""
        for batch in self.read(offset, 1, at_least_one=True):
            for record in read_batch_records(batch, 0, read_header(batch)):
                if record.offset == offset >= self.start_offset:
                    return record
        return None

    def find_newest(self) -> Record | None:
        """Return the first record that has the highest timestamp of the log."""
        return self.find_by_timestamp(self._newest_timestamps[-1]) if self._batches else None

    def _range(self, offset: int, end: int | None) -> range:
        """Return the indexes of the batches from ``offset`` to before ``end``."""
        if offset >= self.end_offset:
            return range(0)
        last = len(self._batches) if end is None else bisect_left(self._base_offsets, end)
        first = max(bisect_right(self._base_offsets, offset) - 1, 0)
        if first < last and read_header(self._batches[first]).last_offset < offset:
            first += 1  # compaction has removed the batch with the offset
        return range(first, last)

    def add_waiter(self, waiter: asyncio.Future[None]) -> None:
        """Complete ``waiter`` at the next append."""
        self._waiters.add(waiter)

    def discard_waiter(self, waiter: asyncio.Future[None]) -> None:
        """Undo :meth:`add_waiter`."""
        self._waiters.discard(waiter)


def stamp_log_append_time(batch: bytes | memoryview, now_ms: int) -> bytes:
    """Return the batch with the broker's time on all records (topic setting
    message.timestamp.type=LogAppendTime).
    """
    changed = bytearray(batch)
    attributes = _ATTRIBUTES.unpack_from(changed, _ATTRIBUTES_AT)[0] | _LOG_APPEND_TIME
    _ATTRIBUTES.pack_into(changed, _ATTRIBUTES_AT, attributes)
    _MAX_TIMESTAMP.pack_into(changed, _MAX_TIMESTAMP_AT, now_ms)
    _CRC.pack_into(changed, _CRC_AT, crc32c(memoryview(changed)[_ATTRIBUTES_AT:]))
    return bytes(changed)


async def wait_for_append(
    logs: Iterable[PartitionLog],
    timeout_seconds: float,
    abandoned: asyncio.Future[None] | None = None,
) -> None:
    """Wait for the next append to one of the logs, until the timeout, or until ``abandoned`` is
    done.
    """
    logs = list(logs)
    arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    for log in logs:
        log.add_waiter(arrival)
    try:
        awaited = [arrival] if abandoned is None else [arrival, abandoned]
        await asyncio.wait(awaited, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for log in logs:
            log.discard_waiter(arrival)
