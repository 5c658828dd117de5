"""The accelerator encodes Arrow columns as their source in Python does, and reads nothing outside
their memory.
"""

from __future__ import annotations

import gc
import random
import struct
import sys
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioprod.producer import arrow_partitions as arrow_partitions  # has key_partitions
from aioprod.protocol.arrow_records import EncodedRecords, _headers
from tests.protocol.test_native import accelerator, needs_native, python

pytestmark = needs_native

UNLIMITED = 1 << 40
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Arguments = tuple[Any, ...]
Outcome = tuple[list[int], list[bytes]]


def outcome(batches: Any) -> Outcome:
    return batches.cuts, [batches.body(number) for number in range(len(batches.cuts) - 1)]


def both(arguments: Arguments) -> Outcome:
    found = outcome(accelerator().ColumnBatches(*arguments))
    assert found == outcome(python("ColumnBatches")(*arguments))
    return found


def some_bytes(rng: random.Random, sizes: list[int], nulls: float) -> bytes | None:
    return None if rng.random() < nulls else rng.randbytes(rng.choice(sizes))


def binary_column(rng: random.Random, count: int, nulls: float) -> pa.Array:
    sizes = rng.choice([[0, 1, 40], [8, 63, 64, 100], [0, 50, 8190, 8192, 20_000]])
    skipped = rng.randint(0, 9)
    return pa.array(
        [some_bytes(rng, sizes, nulls) for _ in range(count + skipped)], pa.binary()
    ).slice(skipped)


def header_column(rng: random.Random, count: int) -> Any:
    def one() -> list[dict[str, Any]] | None:
        if rng.random() < 0.2:
            return None
        return [
            {"key": "n" * rng.choice([0, 1, 70]), "value": some_bytes(rng, [0, 3, 70], 0.2)}
            for _ in range(rng.choice([0, 1, 2, 80]))
        ]

    return _headers(pa.array([one() for _ in range(count + 2)], HEADERS).slice(2))


def arguments_of(rng: random.Random) -> Arguments:
    count = rng.choice([1, 2, 7, 70, 300])
    key = binary_column(rng, count, 0.2) if rng.random() < 0.5 else None
    headers = header_column(rng, count) if rng.random() < 0.4 else None
    delta_size, timestamps = 1, None
    if rng.random() < 0.5:
        far = rng.choice([63, 8191, 1 << 40, 1 << 60])
        delta_size = 10
        timestamps = pa.array([rng.randint(0, far) for _ in range(count + 1)], pa.int64()).slice(1)
    order = None
    if rng.random() < 0.5:
        order = pa.array(rng.sample(range(count), count), pa.uint64())
    ends = sorted({count, *(rng.randint(1, count) for _ in range(rng.randint(0, 3)))})
    limit = rng.choice([0, 1, 100, 1000, 65_475, UNLIMITED])
    value = binary_column(rng, count, rng.choice([0, 0.3, 1]))
    return key, value, headers, timestamps, order, ends, limit, delta_size


@settings(max_examples=300)
@given(st.integers(0, 1 << 32))
def test_columns_are_encoded_alike(seed: int) -> None:
    both(arguments_of(random.Random(seed)))


def test_offset_deltas_of_three_bytes_are_encoded_alike() -> None:
    value = pa.array([b""] * 20_000, pa.binary())
    cuts, (body,) = both((None, value, None, None, None, [20_000], UNLIMITED, 1))
    assert cuts == [0, 20_000] and len(body) == 20_000 * 7 + (20_000 - 64) + (20_000 - 8192)


@settings(max_examples=200)
@given(
    st.lists(st.none() | st.binary(max_size=20) | st.binary(max_size=200), max_size=40),
    st.sampled_from([1, 2, 6, 1000, 2**31 - 1]),
    st.integers(0, 3),
)
def test_partitions_of_keys_are_alike(
    keys: list[bytes | None], partitions: int, skipped: int
) -> None:
    column = pa.array([b"before"] * skipped + keys, pa.binary()).slice(skipped)
    found, expected = (
        pa.Array.from_buffers(pa.int32(), len(keys), [None, pa.py_buffer(numbers)])
        for numbers in (
            accelerator().key_partitions(column, partitions),
            python("key_partitions")(column, partitions),
        )
    )
    assert pc.drop_null(pc.if_else(column.is_valid(), found, None)) == pc.drop_null(
        pc.if_else(column.is_valid(), expected, None)
    )


@settings(max_examples=200)
@given(st.integers(0, 1 << 32), st.sampled_from([0, 1, 2, 300]), st.booleans(), st.booleans())
def test_rows_have_the_same_digest(seed: int, count: int, keyed: bool, each: bool) -> None:
    rng = random.Random(seed)
    values = binary_column(rng, count, rng.choice([0, 0.3, 1]))
    keys = binary_column(rng, count, 0.2) if keyed else None
    others = np.frombuffer(rng.randbytes(8 * (count if each else 1)), np.uint64)
    found = accelerator().row_digest(values, keys, others)
    assert found == python("row_digest")(values, keys, others)


# -- memory ----------------------------------------------------------------------------------------


def column_of(offsets: list[int], data: bytes) -> pa.Array:
    """Return a column with any offsets; pyarrow refuses most wrong ones when it creates one."""
    memory = bytearray(4 * len(offsets))
    buffers = [None, pa.py_buffer(memory), pa.py_buffer(data)]
    column = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
    struct.pack_into(f"={len(offsets)}i", memory, 0, *offsets)
    return column


corrupt_offsets = st.lists(
    st.integers(-5, 20) | st.sampled_from([-(2**31), 2**31 - 1]), min_size=2, max_size=6
)


@given(offsets=corrupt_offsets, use=st.sampled_from(["key", "value", "name", "header value"]))
def test_offsets_outside_the_buffer_are_refused(offsets: list[int], use: str) -> None:
    data = b"0123456789"
    corrupt, count = column_of(offsets, data), len(offsets) - 1
    good = pa.array([b"x"] * count, pa.binary())
    columns = {"key": good, "value": good, "name": good, "header value": good, use: corrupt}
    starts = pa.array(range(count + 1), pa.int32())
    headers = starts, columns["name"], columns["header value"]
    arguments = columns["key"], columns["value"], headers, None, None, [count], UNLIMITED, 1
    valid = all(0 <= start <= end <= len(data) for start, end in pairwise(offsets))
    if valid:
        both(arguments)
    else:
        with pytest.raises(ValueError, match="offsets outside its data"):
            accelerator().ColumnBatches(*arguments)
    if use == "key" and not valid:
        with pytest.raises(ValueError, match="offsets outside its data"):
            accelerator().key_partitions(corrupt, 6)
    if use in ("key", "value") and not valid:
        with pytest.raises(ValueError, match="offsets outside its data"):
            accelerator().row_digest(columns["value"], columns["key"], bytes(8))


@given(offsets=st.lists(st.integers(-5, 5), min_size=3, max_size=3))
def test_headers_outside_their_columns_are_refused(offsets: list[int]) -> None:
    good = pa.array([b"x"] * 2, pa.binary())
    arguments = None, good, (pa.array(offsets, pa.int32()), good, good), None, None, [2], 99, 1
    first, second, third = offsets
    if 0 <= first <= second <= third <= 2:
        accelerator().ColumnBatches(*arguments)
    else:
        with pytest.raises(ValueError, match="offsets outside its data"):
            accelerator().ColumnBatches(*arguments)


class Column:
    """The part of a pyarrow.Array that the accelerator reads; pyarrow refuses such buffers."""

    offset = 0
    null_count = 1

    def __init__(self, count: int, *buffers: bytes | None) -> None:
        self._count = count
        self._buffers = buffers

    def __len__(self) -> int:
        return self._count

    def buffers(self) -> tuple[bytes | None, ...]:
        return self._buffers


def test_buffers_that_are_too_short_are_refused() -> None:
    offsets = struct.pack("=10i", *range(10))
    for column in (
        Column(9, None, offsets[:-1], b"x" * 9),
        Column(9, None, None, b"x" * 9),
        Column(9, b"\xff", offsets, b"x" * 9),
        Column(9, None, offsets, b"x" * 8),
        Column(9, None, offsets, None),
        Column(sys.maxsize, None, offsets, b"x" * 9),
    ):
        with pytest.raises(ValueError, match="offsets outside its data"):
            accelerator().ColumnBatches(None, column, None, None, None, [9], 99, 1)
        with pytest.raises(ValueError, match="offsets outside its data"):
            accelerator().key_partitions(column, 6)
        with pytest.raises(ValueError, match="offsets outside its data"):
            accelerator().row_digest(column, None, bytes(8))
    good = Column(9, b"\xff\xff", offsets, b"x" * 9)
    numbers = Column(9, None, bytes(8 * 8))
    for timestamps, order in ((numbers, None), (None, numbers)):
        with pytest.raises(ValueError, match="offsets outside its data"):
            accelerator().ColumnBatches(None, good, None, timestamps, order, [9], 99, 1)
    accelerator().ColumnBatches(None, good, None, None, None, [9], 99, 1)


def test_rows_that_do_not_exist_are_refused() -> None:
    good = pa.array([b"x"] * 2, pa.binary())
    for order in ([0, 2], [2**64 - 1, 0]):
        with pytest.raises(ValueError, match="offsets outside its data"):
            accelerator().ColumnBatches(
                None, good, None, None, pa.array(order, pa.uint64()), [2], 99, 1
            )


@pytest.mark.parametrize("changed", [[0, 3, 400], [0, 2, 6], [0, -1, 3], [0, 3, 90]])
def test_memory_that_changes_meanwhile_is_not_followed(changed: list[int]) -> None:
    offsets = bytearray(struct.pack("=3i", 0, 3, 6))
    column = pa.Array.from_buffers(
        pa.binary(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"0123456789")]
    )
    batches = accelerator().ColumnBatches(None, column, None, None, None, [2], 99, 1)
    struct.pack_into("=3i", offsets, 0, *changed)
    if max(changed) <= 10 and changed == sorted(changed):
        assert len(batches.body(0)) == 2 * 7 + 6
    else:
        with pytest.raises(ValueError, match="offsets outside its data"):
            batches.body(0)


GOOD = pa.array([b"x", b"y"], pa.binary())
NUMBERS = pa.array([1], pa.int64())


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), TypeError),
        ((None, b"x", None, None, None, [1], 9, 1), AttributeError),
        ((None, None, None, None, None, [1], 9, 1), AttributeError),
        ((None, GOOD[:0], None, None, None, [], 9, 1), ValueError),
        ((GOOD[:1], GOOD, None, None, None, [2], 9, 1), ValueError),
        ((None, GOOD, None, NUMBERS, None, [2], 9, 1), ValueError),
        ((None, GOOD, None, None, NUMBERS, [2], 9, 1), ValueError),
        ((None, GOOD, (NUMBERS, GOOD, GOOD), None, None, [2], 9, 1), ValueError),
        ((None, GOOD, (1, 2), None, None, [2], 9, 1), TypeError),
        ((None, GOOD, 5, None, None, [2], 9, 1), TypeError),
        ((None, GOOD, None, None, None, [], 9, 1), ValueError),
        ((None, GOOD, None, None, None, [1], 9, 1), ValueError),
        ((None, GOOD, None, None, None, [0, 2], 9, 1), ValueError),
        ((None, GOOD, None, None, None, [2, 1], 9, 1), ValueError),
        ((None, GOOD, None, None, None, [3], 9, 1), ValueError),
        ((None, GOOD, None, None, None, [1, 2, 2], 9, 1), ValueError),
        ((None, GOOD, None, None, None, ["2"], 9, 1), TypeError),
        ((None, GOOD, None, None, None, (2,), 9, 1), TypeError),
        ((None, GOOD, None, None, None, [2], -1, 1), ValueError),
        ((None, GOOD, None, None, None, [2], 9, 11), ValueError),
        ((None, NUMBERS, None, None, None, [1], 9, 1), IndexError),
    ],
)
def test_wrong_arguments_raise(arguments: Arguments, error: type[Exception]) -> None:
    with pytest.raises(error):
        accelerator().ColumnBatches(*arguments)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), TypeError),
        ((GOOD, None), TypeError),
        ((GOOD, None, None), TypeError),
        ((b"x", None, bytes(8)), AttributeError),
        ((None, GOOD, bytes(8)), AttributeError),
        ((GOOD, GOOD[:1], bytes(8)), ValueError),
        ((GOOD, GOOD, bytes(0)), ValueError),
        ((GOOD, GOOD, bytes(15)), ValueError),
        ((GOOD, GOOD, bytes(24)), ValueError),
        ((NUMBERS, None, bytes(8)), IndexError),
    ],
)
def test_wrong_arguments_of_the_digest_raise(arguments: Arguments, error: type[Exception]) -> None:
    with pytest.raises(error):
        accelerator().row_digest(*arguments)


def test_there_are_only_the_batches_that_there_are() -> None:
    batches = accelerator().ColumnBatches(None, GOOD, None, None, None, [2], 99, 1)
    for index in (-1, 1, 1 << 40):
        with pytest.raises(IndexError):
            batches.body(index)
    with pytest.raises(TypeError):
        batches.body("0")
    with pytest.raises(TypeError):
        accelerator().ColumnBatches(None, GOOD, None, None, None, [2], 99, delta_size=1)


def nothing_is_left_behind(work: Callable[[], object]) -> None:
    """Fail if each repetition of ``work`` leaves memory or a reference. The least of some rounds
    counts, as pools of objects may grow in one.
    """
    watched = [GOOD, NUMBERS, None]
    tracemalloc.start()
    try:
        grown = []
        for _ in range(10):
            before = tracemalloc.get_traced_memory()[0], *map(sys.getrefcount, watched)
            for _ in range(300):
                work()
            gc.collect()
            after = tracemalloc.get_traced_memory()[0], *map(sys.getrefcount, watched)
            grown.append([new - old for old, new in zip(before, after, strict=True)])
    finally:
        tracemalloc.stop()
    memory, *references = map(min, zip(*grown, strict=True))
    assert memory < 300 * 16 and max(references) < 150, grown


@pytest.mark.usefixtures("quick_collections")
def test_nothing_leaks() -> None:
    starts, stamps = pa.array([0, 1, 2], pa.int32()), pa.array([1, 2], pa.int64())
    arguments = GOOD, GOOD, (starts, GOOD, GOOD), stamps, pa.array([1, 0], pa.uint64()), [2], 9, 9
    freed = pa.total_allocated_bytes()
    nothing_is_left_behind(lambda: outcome(accelerator().ColumnBatches(*arguments)))
    nothing_is_left_behind(lambda: accelerator().key_partitions(GOOD, 3))
    nothing_is_left_behind(lambda: accelerator().row_digest(GOOD, GOOD, bytes(16)))

    def refused() -> None:
        for wrong in (
            (None, GOOD, None, None, NUMBERS, [2], 9, 1),
            (GOOD, GOOD, (NUMBERS, GOOD, GOOD), None, None, [2], 9, 1),
            (None, GOOD, None, None, None, [1], 9, 1),
            (None, column_of([0, 50], b"abc"), None, None, None, [1], 9, 1),
        ):
            with pytest.raises(ValueError):
                accelerator().ColumnBatches(*wrong)
        with pytest.raises(ValueError):
            accelerator().row_digest(GOOD, GOOD[:1], bytes(8))

    nothing_is_left_behind(refused)
    assert pa.total_allocated_bytes() == freed


def test_columns_live_as_long_as_their_batches() -> None:
    def batches() -> Any:
        values = pa.array([b"%d" % number for number in range(1000)], pa.binary())
        return accelerator().ColumnBatches(None, values, None, None, None, [1000], 1 << 20, 1)

    lasting = batches()
    gc.collect()
    assert EncodedRecords(lasting.body(0), 1000, 0, 0, None).body == batches().body(0)
