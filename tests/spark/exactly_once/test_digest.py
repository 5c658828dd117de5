"""The digest of a batch's rows: how they are spread and ordered does not matter, everything else does."""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from aioprod.spark.exactly_once.digest import MODULUS, RowDigest

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_bytes = st.one_of(st.none(), st.binary(max_size=6))
_header = st.tuples(st.text("ab", max_size=2), _bytes)
# topic, key, value, partition, headers
_row = st.tuples(
    st.sampled_from("tu"), _bytes, _bytes, st.one_of(st.none(), st.integers(0, 3)), st.one_of(st.none(), st.lists(_header, max_size=3).map(tuple))
)
Row = tuple[str, bytes | None, bytes | None, int | None, tuple[tuple[str, bytes | None], ...] | None]


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    headers = [None if row[4] is None else [{"key": name, "value": value} for name, value in row[4]] for row in rows]
    columns = {
        "key": pa.array([row[1] for row in rows], pa.binary()),
        "value": pa.array([row[2] for row in rows], pa.binary()),
        "partition": pa.array([row[3] for row in rows], pa.int32()),
        "headers": pa.array(headers, _HEADERS),
    }
    return pa.record_batch(columns)


def digest_of(rows: list[Row], chunk: int = 100) -> tuple[int, int]:
    digest = RowDigest()
    for topic in "tu":
        mine = [row for row in rows if row[0] == topic]
        for start in range(0, len(mine), chunk):
            digest.add(topic, batch_of(mine[start : start + chunk]))
    return digest.rows, digest.value


def same(row: Row) -> Row:
    """No headers and an empty list of them are the same record."""
    return (*row[:4], row[4] or None)


@settings(deadline=None)
@given(st.lists(_row, max_size=8), st.randoms(use_true_random=False), st.integers(1, 8))
def test_order_and_partitioning_do_not_matter(rows: list[Row], rng: Any, chunk: int) -> None:
    expected = digest_of(rows)
    rng.shuffle(rows)
    half = rng.randint(0, len(rows))
    parts = [digest_of(rows[:half], chunk), digest_of(rows[half:], chunk)]
    assert (sum(part[0] for part in parts), sum(part[1] for part in parts) % MODULUS) == expected


@settings(deadline=None)
@given(st.lists(_row, min_size=1, max_size=6), st.lists(_row, min_size=1, max_size=6))
def test_other_rows_have_another_digest(first: list[Row], second: list[Row]) -> None:
    assume(sorted(map(repr, map(same, first))) != sorted(map(repr, map(same, second))))
    assert digest_of(first) != digest_of(second)


@settings(deadline=None)
@given(_row, _row, st.integers(1, 4))
@example(("u", None, b"", None, None), ("u", b"", None, 0, None), 3)
def test_two_rows_that_swap_a_cell_have_another_digest(first: Row, second: Row, column: int) -> None:
    swapped_first = (*first[:column], second[column], *first[column + 1 :])
    swapped_second = (*second[:column], first[column], *second[column + 1 :])
    assume(sorted(map(repr, map(same, (first, second)))) != sorted(map(repr, map(same, (swapped_first, swapped_second)))))  # type: ignore[arg-type]
    assert digest_of([first, second]) != digest_of([swapped_first, swapped_second])  # type: ignore[list-item]


@settings(deadline=None)
@given(*[st.lists(st.binary(min_size=3, max_size=3), min_size=2, max_size=2, unique=True)] * 2)
def test_values_that_swap_their_ends_have_another_digest(heads: list[bytes], tails: list[bytes]) -> None:
    """Checksums alone are linear: of such pairs they would often give the same sum."""
    before: list[Row] = [("t", None, head + tail, None, None) for head, tail in zip(heads, tails, strict=True)]
    after: list[Row] = [("t", None, head + tail, None, None) for head, tail in zip(heads, reversed(tails), strict=True)]
    assert digest_of(before) != digest_of(after)


def test_the_order_of_a_rows_headers_matters() -> None:
    a, b = ("a", b"1"), ("b", b"2")
    assert digest_of([("t", None, b"", None, (a, b))]) != digest_of([("t", None, b"", None, (b, a))])


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()])
def test_text_counts_as_its_bytes(kind: pa.DataType) -> None:
    digest = RowDigest()
    digest.add("t", pa.record_batch({"value": pa.array(["é", None, "x"], pa.string()).cast(kind)}))
    rows: list[Row] = [("t", None, "é".encode(), None, None), ("t", None, None, None, None), ("t", None, b"x", None, None)]
    assert (digest.rows, digest.value) == digest_of(rows)


def test_slices_count_as_what_they_show() -> None:
    rows: list[Row] = [("t", b"%d" % n, b"v%d" % n, n % 3, (("h", b"%d" % n),)) for n in range(10)]
    digest = RowDigest()
    digest.add("t", batch_of(rows).slice(3, 4))
    assert (digest.rows, digest.value) == digest_of(rows[3:7])
