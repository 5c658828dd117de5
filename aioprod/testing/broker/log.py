"""The log of one partition: batches as bytes, found by offset and by timestamp. No record is decoded on the way in or out."""

from __future__ import annotations

import asyncio
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from crc32c import crc32c

from aioprod.protocol.record_batch import BatchHeader, read_header
from aioprod.protocol.record_reader import Record, read_batch_records, read_records

_START = struct.Struct(">qii")  # base offset, batch length, leader epoch: the part of a batch that a broker writes
_CRC = struct.Struct(">I")
_CRC_AT = 17
_ATTRIBUTES = struct.Struct(">h")
_ATTRIBUTES_AT = 21  # where the bytes under the CRC begin, too
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_AT = 35
_LOG_APPEND_TIME = 0x08


class PartitionLog:
    """An append-only list of record batches.

    Attributes:
        start_offset: the first offset that can be read.
        end_offset: the offset of the next record; with one replica this is the high watermark as well.
        leader_epoch: written into each batch.
        size: bytes held.
        record_count: records of applications, which transaction markers are not.
    """

    def __init__(self) -> None:
        self.start_offset = 0
        self.end_offset = 0
        self.leader_epoch = 0
        self.size = 0
        self.record_count = 0
        self._batches: list[bytes] = []
        self._base_offsets: list[int] = []
        self._newest_timestamps: list[int] = []  # the highest timestamp up to and with each batch: sorted, so it can be bisected
        self._waiters: set[asyncio.Future[None]] = set()

    def append(self, header: BatchHeader, batch: bytes | memoryview, timestamp: int) -> int:
        """Append one batch, whose newest record has ``timestamp``, as the next offsets and return the first of them."""
        base_offset = self.end_offset
        stored = _START.pack(base_offset, header.batch_length, self.leader_epoch) + memoryview(batch)[_START.size :]
        newest = self._newest_timestamps[-1] if self._newest_timestamps else -1
        self._batches.append(stored)
        self._base_offsets.append(base_offset)
        self._newest_timestamps.append(max(newest, timestamp))
        self.end_offset += header.last_offset_delta + 1
        self.size += len(stored)
        self.record_count += 0 if header.is_control else header.record_count
        self.wake()
        return base_offset

    def wake(self) -> None:
        """Let everybody who waits for new records look again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool, end: int | None = None) -> list[bytes]:
        """Return whole batches from the one that holds ``offset`` on, at most ``max_bytes`` of them (but for the first, where asked).

        None that begins at the offset ``end`` or behind it is returned.
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
        """Count the bytes that can be read from ``offset`` to ``end``; stops counting at ``enough``."""
        total = 0
        for index in self._range(offset, end):
            total += len(self._batches[index])
            if total >= enough:
                break
        return total

    def batches(self) -> Iterator[tuple[BatchHeader, bytes]]:
        """Everything, batch by batch."""
        return ((read_header(batch), batch) for batch in self._batches)

    def records(self) -> list[Record]:
        """Decode everything."""
        return read_records(b"".join(self._batches))

    def find_by_timestamp(self, timestamp: int) -> Record | None:
        """Return the first record whose timestamp is at least ``timestamp``."""
        index = bisect_left(self._newest_timestamps, timestamp)
        if index == len(self._batches):
            return None
        batch = self._batches[index]
        records = read_batch_records(batch, 0, read_header(batch))  # a transaction marker counts, as in Kafka
        return next((record for record in records if record.timestamp >= timestamp), None)

    def find_newest(self) -> Record | None:
        """Return the first record that has the highest timestamp of the log."""
        return self.find_by_timestamp(self._newest_timestamps[-1]) if self._batches else None

    def _range(self, offset: int, end: int | None) -> range:
        """Which batches hold the offsets from ``offset`` to before ``end``."""
        if offset >= self.end_offset:
            return range(0)
        last = len(self._batches) if end is None else bisect_left(self._base_offsets, end)
        return range(bisect_right(self._base_offsets, offset) - 1, last)

    def add_waiter(self, waiter: asyncio.Future[None]) -> None:
        """Complete ``waiter`` at the next append."""
        self._waiters.add(waiter)

    def discard_waiter(self, waiter: asyncio.Future[None]) -> None:
        """Undo :meth:`add_waiter`."""
        self._waiters.discard(waiter)


def stamp_log_append_time(batch: bytes | memoryview, now_ms: int) -> bytes:
    """Return the batch with the broker's time on all its records, as topics with message.timestamp.type=LogAppendTime want it."""
    changed = bytearray(batch)
    attributes = _ATTRIBUTES.unpack_from(changed, _ATTRIBUTES_AT)[0] | _LOG_APPEND_TIME
    _ATTRIBUTES.pack_into(changed, _ATTRIBUTES_AT, attributes)
    _MAX_TIMESTAMP.pack_into(changed, _MAX_TIMESTAMP_AT, now_ms)
    _CRC.pack_into(changed, _CRC_AT, crc32c(memoryview(changed)[_ATTRIBUTES_AT:]))
    return bytes(changed)


async def wait_for_append(logs: Iterable[PartitionLog], timeout_seconds: float, abandoned: asyncio.Future[None] | None = None) -> None:
    """Return at the next append to one of the logs, at the time-out, or when ``abandoned`` is done."""
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
