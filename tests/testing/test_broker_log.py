"""The partition log finds batches by offset and by timestamp, and leaves their bytes alone."""

from __future__ import annotations

import asyncio

from aioprod.protocol.record_batch import check_crc, read_header
from aioprod.protocol.record_reader import read_records
from aioprod.testing.broker.log import (
    MemoryUse,
    PartitionLog,
    stamp_log_append_time,
    wait_for_append,
)
from tests.testing.raw_client import make_batch


def append(log: PartitionLog, *timestamps: int) -> int:
    batch = make_batch([b"x"] * len(timestamps), timestamps=timestamps)
    header = read_header(batch)
    return log.append(header, batch, header.max_timestamp)


def test_batches_get_the_next_offsets_and_keep_their_checksum() -> None:
    log = PartitionLog()
    assert [append(log, 1, 2, 3), append(log, 4), append(log, 5, 6)] == [0, 3, 4]
    assert log.end_offset == 6
    assert [record.offset for record in log.records()] == [0, 1, 2, 3, 4, 5]
    assert log.size == sum(len(batch) for batch in log.read(0, 1 << 20, at_least_one=True))


def test_reading_begins_with_the_batch_that_keeps_the_offset() -> None:
    log = PartitionLog()
    for _ in range(5):
        append(log, 1, 2)
    for offset in range(10):
        assert read_header(log.read(offset, 1, at_least_one=True)[0]).base_offset == offset // 2 * 2
    assert log.read(10, 1, at_least_one=True) == []


def test_limits_cut_between_batches() -> None:
    log = PartitionLog()
    for _ in range(3):
        append(log, 1)
    one = len(log.read(0, 1, at_least_one=True)[0])
    assert len(log.read(0, 2 * one, at_least_one=False)) == 2
    assert len(log.read(0, 2 * one + 1, at_least_one=False)) == 2
    assert log.read(0, one - 1, at_least_one=False) == []
    assert len(log.read(0, one - 1, at_least_one=True)) == 1


def test_available_bytes_stop_at_enough() -> None:
    log = PartitionLog()
    for _ in range(3):
        append(log, 1)
    assert log.available_bytes(0, 1 << 20) == log.size
    assert log.available_bytes(2, 1 << 20) == log.size // 3
    assert log.available_bytes(0, 1) == log.size // 3
    assert log.available_bytes(3, 1) == 0


def test_timestamps_are_found_though_they_are_out_of_order() -> None:
    log = PartitionLog()
    append(log, 100, 300, 200)
    append(log, 50, 60)
    append(log, 250, 400, 350)
    found = {
        timestamp: log.find_by_timestamp(timestamp)
        for timestamp in (0, 100, 101, 300, 301, 400, 401)
    }
    assert {timestamp: record and record.offset for timestamp, record in found.items()} == {
        0: 0,
        100: 0,
        101: 1,
        300: 1,
        301: 6,
        400: 6,
        401: None,
    }
    newest = log.find_newest()
    assert newest is not None and (newest.offset, newest.timestamp) == (6, 400)
    assert PartitionLog().find_newest() is None


def test_truncation_drops_whole_batches_and_what_was_counted_of_them() -> None:
    memory = MemoryUse()
    log, other = PartitionLog(memory), PartitionLog(memory)
    append(other, 1)
    for timestamps in ((1, 2), (30, 3), (4,)):
        append(log, *timestamps)
    assert len(log.truncate(2)) == 2
    assert (log.end_offset, log.record_count, log.size, memory.size) == (
        2,
        2,
        log.available_bytes(0, 1 << 20),
        log.size + other.size,
    )
    assert log.find_by_timestamp(3) is None
    assert append(log, 5) == 2
    assert [record.timestamp for record in log.records()] == [1, 2, 5]
    log.release()
    assert memory.size == other.size


def test_a_later_start_hides_records_and_drops_batches_that_end_before_it() -> None:
    log = PartitionLog()
    for timestamps in ((300, 1), (2, 3), (4,)):
        append(log, *timestamps)
    whole = log.size
    log.advance_start(1)
    assert (log.start_offset, log.record_count, log.size) == (1, 4, whole)
    log.advance_start(3)
    assert (log.record_count, [record.offset for record in log.records()]) == (2, [3, 4])
    assert read_header(log.read(3, 1, at_least_one=True)[0]).base_offset == 2
    assert log.size < whole
    found = log.find_by_timestamp(0)
    assert found is not None and (found.offset, found.timestamp) == (3, 3)
    assert log.find_by_timestamp(300) is None
    log.advance_start(2)  # never back
    assert log.start_offset == 3
    log.advance_start(5)
    assert (log.record_count, log.size, log.records(), log.find_newest()) == (0, 0, [], None)
    assert append(log, 9) == 5
    assert log.truncate(0)  # not before the start
    assert log.end_offset == 5


def test_log_append_time_replaces_all_timestamps_and_the_checksum() -> None:
    stamped = stamp_log_append_time(make_batch([b"a", b"b"], timestamps=[1, 2]), 9_999)
    check_crc(stamped, 0, read_header(stamped))
    assert [(record.timestamp, record.timestamp_type) for record in read_records(stamped)] == [
        (9_999, 1),
        (9_999, 1),
    ]


async def test_a_waiter_wakes_at_an_append_to_any_of_its_logs() -> None:
    logs = [PartitionLog(), PartitionLog()]
    waiting = asyncio.create_task(wait_for_append(logs, 60))
    await asyncio.sleep(0)
    append(logs[1], 1)
    await asyncio.wait_for(waiting, 5)
    assert not any(log._waiters for log in logs)


async def test_a_waiter_ends_at_its_time_limit_and_when_it_is_abandoned() -> None:
    log = PartitionLog()
    await asyncio.wait_for(wait_for_append([log], 0.01), 5)
    abandoned: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(wait_for_append([log], 60, abandoned))
    await asyncio.sleep(0)
    abandoned.set_result(None)
    await asyncio.wait_for(waiting, 5)
    assert not log._waiters
