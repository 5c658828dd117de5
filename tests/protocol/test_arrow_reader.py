"""Batches read as columns give what the reader of single records does, also for invalid bytes."""

from __future__ import annotations

import struct
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aioprod.codecs import Codec
from aioprod.errors import CorruptRecordError
from aioprod.header_names import name_in_column
from aioprod.protocol import arrow_reader
from aioprod.protocol.arrow_reader import HEADERS_TYPE, read_arrays
from aioprod.protocol.batch_cursor import iter_batches
from aioprod.protocol.compression import compress
from aioprod.protocol.record_batch import read_header
from aioprod.protocol.record_reader import Record, read_batch_records
from aioprod.varints import encode_varint
from tests.protocol.record_bytes import BASE, batch_of, handmade, headers, record, timestamps

records = st.tuples(
    timestamps,
    st.none() | st.binary(max_size=300),
    st.none() | st.binary(max_size=20_000) | st.binary(max_size=80),
    st.just([]) | headers,
)


def packed(
    body: bytes, count: int, *, last_delta: int = 1000, attributes: int = 0, base_offset: int = 50
) -> bytes:
    """Return a batch of any bytes, compressed as the attributes say."""
    body = compress(Codec(attributes & 7), body)
    return handmade(
        body, count=count, last_delta=last_delta, attributes=attributes, base_offset=base_offset
    )


def as_columns(data: bytes, include_headers: bool = True) -> list[Record]:
    found: list[Record] = []
    for arrays in read_arrays(data, list(iter_batches(data)), include_headers=include_headers):
        for array in (arrays.keys, arrays.values, arrays.headers):
            if array is not None:
                array.validate(full=True)
        reported: list[Any] = (
            [None] * len(arrays.offsets) if arrays.headers is None else arrays.headers.to_pylist()
        )
        found += map(
            Record,
            arrays.offsets.tolist(),
            arrays.timestamps.tolist(),
            arrays.timestamp_types.tolist(),
            arrays.keys.to_pylist(),
            arrays.values.to_pylist(),
            [
                tuple((name_in_column(header["key"]), header["value"]) for header in given or ())
                for given in reported
            ],
        )
    return found


def one_by_one(data: bytes) -> list[Record]:
    return [
        record
        for header, place in iter_batches(data)
        for record in read_batch_records(data, place, header)
    ]


@given(
    st.lists(
        st.tuples(st.lists(records, min_size=1, max_size=12), st.sampled_from(Codec)), max_size=5
    ),
    st.integers(1, 100_000),
)
def test_batches_of_all_kinds_are_the_same_records(
    batches: list[tuple[list[Any], Codec]], portion: int
) -> None:
    data = b"".join(batch_of(*batch) for batch in batches)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_reader, "PORTION_BYTES", portion)
        assert as_columns(data) == one_by_one(data)
        assert as_columns(data, include_headers=False) == [
            Record(r.offset, r.timestamp, 0, r.key, r.value, ()) for r in one_by_one(data)
        ]


def test_thousands_of_records_whose_numbers_grow() -> None:
    """Lengths, offset and timestamp deltas of one, two and three bytes."""
    rows = [
        (BASE + n * n % 70_000, b"k%d" % n, b"v" * (n % 300), [("h", b"%d" % n)] * (n % 3))
        for n in range(9000)
    ]
    data = batch_of(rows) + batch_of(rows[4000:], Codec.LZ4)
    assert as_columns(data) == one_by_one(data)


runs_of_one_length = st.lists(
    st.tuples(st.sampled_from([0, 1, 52, 53, 54, 100, 8180, 8190]), st.integers(1, 120)),
    min_size=1,
    max_size=6,
)


@given(
    runs_of_one_length,
    st.lists(st.tuples(st.integers(0, 1_000_000), st.integers(0, 255)), max_size=2),
)
def test_long_rows_of_records_of_one_length(
    runs: list[tuple[int, int]], changes: list[tuple[int, int]]
) -> None:
    rows: list[Any] = [
        (BASE, None, bytes(size), []) for size, repeats in runs for _ in range(repeats)
    ]
    body = bytearray(batch_of(rows)[61:])
    for at, byte in changes:
        body[at % len(body)] = byte
    same_outcome(packed(bytes(body), len(rows), last_delta=len(rows) - 1))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_records(count: int) -> None:
    data = packed(b"".join(record(0, delta, -1, -1, 0) for delta in range(count)), count)
    assert as_columns(data) == one_by_one(data)
    assert [
        arrays.headers.type
        for arrays in read_arrays(data, list(iter_batches(data)))
        if arrays.headers is not None
    ] == [HEADERS_TYPE]


def test_no_batches_are_no_portion() -> None:
    assert list(read_arrays(b"", [])) == []


def test_log_append_time_replaces_the_timestamps_of_its_batches_only() -> None:
    body = record(7, 0, -1, -1, 0) + record(8, 1, -1, -1, 0)
    data = packed(body, 2, attributes=0x08) + packed(body, 2)
    assert [(r.timestamp - BASE, r.timestamp_type) for r in as_columns(data)] == [
        (9, 1),
        (9, 1),
        (7, 0),
        (8, 0),
    ]


def test_offsets_have_gaps_after_compaction() -> None:
    deltas = [3, 4, 70, 71, 9000, 9001, 70_000]
    data = packed(
        b"".join(record(0, delta, -1, -1, 0) for delta in deltas), len(deltas), last_delta=70_005
    )
    assert [r.offset for r in as_columns(data)] == [50 + delta for delta in deltas]


@given(st.lists(st.integers(-(1 << 62) + 1, (1 << 62) - 1), min_size=1))
def test_timestamp_deltas_of_any_size(deltas: list[int]) -> None:
    data = packed(
        b"".join(record(delta, index, -1, -1, 0) for index, delta in enumerate(deltas)), len(deltas)
    )
    assert (
        [r.timestamp - BASE for r in as_columns(data)]
        == deltas
        == [r.timestamp - BASE for r in one_by_one(data)]
    )


def test_longer_varints_than_needed_are_read() -> None:
    body = (
        b"\0"
        + b"\x82\x80\x00"
        + b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00"
        + b"\x80\x00"
        + b"\x82\x80\x00v"
        + b"\x80\x00"
    )
    data = packed(encode_varint(len(body)) + body, 1)
    assert as_columns(data) == one_by_one(data) == [Record(50, BASE + 1, 0, b"", b"v", ())]


def test_a_batch_is_named_that_is_wrong() -> None:
    good, bad = (
        packed(record(0, 0, -1, -1, 0), 1),
        packed(record(0, -1, -1, -1, 0), 1, base_offset=700),
    )
    with pytest.raises(CorruptRecordError, match="batch at offset 700: an offset delta"):
        as_columns(good + good + bad + good)


BROKEN = {
    "fewer records than the header says": packed(record(0, 0, -1, 1, b"v", 0), 2),
    "more bytes than records": packed(record(0, 0, -1, 1, b"v", 0) * 2, 1),
    "records after the end of the batch": packed(record(0, 0, -1, 900, b"v", 0), 1)
    + packed(record(0, 0, -1, 1, b"v" * 900, 0), 1),
    "a negative record length": packed(encode_varint(-8) + record(0, 0, -1, 1, b"v", 0)[1:], 1),
    "a wrong record length": packed(encode_varint(8) + record(0, 0, -1, 1, b"v", 0)[1:], 1),
    "a key of an exabyte": packed(record(0, 0, 1 << 60, 1, b"v", 0), 1),
    "lengths whose sum overflows": packed(record(0, 0, (1 << 62) - 1, (1 << 62) - 1, 0), 1),
    "an offset before the base": packed(record(0, -1, -1, 1, b"v", 0), 1),
    "an offset after the last": packed(record(0, 1001, -1, 1, b"v", 0), 1),
    "an endless varint": packed(record(b"\xff" * 10, b"\0", 0, -1, -1, 0), 1),
    "a negative number of headers": packed(record(0, 0, -1, -1, -1), 1),
    "a number of headers that can't be": packed(record(0, 0, -1, -1, 99), 1),
    "a header without a name": packed(record(0, 0, -1, -1, 1, -1, -1), 1),
    "a header's value longer than the batch": packed(record(0, 0, -1, -1, 1, 1, b"n", 900), 1),
    "an unknown codec": packed(record(0, 0, -1, -1, 0), 1)[:22]
    + b"\6"
    + packed(record(0, 0, -1, -1, 0), 1)[23:],
    "a wrong checksum": packed(record(0, 0, -1, 1, b"v", 0), 1)[:-1] + b"\1",
    "a count that would take all memory": packed(record(0, 0, -1, -1, 0), (1 << 31) - 1),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN.keys())
def test_broken_records_are_refused_by_both_readers(data: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        one_by_one(data)
    with pytest.raises(CorruptRecordError):
        as_columns(data)


def same_outcome(data: bytes) -> None:
    try:
        expected = one_by_one(data)
    except CorruptRecordError:
        with pytest.raises(CorruptRecordError):
            as_columns(data)
    else:
        assert as_columns(data) == expected


@given(st.binary(max_size=120), st.integers(0, 12), st.sampled_from(Codec), st.integers(0, 100))
def test_any_bytes_as_records(body: bytes, count: int, codec: Codec, last_delta: int) -> None:
    same_outcome(packed(body, count, attributes=codec, last_delta=last_delta))


@given(
    st.lists(records, min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 100_000), st.integers(0, 255)), min_size=1, max_size=3),
)
@example([(BASE, b"k", b"v", [])], [(0, 0)])
def test_changed_bytes_with_a_right_checksum(
    rows: list[Any], changes: list[tuple[int, int]]
) -> None:
    built = batch_of(rows)
    body = bytearray(built[61:])
    for at, byte in changes:
        body[at % min(len(body), 200)] = byte
    same_outcome(packed(bytes(body), len(rows), last_delta=len(rows) - 1))


def test_pandas_is_not_imported() -> None:
    """It would cost time and memory in each of Spark's Python processes."""
    program = f"""
import sys
from aioprod.protocol.arrow_reader import read_arrays
from aioprod.protocol.batch_cursor import iter_batches
data = {batch_of([(BASE, b"k", b"v", [("h", b"x")])])!r}
assert [len(arrays.keys) for arrays in read_arrays(data, iter_batches(data))] == [1]
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_control_batch_is_read_like_any_other() -> None:
    data = packed(
        record(0, 0, 4, struct.pack(">hh", 0, 1), 6, struct.pack(">hi", 0, 3), 0),
        1,
        attributes=0x30,
    )
    assert read_header(data).is_control
    assert as_columns(data) == one_by_one(data)
