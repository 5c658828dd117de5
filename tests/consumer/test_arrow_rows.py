"""Columns that are made of records, as those of small batches are, equal those that are read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod import native
from aioprod.consumer.fetched_data import FetchedData
from aioprod.consumer.subscription import PartitionState, Position
from aioprod.header_names import decode_name
from aioprod.protocol.record_batch import build_batch
from aioprod.protocol.record_encoder import encode_headers, encode_record
from aioprod.types import TopicPartition

pa: Any = pytest.importorskip("pyarrow")

LOG_APPEND_TIME = 8
BASE_MS = 1_700_000_000_000
MANY = 1_000_000

data = st.none() | st.binary(max_size=9)
names = st.sampled_from([b"", b"trace", "é".encode(), b"\xff\x80", "\uef80".encode()])
headers = st.lists(st.tuples(names.map(decode_name), data), max_size=3)
records = st.tuples(st.integers(-5, 300), data, data, headers)
batches = st.lists(
    st.tuples(st.lists(records, min_size=1, max_size=12), st.booleans()), min_size=1, max_size=8
)


def encoded(
    drawn: list[tuple[list[tuple[int, bytes | None, bytes | None, Any]], bool]],
) -> bytes:
    parts: list[bytes] = []
    base = 0
    for rows, append_time in drawn:
        body = b"".join(
            encode_record(stamp, index, key, value, encode_headers(tuple(entries)))
            for index, (stamp, key, value, entries) in enumerate(rows)
        )
        parts.append(
            build_batch(
                body,
                attributes=LOG_APPEND_TIME if append_time else 0,
                last_offset_delta=len(rows) - 1,
                base_timestamp=BASE_MS,
                max_timestamp=BASE_MS + 300,
                record_count=len(rows),
                base_offset=base,
                leader_epoch=3,
            )
        )
        base += len(rows) + 1
    return b"".join(parts)


def read(fetched: FetchedData) -> Any:
    parts: list[Any] = []
    while some := fetched.take_arrow(MANY):
        parts += some
    return pa.Table.from_batches(parts).combine_chunks()


def fetched(encoded: bytes, *, as_records: bool) -> FetchedData:
    state = PartitionState(TopicPartition("topic", 7))
    found = FetchedData(state, encoded, Position(0), None, None, check_crcs=True)
    found._as_records = as_records
    return found


@given(batches, st.integers(1, 20))
def test_small_batches_may_be_read_in_parts(drawn: Any, limit: int) -> None:
    whole = read(fetched(encoded(drawn), as_records=False))
    source = fetched(encoded(drawn), as_records=True)
    parts: list[Any] = []
    while some := source.take_arrow(limit):
        parts += some
        assert source.position.offset == parts[-1].column("offset")[-1].as_py() + 1
    assert pa.Table.from_batches(parts).combine_chunks().equals(whole)
    assert source.position == source.following


@given(batches)
def test_columns_of_records_equal_columns_of_batches(drawn: Any) -> None:
    both = [read(fetched(encoded(drawn), as_records=each)) for each in (True, False)]
    assert both[0].num_rows == sum(len(rows) for rows, _ in drawn)
    both[0].validate(full=True)
    assert both[0].equals(both[1])


@pytest.mark.skipif(not native.in_use, reason="Python reads all batches as columns")
@pytest.mark.parametrize(("size", "expected"), [(1, True), (7, True), (8, False), (500, False)])
def test_batches_of_few_records_are_read_as_records(
    monkeypatch: pytest.MonkeyPatch, size: int, expected: bool
) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("read as columns")

    monkeypatch.setattr("aioprod.consumer.arrow_tables.read_arrays", refuse)
    source = fetched(encoded([([(0, None, b"v", [])] * size, False)] * 4), as_records=True)
    if expected:
        assert read(source).num_rows == 4 * size
    else:
        with pytest.raises(AssertionError, match="as columns"):
            read(source)
