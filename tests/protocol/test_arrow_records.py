"""Arrow rows are encoded to the same bytes as the same records one by one."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod.errors import InvalidPartitionError, SerializationError
from aioprod.protocol.arrow_columns import largest_partition, record_table, windows
from aioprod.protocol.arrow_records import EncodedRecords, encode
from aioprod.protocol.record_batch import HEADER_SIZE, build_batch
from aioprod.protocol.record_reader import read_records
from aioprod.protocol.record_writer import RecordBatchWriter

NOW = 1_700_000_000_000
UNLIMITED = 1 << 30
BINARY = pa.binary()
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

Headers = list[tuple[str, bytes | None]] | None
Row = tuple[bytes | None, bytes | None, Headers, int | None]

# Around the lengths at which the varints of the value and of the record get longer.
lengths = st.sampled_from([0, 1, *range(50, 68), *range(8170, 8196), 16_383, 16_384]) | st.integers(
    0, 300
)
data = st.none() | st.builds(
    lambda length, byte: bytes([byte]) * length, lengths, st.integers(0, 255)
)
headers = st.none() | st.lists(
    st.tuples(st.text(max_size=70), st.none() | st.binary(max_size=70)), max_size=3
)
distances = st.sampled_from([0, 1, 63, 64, 65, 8191, 8192, 8193, 1 << 20, 1 << 40]) | st.integers(
    0, 100_000
)
timestamps = (
    st.none()
    | st.builds(lambda distance, sign: NOW + sign * distance, distances, st.sampled_from([-1, 1]))
    | st.integers(0, 2**62 - 1)
)
rows_of_all_kinds = st.lists(st.tuples(data, data, headers, timestamps), min_size=1, max_size=40)
columns_of_use = st.sets(st.sampled_from(["key", "headers", "timestamp"]))
binary_types = st.sampled_from(
    [pa.binary(), pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int32(), pa.binary())]
)


def bodies_by_writer(rows: Sequence[Row], now: int = NOW) -> tuple[bytes, int, int]:
    first = rows[0][3]
    writer = RecordBatchWriter(now if first is None else first)
    for key, value, given_headers, timestamp in rows:
        writer.append(now if timestamp is None else timestamp, key, value, given_headers or [])
    return writer.build()[HEADER_SIZE:], writer.base_timestamp, writer.max_timestamp


def check_against_writer(
    rows: Sequence[Row], batches: Sequence[EncodedRecords], limit: int
) -> None:
    start = 0
    for batch in batches:
        taken = rows[start : start + batch.count]
        start += batch.count
        assert (batch.body, batch.base_timestamp, batch.max_timestamp) == bodies_by_writer(taken)
        times = [NOW if row[3] is None else row[3] for row in taken]
        assert list(batch.timestamps or [batch.base_timestamp] * batch.count) == times
        assert len(batch.body) <= limit or batch.count == 1
    assert start == len(rows)


def headers_of(rows: Sequence[Row]) -> list[Any]:
    return [
        None if row[2] is None else [{"key": name, "value": value} for name, value in row[2]]
        for row in rows
    ]


def table_of(
    rows: Sequence[Row],
    columns: set[str],
    types: tuple[pa.DataType, pa.DataType] = (pa.binary(), pa.binary()),
) -> pa.Table:
    arrays = {"value": pa.array([row[1] for row in rows], types[1])}
    if "key" in columns:
        arrays["key"] = pa.array([row[0] for row in rows], types[0])
    if "headers" in columns:
        arrays["headers"] = pa.array(headers_of(rows), HEADERS)
    if "timestamp" in columns:
        arrays["timestamp"] = pa.array([row[3] for row in rows], pa.int64())
    return pa.table(arrays)


def encoded(
    table: pa.Table, limit: int = UNLIMITED, max_rows: int = 1 << 20, max_bytes: int = 1 << 26
) -> list[EncodedRecords]:
    batches: list[EncodedRecords] = []
    for first_row, window in windows(
        record_table(table), max_rows=max_rows, max_bytes=max_bytes, max_row_bytes=UNLIMITED
    ):
        assert window is not None
        assert first_row == sum(batch.count for batch in batches)
        batches += encode(window, [window.num_rows], limit=limit, timestamp=NOW)
    return batches


def only_those(columns: set[str], row: Row) -> Row:
    return (
        row[0] if "key" in columns else None,
        row[1],
        row[2] if "headers" in columns else None,
        row[3] if "timestamp" in columns else None,
    )


@given(
    rows=rows_of_all_kinds,
    columns=columns_of_use,
    types=st.tuples(binary_types, binary_types),
    limit=st.sampled_from([1, 100, 1000, 20_000, UNLIMITED]),
    max_rows=st.integers(1, 40),
    max_bytes=st.sampled_from([1, 10_000, 1 << 26]),
    cut=st.integers(0, 40),
    skipped=st.integers(0, 5),
)
def test_the_bytes_are_those_of_the_writer(
    rows: list[Row],
    columns: set[str],
    types: tuple[pa.DataType, pa.DataType],
    limit: int,
    max_rows: int,
    max_bytes: int,
    cut: int,
    skipped: int,
) -> None:
    whole = table_of(rows, columns, types)
    # In two chunks, with rows before and after that are sliced off.
    table = pa.concat_tables([whole.slice(0, cut), whole.slice(cut), whole]).slice(
        skipped, len(rows)
    )
    expected = [only_those(columns, row) for row in (rows * 2)[skipped : skipped + len(rows)]]
    check_against_writer(expected, encoded(table, limit, max_rows, max_bytes), limit)


@given(rows=rows_of_all_kinds, ends=st.sets(st.integers(1, 39)))
def test_no_batch_goes_past_an_end(rows: list[Row], ends: set[int]) -> None:
    ((_, window),) = windows(
        record_table(table_of(rows, {"key"})),
        max_rows=1 << 20,
        max_bytes=1 << 26,
        max_row_bytes=UNLIMITED,
    )
    wanted = [*sorted(end for end in ends if end < len(rows)), len(rows)]
    batches = list(encode(window, wanted, limit=UNLIMITED, timestamp=NOW))
    check_against_writer([only_those({"key"}, row) for row in rows], batches, UNLIMITED)
    assert [batch.count for batch in batches] == [
        end - start for start, end in zip([0, *wanted], wanted, strict=False)
    ]


@pytest.mark.parametrize("value", [None, b"", b"x" * 40, b"x" * 49, b"x" * 50, b"x" * 51], ids=repr)
@pytest.mark.parametrize("key", [None, b"k"])
def test_offset_deltas_of_one_two_and_three_bytes(key: bytes | None, value: bytes | None) -> None:
    rows: list[Row] = [(key, value, None, None)] * 17_000
    batches = encoded(table_of(rows, {"key"} if key else set()))
    assert len(batches) == 1
    check_against_writer(rows, batches, UNLIMITED)


@pytest.mark.parametrize("length", [1 << 20, (1 << 20) + 1, 1 << 21])
def test_lengths_of_four_bytes(length: int) -> None:
    rows: list[Row] = [
        (b"k" * length, b"v", None, None),
        (b"k", b"v" * length, None, None),
        (None, None, [("h" * length, b"w" * length)], None),
    ]
    check_against_writer(rows, encoded(table_of(rows, {"key", "headers"})), UNLIMITED)


@pytest.mark.parametrize("size", [10, 100, 1000])
@pytest.mark.parametrize("limit", [16_384, 65_536 - HEADER_SIZE])
def test_batches_are_full(size: int, limit: int) -> None:
    rows: list[Row] = [(None, bytes(size), None, None)] * 20_000
    batches = encoded(table_of(rows, set()), limit)
    check_against_writer(rows, batches, limit)
    assert all(limit - len(batch.body) < max(size + 20, limit // 50) for batch in batches[:-1])


def test_a_record_over_the_limit_travels_alone() -> None:
    rows: list[Row] = [(None, bytes(size), None, None) for size in (10, 10, 500, 10, 10)]
    batches = encoded(table_of(rows, set()), limit=100)
    assert [batch.count for batch in batches] == [2, 1, 2]


def test_a_window_is_larger_than_requested_by_at_most_one_row() -> None:
    sizes = [10] * 100 + [100_000] + [10] * 100 + [2000] * 50
    table = record_table(pa.table({"value": [bytes(size) for size in sizes]}))
    found = [
        window
        for _, window in windows(table, max_rows=90, max_bytes=5000, max_row_bytes=UNLIMITED)
        if window
    ]
    assert sum(window.num_rows for window in found) == len(sizes)
    assert max(window.num_rows for window in found) == 90
    assert all(window.nbytes <= 5000 or window.num_rows == 1 for window in found)


def test_nothing_comes_in_place_of_a_row_that_is_too_large() -> None:
    table = record_table(pa.table({"value": [bytes(size) for size in (10, 20, 5000, 10, 5000)]}))
    found = list(windows(table, max_rows=90, max_bytes=1000, max_row_bytes=4000))
    assert [first_row for first_row, window in found if window is None] == [2, 4]
    assert [
        row
        for first_row, window in found
        if window
        for row in range(first_row, first_row + window.num_rows)
    ] == [0, 1, 3]


def test_no_rows_make_no_batches() -> None:
    assert (
        encoded(pa.table({"value": pa.array([], pa.binary()), "headers": pa.array([], HEADERS)}))
        == []
    )


# -- types -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.string(),
        pa.large_binary(),
        pa.large_string(),
        pa.binary_view(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.large_binary()),
    ],
    ids=str,
)
def test_values_and_keys_of_any_type_of_text_or_bytes(kind: pa.DataType) -> None:
    rows: list[Row] = [
        (b"k1", b"v1", None, None),
        (None, None, None, None),
        (b"", b"", None, None),
        ("ä€".encode(), b"x" * 99, None, None),
    ]
    texts = [
        [None if field is None else field.decode() for field in (row[0], row[1])] for row in rows
    ]
    columns = {"key": [text[0] for text in texts], "value": [text[1] for text in texts]}
    if pa.types.is_dictionary(kind):
        table = pa.table(
            {
                name: pa.array(column, kind.value_type).dictionary_encode().cast(kind)
                for name, column in columns.items()
            }
        )
    else:
        table = pa.table(
            {name: pa.array(column, pa.string()).cast(kind) for name, column in columns.items()}
        )
    check_against_writer(rows, encoded(table), UNLIMITED)
    check_against_writer(rows[1:], encoded(table.slice(1)), UNLIMITED)


def test_bytes_of_a_fixed_size() -> None:
    rows: list[Row] = [
        (b"0123", b"4567", None, None),
        (None, b"89ab", None, None),
        (b"cdef", None, None, None),
    ]
    check_against_writer(
        rows, encoded(table_of(rows, {"key"}, (pa.binary(4), pa.binary(4)))), UNLIMITED
    )


def test_a_record_batch_is_taken_as_well() -> None:
    rows: list[Row] = [(None, b"a", None, None), (None, b"b", None, None)]
    check_against_writer(rows, encoded(table_of(rows, set()).to_batches()[0]), UNLIMITED)


def test_columns_without_a_type_keep_only_nulls() -> None:
    nulls = pa.nulls(3)
    table = record_table(
        pa.table(dict.fromkeys(["key", "value", "headers", "timestamp", "partition"], nulls))
    )
    assert table.schema.names == ["value"]
    check_against_writer([(None, None, None, None)] * 3, encoded(table), UNLIMITED)


@pytest.mark.parametrize(
    "kind",
    [
        HEADERS,
        pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
        pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())])),
        pa.list_(pa.struct([("value", pa.binary()), ("key", pa.string())])),
        pa.map_(pa.string(), pa.binary()),
        pa.map_(pa.large_string(), pa.string()),
    ],
    ids=str,
)
def test_headers_of_all_forms(kind: pa.DataType) -> None:
    rows: list[Row] = [
        (None, b"1", [("a", b"1"), ("a", b"")], None),
        (None, b"2", None, None),
        (None, b"3", [], None),
        (None, b"4", [("ä", None)], None),
        (None, b"5", [(f"h{number}", b"x" * number) for number in range(70)], None),
    ]
    if pa.types.is_map(kind):
        column = pa.array([row[2] for row in rows], pa.map_(pa.string(), pa.binary())).cast(kind)
    else:
        name = ({field.name for field in kind.value_type} - {"value"}).pop()
        column = pa.array(
            [
                None
                if row[2] is None
                else [{name: header[0], "value": header[1]} for header in row[2]]
                for row in rows
            ],
            kind,
        )
    table = pa.table({"value": [row[1] for row in rows], "headers": column})
    check_against_writer(rows, encoded(table), UNLIMITED)
    check_against_writer(rows[1:4], encoded(table.slice(1, 3)), UNLIMITED)


def test_values_under_a_null_list_are_not_headers() -> None:
    entries = pa.array([{"key": name, "value": b""} for name in "abcd"], HEADERS.value_type)
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 2, 4], pa.int32()), entries, mask=pa.array([True, False])
    )
    rows: list[Row] = [(None, b"1", None, None), (None, b"2", [("c", b""), ("d", b"")], None)]
    check_against_writer(
        rows, encoded(pa.table({"value": [b"1", b"2"], "headers": hidden})), UNLIMITED
    )


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_timestamps_of_all_units_are_cut_to_milliseconds(unit: str, zone: str | None) -> None:
    given = [datetime(2026, 7, 1, 12, 0, second, 123_999, UTC) for second in range(3)]
    column = pa.array(given, pa.timestamp("us")).cast(pa.timestamp(unit, zone), safe=False)
    expected = [int(time.timestamp()) * 1000 + (0 if unit == "s" else 123) for time in given]
    (batch,) = encoded(pa.table({"value": [b"v"] * 3, "timestamp": column}))
    assert batch.timestamps is not None
    assert list(batch.timestamps) == expected


def test_one_timestamp_for_all_is_reported_once() -> None:
    (batch,) = encoded(pa.table({"value": [b"a", b"b"], "timestamp": [NOW + 5, NOW + 5]}))
    assert (batch.timestamps, batch.base_timestamp, batch.max_timestamp) == (None, NOW + 5, NOW + 5)


def test_columns_past_two_gibibytes(tmp_path: Path) -> None:
    far = 1 << 31
    with (tmp_path / "sparse").open("w+b") as file:
        file.truncate(far + 100)
        with mmap.mmap(file.fileno(), far + 100) as memory:
            buffers = [
                None,
                pa.py_buffer(struct.pack("=4q", 0, far, far + 10, far + 30)),
                pa.py_buffer(memory),
            ]
            values = pa.Array.from_buffers(pa.large_binary(), 3, buffers)
            batches = encoded(pa.table({"value": values.slice(1)}))
            found = list(
                windows(
                    record_table(pa.table({"value": values})),
                    max_rows=10,
                    max_bytes=1 << 26,
                    max_row_bytes=1 << 40,
                )
            )
            assert [(first_row, window and window.num_rows) for first_row, window in found] == [
                (0, None),
                (1, 2),
            ]
            del values, buffers, found
    check_against_writer(
        [(None, bytes(10), None, None), (None, bytes(20), None, None)], batches, UNLIMITED
    )


# -- refusals --------------------------------------------------------------------------------------


def with_offsets(kind: pa.DataType, offsets: list[int], *rest: Any, **children: Any) -> pa.Array:
    """Return a column with any offsets; pyarrow refuses most wrong ones when it creates one."""
    memory = bytearray(4 * len(offsets))
    buffers = [None, pa.py_buffer(memory), *map(pa.py_buffer, rest)]
    column = pa.Array.from_buffers(kind, len(offsets) - 1, buffers, **children)
    struct.pack_into(f"={len(offsets)}i", memory, 0, *offsets)
    return column


def dictionary_of(indices: list[int], values: list[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(values), safe=False)


HEADER = pa.array([{"key": "k", "value": b"v"}], HEADERS.value_type)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([b"v"], r"Arrow data of type list: must be a pyarrow.Table or pyarrow.RecordBatch"),
        (pa.table({}), r"the column value is required; the table has no columns"),
        (pa.table({"key": [b"k"]}), r"the column value is required; the table has key"),
        (
            pa.table({"value": [b"v"], "topic": ["t"]}),
            r"column 'topic' is unknown; .*value, key, headers, timestamp, partition",
        ),
        (
            pa.Table.from_arrays([pa.array([b"v"])] * 2, names=["value", "value"]),
            r"column 'value' is duplicated",
        ),
        (pa.table({"value": [1]}), r"column 'value' is of type int64: must be binary, string"),
        (
            pa.table({"value": [b"v"], "key": [1.5]}),
            r"column 'key' is of type double: must be binary, string",
        ),
        (
            pa.table({"value": pa.array([1]).dictionary_encode()}),
            r"column 'value' is of type dictionary.*: must be binary",
        ),
        (
            pa.table({"value": [b"v"], "headers": [b"h"]}),
            r"column 'headers' is of type binary: must be list<struct<key: string",
        ),
        (
            pa.table({"value": [b"v"], "headers": [[b"h"]]}),
            r"column 'headers' is of type list<.*: must be list<struct",
        ),
        (
            pa.table({"value": [b"v"], "headers": [[{"key": "k", "data": b"v"}]]}),
            r"column 'headers' is of type .*: must be",
        ),
        (
            pa.table({"value": [b"v"], "headers": [[{"key": 1, "value": b"v"}]]}),
            r"column 'headers' is of type .*: must be",
        ),
        (
            pa.table({"value": [b"v"], "headers": [[{"key": "k", "value": 1}]]}),
            r"column 'headers' is of type .*: must be",
        ),
        (
            pa.table({"value": [b"v"], "timestamp": ["now"]}),
            r"column 'timestamp' is of type string: must be timestamp of any unit, or int64",
        ),
        (
            pa.table({"value": [b"a", b"v"], "timestamp": [1, -(2**62) - 1]}),
            r"column 'timestamp', row 1: -\d+ must be milliseconds since 1970",
        ),
        (
            pa.table({"value": [b"v"], "timestamp": [2**62]}),
            r"column 'timestamp', row 0: \d+ must be milliseconds since 1970",
        ),
        (
            pa.table({"value": [b"v"], "timestamp": pa.array([2**62], pa.timestamp("s"))}),
            r"column 'timestamp': .*out of bounds",
        ),
        (
            pa.table({"value": with_offsets(BINARY, [0, 50, 3], b"abc")}),
            r"column 'value': Offset invariant failure.*slot 1 out of bounds: 50 > 3",
        ),
        (
            pa.table({"value": [b"v"] * 2, "key": with_offsets(pa.string(), [0, 50, 3], b"abc")}),
            r"column 'key': Offset invariant failure",
        ),
        (
            pa.table({"value": [b"v"], "key": dictionary_of([1], ["only one"])}),
            r"column 'key': .*out of bounds",
        ),
        (
            pa.table(
                {
                    "value": [b"v"] * 2,
                    "headers": with_offsets(HEADERS, [0, 5, 1], children=[HEADER]),
                }
            ),
            r"column 'headers': Offset invariant failure",
        ),
        (
            pa.table({"value": [b"v"], "partition": ["0"]}),
            r"column 'partition' is of type string: must be an integer",
        ),
        (
            pa.table({"value": [b"v"], "partition": [True]}),
            r"column 'partition' is of type bool: must be an integer",
        ),
    ],
)
def test_an_invalid_table_of_records_is_refused(table: Any, message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        record_table(table)


@pytest.mark.parametrize("nameless", [{"key": None, "value": b""}, None])
def test_a_header_without_a_name_is_refused_by_its_row(nameless: dict[str, Any] | None) -> None:
    good = pa.array([None, []], HEADERS)
    bad = pa.array(
        [[{"key": "a", "value": b""}], None, [{"key": "b", "value": b""}, nameless], [nameless]],
        HEADERS,
    )
    table = pa.table({"value": [b""] * 6, "headers": pa.chunked_array([good, bad])})
    with pytest.raises(SerializationError, match="column 'headers', row 4: a header has no name"):
        record_table(table)


@pytest.mark.parametrize("kind", [pa.uint32(), pa.int64(), pa.uint64()], ids=str)
def test_partitions_past_all_numbers_are_refused(kind: pa.DataType) -> None:
    largest = 2**kind.bit_width - 1 if pa.types.is_unsigned_integer(kind) else 2**31
    with pytest.raises(
        InvalidPartitionError, match=f"column 'partition': .*{largest} not in range"
    ):
        record_table(pa.table({"value": [b""], "partition": pa.array([largest], kind)}))


def test_the_largest_partition_is_known() -> None:
    assert (
        largest_partition(
            record_table(
                pa.table({"value": [b""] * 3, "partition": pa.array([1, 7, None], pa.uint64())})
            )
        )
        == 7
    )
    assert largest_partition(record_table(pa.table({"value": [b""]}))) == -1
    assert (
        largest_partition(
            record_table(pa.table({"value": [b""], "partition": pa.array([None], pa.int32())}))
        )
        == -1
    )


def test_our_reader_reads_it() -> None:
    rows: list[Row] = [
        (b"k", b"v", [("h", b"x")], NOW),
        (None, None, None, NOW + 100),
        (b"", b"", [], NOW - 100),
    ]
    (batch,) = encoded(table_of(rows, {"key", "headers", "timestamp"}))
    built = build_batch(
        batch.body,
        attributes=0,
        last_offset_delta=batch.count - 1,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
        record_count=batch.count,
    )
    assert [(r.key, r.value, list(r.headers), r.timestamp) for r in read_records(built)] == [
        (*row[:2], row[2] or [], row[3]) for row in rows
    ]
