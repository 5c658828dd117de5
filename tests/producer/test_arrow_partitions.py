"""Rows of Arrow tables by partition: as Java's partitioner and the column ``partition`` say, in
order.
"""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod.producer.arrow_partitions import PartitionRecords, partition_records
from aioprod.producer.partitioner import partition_for_key
from aioprod.protocol.arrow_columns import record_table, windows
from aioprod.protocol.record_batch import HEADER_SIZE
from aioprod.protocol.record_writer import RecordBatchWriter

NOW = 1_700_000_000_000
FIRST_ROW = 7

keys = st.none() | st.binary(max_size=50) | st.sampled_from([b"a", b"b", b"c"])
# Where one key is longer, all are hashed another way.
keys_of_any_length = keys | st.binary(max_size=200)
partitions_of_topic = st.sampled_from([1, 2, 3, 6, 7, 1000, 2**31 - 1])

Row = tuple[bytes | None, int | None]


def taken(
    table: pa.Table, partitions: int, *, limit: int = 1 << 20, ignore_keys: bool = False
) -> list[PartitionRecords]:
    ((_, window),) = windows(
        record_table(table), max_rows=1 << 20, max_bytes=1 << 26, max_row_bytes=1 << 26
    )
    return list(
        partition_records(
            window,
            partitions,
            first_row=FIRST_ROW,
            limit=limit,
            timestamp=NOW,
            ignore_keys=ignore_keys,
        )
    )


def table_of(rows: list[Row], columns: set[str]) -> pa.Table:
    arrays = {"value": pa.array([b"%d" % number for number in range(len(rows))], pa.binary())}
    if "key" in columns:
        arrays["key"] = pa.array([key for key, _ in rows], pa.binary())
    if "partition" in columns:
        arrays["partition"] = pa.array([partition for _, partition in rows], pa.int32())
    return pa.table(arrays)


def expected_partition(
    row: Row, columns: set[str], partitions: int, ignore_keys: bool
) -> int | None:
    key, partition = row
    if "partition" in columns and partition is not None:
        return partition
    if "key" in columns and key is not None and not ignore_keys and partitions > 1:
        return partition_for_key(key, partitions)
    return None


def check(
    rows: list[Row],
    columns: set[str],
    found: list[PartitionRecords],
    partitions: int,
    ignore_keys: bool = False,
) -> None:
    rows_of: defaultdict[int | None, list[int]] = defaultdict(list)
    done = 0
    for batch in found:
        numbers = (
            range(done, done + batch.count)
            if batch.rows is None
            else [row - FIRST_ROW for row in batch.rows]
        )
        done += batch.count
        rows_of[batch.partition] += numbers
        writer = RecordBatchWriter(NOW)
        for number in numbers:
            writer.append(NOW, rows[number][0] if "key" in columns else None, b"%d" % number)
        assert batch.encode().body == writer.build()[HEADER_SIZE:]
    wanted: defaultdict[int | None, list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        wanted[expected_partition(row, columns, partitions, ignore_keys)].append(number)
    assert rows_of == wanted


@given(
    rows=st.lists(st.tuples(keys, st.none() | st.integers(0, 5)), min_size=1, max_size=60),
    columns=st.sets(st.sampled_from(["key", "partition"])),
    partitions=partitions_of_topic,
    limit=st.sampled_from([1, 100, 1 << 20]),
    ignore_keys=st.booleans(),
)
def test_each_row_goes_where_a_record_would(
    rows: list[Row], columns: set[str], partitions: int, limit: int, ignore_keys: bool
) -> None:
    found = taken(table_of(rows, columns), partitions, limit=limit, ignore_keys=ignore_keys)
    check(rows, columns, found, partitions, ignore_keys)


@given(
    rows=st.lists(st.tuples(keys_of_any_length, st.none()), min_size=1, max_size=30),
    partitions=partitions_of_topic,
    skipped=st.integers(0, 3),
)
def test_keys_of_any_length_are_hashed_as_in_java(
    rows: list[Row], partitions: int, skipped: int
) -> None:
    table = pa.concat_tables([table_of(rows[:skipped], {"key"}), table_of(rows, {"key"})]).slice(
        min(skipped, len(rows))
    )
    check(rows, {"key"}, taken(table, partitions), partitions)


def test_rows_of_a_partition_keep_their_order_over_several_batches() -> None:
    rows: list[Row] = [(b"key-%d" % (number % 13), None) for number in range(2000)]
    found = taken(table_of(rows, {"key"}), 6, limit=500)
    check(rows, {"key"}, found, 6)
    assert len(found) > 50
    assert all(len(batch.encode().body) <= 500 for batch in found)


def test_without_keys_and_partitions_the_rows_stay_as_they_are() -> None:
    found = taken(table_of([(None, None)] * 100, set()), 6, limit=200)
    assert [batch.partition for batch in found] == [None] * len(found)
    assert [batch.rows for batch in found] == [None] * len(found)
    assert sum(batch.count for batch in found) == 100


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 36, 95, 96, 97])
def test_all_keys_of_one_length(length: int) -> None:
    rows: list[Row] = [(bytes([number] * length), None) for number in range(256)]
    check(rows, {"key"}, taken(table_of(rows, {"key"}), 6), 6)
