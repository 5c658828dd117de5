"""How a write task takes Spark's Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod.spark import sending


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([b"%d" % value for value in values], pa.binary())})


async def taken(batches: Iterator[pa.RecordBatch]) -> list[list[bytes]]:
    return [portion.column("value").to_pylist() async for portion in sending.portions(batches)]


@given(st.lists(st.lists(st.integers(0, 99), max_size=3), max_size=12))
async def test_all_rows_come_in_their_order_and_no_batch_is_empty(rows: list[list[int]]) -> None:
    found = await taken(iter([batch(*each) for each in rows]))
    assert [value for portion in found for value in portion] == [
        b"%d" % value for each in rows for value in each
    ]
    assert all(found)


async def test_the_first_rows_come_at_once_and_others_together() -> None:
    assert await taken(iter([batch(), batch(1), batch(2), batch(), batch(3, 4)])) == [
        [b"1"],
        [b"2", b"3", b"4"],
    ]


async def test_a_portion_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_PORTION_BYTES", 2 * batch(1).nbytes)
    assert await taken(batch(value) for value in range(6)) == [
        [b"0"],
        [b"1", b"2"],
        [b"3", b"4"],
        [b"5"],
    ]


async def test_rows_that_come_slowly_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("aioprod.spark.sending.time.monotonic", lambda: clock[0])

    def slowly() -> Iterator[pa.RecordBatch]:
        for value in range(4):
            clock[0] += 0.03
            yield batch(value)

    assert await taken(slowly()) == [[b"0"], [b"1", b"2"], [b"3"]]
