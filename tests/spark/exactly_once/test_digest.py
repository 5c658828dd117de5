"""The digest of a batch's rows: how they are spread and ordered does not matter, everything else
does.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from aioprod import native
from aioprod.protocol import arrow_digest
from aioprod.protocol.arrow_buffers import padded_words
from aioprod.protocol.arrow_digest import row_digest
from aioprod.spark.exactly_once import digest
from aioprod.spark.exactly_once.digest import RowDigest
from aioprod.spark.exactly_once.reports import MODULUS

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_bytes = st.one_of(st.none(), st.binary(max_size=6))
_header = st.tuples(st.text("ab", max_size=2), _bytes)
# topic, key, value, partition, headers
_row = st.tuples(
    st.sampled_from("tu"),
    _bytes,
    _bytes,
    st.one_of(st.none(), st.integers(0, 3)),
    st.one_of(st.none(), st.lists(_header, max_size=3).map(tuple)),
)
_wide_row = st.tuples(
    st.sampled_from("tu"),
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=60),
    st.none() | st.integers(0, 2**31 - 1),
    st.none()
    | st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=30)), max_size=3).map(
        tuple
    ),
)
Row = tuple[
    str, bytes | None, bytes | None, int | None, tuple[tuple[str, bytes | None], ...] | None
]


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    headers = [
        None if row[4] is None else [{"key": name, "value": value} for name, value in row[4]]
        for row in rows
    ]
    columns = {
        "key": pa.array([row[1] for row in rows], pa.binary()),
        "value": pa.array([row[2] for row in rows], pa.binary()),
        "partition": pa.array([row[3] for row in rows], pa.int32()),
        "headers": pa.array(headers, _HEADERS),
    }
    return pa.record_batch(columns)


def digest_of(rows: list[Row], chunk: int = 100) -> tuple[int, int]:
    found = RowDigest()
    for topic in "tu":
        mine = [row for row in rows if row[0] == topic]
        for start in range(0, len(mine), chunk):
            found.add(topic, batch_of(mine[start : start + chunk]))
    return found.rows, found.value


def mix(number: int) -> int:
    """The last step of SplitMix64 (Vigna's reference in C, in Python)."""
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 % MODULUS
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB % MODULUS
    return number ^ (number >> 31)


def of_bytes(data: bytes | None, place: int) -> int:
    words = [
        int.from_bytes((data or b"")[start : start + 8], "little")
        for start in range(0, len(data or b""), 8)
    ]
    total = sum(
        mix(word * (2 * index + 1) * 0x9E3779B97F4A7C15 % MODULUS)
        for index, word in enumerate(words)
    )
    return mix(
        (place + (0 if data is None else len(data) + 1) * 0xD1B54A32D192ED03 + total) % MODULUS
    )


def of_row(row: Row) -> int:
    """Compute the digest of a row as the module's docstring defines it, without numpy."""
    topic, key, value, partition, headers = row
    number = (
        of_bytes(topic.encode(), 0x8CB92BA72F3D8DD7)
        + of_bytes(key, 0xABC98388FB8FAC03)
        + of_bytes(value, 0x139408DCBBF7A44D)
    )
    number += mix((0x5851F42D4C957F2D + (0 if partition is None else partition + 1)) % MODULUS)
    for place, (name, data) in enumerate(headers or ()):
        pair = of_bytes(name.encode(), 0xC2B2AE3D27D4EB4F) + of_bytes(data, 0x165667B19E3779F9)
        number += mix((pair + place * 0x9E3779B97F4A7C15) % MODULUS)
    return mix(number % MODULUS)


def same(row: Row) -> Row:
    """No headers and an empty list of them are the same record."""
    return (*row[:4], row[4] or None)


@given(st.lists(_wide_row, max_size=8), st.integers(1, 8), st.integers(0, 3))
@example(
    [("t", b"k", bytes(size), 1, None) for size in (0, 7, 8, 9, 100, 5000)]
    + [("u", None, b"\xff" * 90_000, 0, ())],
    100,
    0,
)
def test_it_is_what_its_definition_says(rows: list[Row], chunk: int, front: int) -> None:
    found = RowDigest()
    for topic in "tu":
        mine = [row for row in rows if row[0] == topic]
        # As slices of a larger batch: what lies in front of them does not count.
        whole = batch_of(mine[:1] * front + mine)
        first = len(mine[:1] * front)
        for start in range(0, len(mine), chunk):
            found.add(topic, whole.slice(first + start, min(chunk, len(mine) - start)))
    assert (found.rows, found.value) == (len(rows), sum(map(of_row, rows)) % MODULUS)


def test_many_rows_are_taken_in_portions() -> None:
    rows: list[Row] = [
        ("t", b"%d" % (n % 7), b"value" * (n % 5), None, None) for n in range(40_000)
    ]
    assert digest_of(rows, chunk=len(rows)) == (len(rows), sum(map(of_row, rows)) % MODULUS)


def test_one_long_value_does_not_pad_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    padded: list[int] = []

    def words(column: pa.Array, word: Any, count: int) -> Any:
        padded.append(len(column) * count)
        return padded_words(column, word, count)

    monkeypatch.setattr(arrow_digest, "padded_words", words)
    monkeypatch.setattr(digest, "row_digest", native.python_sources["row_digest"])
    batch = pa.record_batch(
        {"value": pa.array([b"12345678"] * 1000 + [b"x" * 800_000], pa.binary())}
    )
    RowDigest().add("t", batch)
    assert sum(padded) == 1000 + 100_000 + 1  # and the topic


@given(st.lists(_row, max_size=8), st.randoms(use_true_random=False), st.integers(1, 8))
def test_order_and_partitioning_do_not_matter(rows: list[Row], rng: Any, chunk: int) -> None:
    expected = digest_of(rows)
    rng.shuffle(rows)
    half = rng.randint(0, len(rows))
    parts = [digest_of(rows[:half], chunk), digest_of(rows[half:], chunk)]
    assert (sum(part[0] for part in parts), sum(part[1] for part in parts) % MODULUS) == expected


@given(st.lists(_row, min_size=1, max_size=6), st.lists(_row, min_size=1, max_size=6))
def test_other_rows_have_another_digest(first: list[Row], second: list[Row]) -> None:
    assume(sorted(map(repr, map(same, first))) != sorted(map(repr, map(same, second))))
    assert digest_of(first) != digest_of(second)


@given(_row, _row, st.integers(1, 4))
@example(("u", None, b"", None, None), ("u", b"", None, 0, None), 3)
def test_two_rows_that_swap_a_cell_have_another_digest(
    first: Row, second: Row, column: int
) -> None:
    swapped_first = (*first[:column], second[column], *first[column + 1 :])
    swapped_second = (*second[:column], first[column], *second[column + 1 :])
    assume(
        sorted(map(repr, map(same, (first, second))))
        != sorted(map(repr, map(same, (swapped_first, swapped_second))))  # type: ignore[arg-type]
    )
    assert digest_of([first, second]) != digest_of([swapped_first, swapped_second])  # type: ignore[list-item]


@given(*[st.lists(st.binary(min_size=3, max_size=3), min_size=2, max_size=2, unique=True)] * 2)
def test_values_that_swap_their_ends_have_another_digest(
    heads: list[bytes], tails: list[bytes]
) -> None:
    """If a sum were linear in its words, such pairs would give the same one."""
    before: list[Row] = [
        ("t", None, head + tail, None, None) for head, tail in zip(heads, tails, strict=True)
    ]
    after: list[Row] = [
        ("t", None, head + tail, None, None)
        for head, tail in zip(heads, reversed(tails), strict=True)
    ]
    assert digest_of(before) != digest_of(after)


def test_the_order_of_a_rows_headers_matters() -> None:
    a, b = ("a", b"1"), ("b", b"2")
    assert digest_of([("t", None, b"", None, (a, b))]) != digest_of(
        [("t", None, b"", None, (b, a))]
    )


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()])
def test_text_counts_as_its_bytes(kind: pa.DataType) -> None:
    found = RowDigest()
    found.add("t", pa.record_batch({"value": pa.array(["é", None, "x"], pa.string()).cast(kind)}))
    rows: list[Row] = [
        ("t", None, "é".encode(), None, None),
        ("t", None, None, None, None),
        ("t", None, b"x", None, None),
    ]
    assert (found.rows, found.value) == digest_of(rows)


def test_batches_too_large_for_the_offsets_of_binary_are_halved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(digest, "_MOST_BYTES", 500)
    counts: list[int] = []

    def sum_of_rows(values: pa.Array, keys: pa.Array, others: Any) -> int:
        counts.append(len(values))
        return row_digest(values, keys, others)

    monkeypatch.setattr(digest, "row_digest", sum_of_rows)
    rows: list[Row] = [("t", b"k%d" % n, b"v" * 50, n, None) for n in range(21)]
    rows.append(("t", None, b"v" * 1000, 1, None))
    assert digest_of(rows) == (22, sum(map(of_row, rows)) % MODULUS)
    assert sum(counts) == 22 and 1 in counts and len(counts) > 3


def test_slices_count_as_what_they_show() -> None:
    rows: list[Row] = [("t", b"%d" % n, b"v%d" % n, n % 3, (("h", b"%d" % n),)) for n in range(10)]
    found = RowDigest()
    found.add("t", batch_of(rows).slice(3, 4))
    assert (found.rows, found.value) == digest_of(rows[3:7])
