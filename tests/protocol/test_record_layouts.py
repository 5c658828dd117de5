"""The readers for fixed-width and variable-width records return what reading one by one does."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioprod.errors import CorruptRecordError, ProtocolError
from aioprod.protocol.fixed_width_records import SHORTEST, FixedWidthReader
from aioprod.protocol.record_batch import build_batch, read_header
from aioprod.protocol.record_headers import Header, HeaderBlocks
from aioprod.protocol.record_reader import RecordColumns, read_columns
from aioprod.protocol.variable_width_records import VariableWidthReader

BASE = 1_700_000_000_000
Columns = tuple[list[int], list[bytes | None], list[bytes | None], list[tuple[Header, ...]]]
# Offset delta, timestamp delta, key, value, number of headers.
Row = tuple[int, int, bytes | None, bytes | None, int]


def varint(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*out, rest])


def field(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(row: Row) -> bytes:
    offset, timestamp, key, value, headers = row
    body = (
        b"\0"
        + varint(timestamp)
        + varint(offset)
        + field(key)
        + field(value)
        + varint(headers)
        + (varint(1) + b"h" + field(b"x")) * headers
    )
    return varint(len(body)) + body


def batch(rows: list[Row], body: bytes | None = None) -> bytes:
    return build_batch(
        b"".join(map(record, rows)) if body is None else body,
        attributes=0,
        last_offset_delta=max((row[0] for row in rows), default=0),
        base_timestamp=BASE,
        max_timestamp=BASE,
        record_count=len(rows),
    )


def empty(count: int) -> Columns:
    """Return columns for this number of records, without any values."""
    return [BASE] * count, [None] * count, [None] * count, [()] * count


def one_by_one(data: bytes, monkeypatch: pytest.MonkeyPatch) -> RecordColumns:
    with monkeypatch.context() as patch:
        patch.setattr(FixedWidthReader, "fill", lambda self, *columns: (0, 0))
        patch.setattr(
            VariableWidthReader,
            "fill",
            lambda self, index, position, delta, most: (index, position),
        )
        return read_columns(data, 0, read_header(data))


def same_result(data: bytes) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        try:
            expected: object = one_by_one(data, monkeypatch)
        except CorruptRecordError:
            expected = CorruptRecordError
        try:
            found: object = read_columns(data, 0, read_header(data))
        except ProtocolError as error:
            found = type(error)
    assert found == expected


@st.composite
def rows_of_stretches(draw: st.DrawFn) -> list[Row]:
    rows: list[Row] = []
    timestamp = 0
    for _ in range(draw(st.integers(1, 4))):
        key = draw(st.sampled_from([None, 0, 1, 8, 63, 64, 200]))
        value = draw(st.sampled_from([None, 0, 1, 50, 63, 64, 130, 9_000]))
        step = draw(st.sampled_from([0, 1, 3, -1, 100]))
        gap = draw(st.sampled_from([0, 0, 0, 1, 70]))
        headers = draw(st.sampled_from([0, 0, 0, 1]))
        offset = rows[-1][0] + 1 + gap if rows else gap
        for number in range(draw(st.integers(1, 150 if value != 9_000 else 20))):
            timestamp += step
            fill = number % 251
            rows.append(
                (
                    offset + number,
                    timestamp,
                    None if key is None else bytes([fill]) * key,
                    None if value is None else bytes([fill]) * value,
                    headers,
                )
            )
    return rows


@settings(max_examples=150)
@given(rows_of_stretches())
def test_stretches_of_records_of_one_layout(rows: list[Row]) -> None:
    data = batch(rows)
    columns = read_columns(data, 0, read_header(data))
    assert columns.offsets == [row[0] for row in rows]
    assert columns.timestamps == [BASE + row[1] for row in rows]
    assert columns.keys == [row[2] for row in rows]
    assert columns.values == [row[3] for row in rows]
    assert [len(headers) for headers in columns.headers] == [row[4] for row in rows]
    same_result(data)


@settings(max_examples=300)
@given(st.integers(1, 120), st.sampled_from([None, 0, 5, 100]), st.data())
def test_broken_bytes_come_to_what_they_come_to_one_by_one(
    count: int, size: int | None, data: st.DataObject
) -> None:
    body = bytearray(
        b"".join(
            record((n, n // 3, None, None if size is None else bytes([n]) * size, 0))
            for n in range(count)
        )
    )
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(body) - 1))
        body[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([0, 0, 1, 7]))
    same_result(
        batch([(n, 0, None, None, 0) for n in range(count)], bytes(body[: len(body) - cut]))
    )


def test_offset_deltas_of_two_and_three_bytes_are_read_in_stretches() -> None:
    rows: list[Row] = [
        (number, number // 50, None, b"%06d" % number, 0) for number in range(20_000)
    ]
    data = batch(rows)
    body = data[61:]
    timestamps, _, values, _ = columns = empty(len(rows))
    assert FixedWidthReader(body, BASE, HeaderBlocks()).fill(*columns) == (len(rows), len(body))
    assert values == [row[3] for row in rows]
    assert timestamps == [BASE + row[1] for row in rows]


def test_headers_of_one_size_are_read_in_stretches_and_equal_ones_are_shared() -> None:
    body = b"".join(record((number, 0, b"key", b"%06d" % number, 2)) for number in range(100))
    *_, headers = columns = empty(100)
    assert FixedWidthReader(body, BASE, HeaderBlocks()).fill(*columns) == (100, len(body))
    assert headers == [(("h", b"x"), ("h", b"x"))] * 100
    assert headers[0] is headers[99]


def test_records_of_all_sizes_are_left_to_the_other_ways() -> None:
    rng = random.Random(3)
    body = b"".join(
        record((number, 0, None, rng.randbytes(rng.randint(0, 90)), 0)) for number in range(500)
    )
    index, _ = FixedWidthReader(body, BASE, HeaderBlocks()).fill(*empty(500))
    assert index < SHORTEST


@pytest.mark.parametrize(
    ("first", "timestamps", "sizes", "key_sizes"),
    [
        (0, [0, 1, 1, 63], [1, 40], [None]),
        (64, [7, 0, 5], [0, 55, 56, 63, 64, 150, 8_000], [None]),
        (64, [64, -65, 8_191], [50, 60, 70], [None, 0, 1, 63]),
        (8_100, [64, 65], [0, 10, 100], [5]),
    ],
    ids=["offsets of one byte", "offsets of two", "keys", "the last offsets of two bytes"],
)
def test_records_whose_numbers_take_as_many_bytes(
    first: int, timestamps: list[int], sizes: list[int], key_sizes: list[int | None]
) -> None:
    rng = random.Random(5)
    count = 64 if first < 64 else 92
    rows: list[Row] = []
    for number in range(count):
        size = rng.choice(key_sizes)
        key = None if size is None else rng.randbytes(size)
        rows.append(
            (
                first + number,
                rng.choice(timestamps),
                key,
                rng.randbytes(rng.choice(sizes)),
                rng.choice([0, 0, 1, 3]),
            )
        )
    body = b"".join(map(record, rows))
    columns = empty(count)
    index, position = VariableWidthReader(body, BASE, columns, HeaderBlocks()).fill(
        0, 0, first, 1_000
    )
    assert count - 1 <= index <= count, "the last one may be too short for what is read at once"
    assert position == len(b"".join(map(record, rows[:index])))
    stamps, keys, values, headers = (
        columns[0][:index],
        columns[1][:index],
        columns[2][:index],
        columns[3][:index],
    )
    assert stamps == [BASE + row[1] for row in rows[:index]]
    assert (keys, values) == ([row[2] for row in rows[:index]], [row[3] for row in rows[:index]])
    assert [len(some) for some in headers] == [row[4] for row in rows[:index]]


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.integers(1, 300), st.booleans())
def test_records_of_any_kind_in_any_order_come_to_what_they_come_to_one_by_one(
    seed: int, count: int, broken: bool
) -> None:
    rng = random.Random(seed)
    rows: list[Row] = []
    offset, kinds = rng.choice([0, 50, 8_100]), rng.sample(range(6), 3)
    for _ in range(count):
        kind = rng.choice(kinds)
        key = rng.randbytes(rng.choice([0, 5, 63, 64])) if kind in (1, 2) else None
        value = (
            None if kind == 3 else rng.randbytes(rng.randint(0, 150)) if kind < 5 else bytes(8_192)
        )
        rows.append(
            (
                offset,
                rng.choice([0, 1, 64, -1, 8_192]),
                key,
                value,
                rng.choice([0, 1, 2]) if kind == 4 else 0,
            )
        )
        offset += 1 if rng.random() < 0.98 else rng.randint(2, 90)
    body = bytearray(b"".join(map(record, rows)))
    for _ in range(rng.randint(1, 3) if broken else 0):
        body[rng.randrange(len(body))] = rng.randrange(256)
    same_result(batch(rows, bytes(body)))
