"""Records that are made when they are looked at are a sequence like any other."""

from __future__ import annotations

import gc

import pytest

from aioprod.consumer.fetched_data import FetchedData
from aioprod.consumer.records import Records
from aioprod.consumer.subscription import PartitionState, Position
from aioprod.protocol.record_batch import set_base_offset
from aioprod.protocol.record_writer import RecordBatchWriter
from aioprod.types import ConsumerRecord, TopicPartition

TP = TopicPartition("t", 3)
STAMP = 1_700_000_000_000
SIZES = (150, 1, 70)


def fetched() -> FetchedData:
    """Batches of 150, 1 and 70 records."""
    data = bytearray()
    offset = 0
    for size in SIZES:
        writer = RecordBatchWriter(STAMP)
        for number in range(offset, offset + size):
            writer.append(STAMP + number, b"%d" % (number % 3), b"%d" % number, [("h", None)])
        batch = bytearray(writer.build())
        set_base_offset(batch, 0, offset, 7)
        data += batch
        offset += size
    return FetchedData(PartitionState(TP), bytes(data), Position(0), None, None, check_crcs=True)


def expected(first: int, end: int) -> list[ConsumerRecord]:
    return [
        ConsumerRecord("t", 3, n, STAMP + n, 0, b"%d" % (n % 3), b"%d" % n, (("h", None),), 7)
        for n in range(first, end)
    ]


def test_records_of_several_batches_are_one_sequence() -> None:
    data = fetched()
    first, second = data.take(160), data.take(1_000)
    assert data.take(10) == []
    assert first == expected(0, 160)
    assert list(second) == expected(160, 221)
    assert [*first, *second] == expected(0, 221)
    assert list(first) == list(first), "it can be gone through again"
    assert len(first) == 160
    assert isinstance(first[0], ConsumerRecord)


def test_places_and_slices_are_those_of_a_list() -> None:
    records = fetched().take(200)
    wanted = expected(0, 200)
    for place in (0, 1, 149, 150, 151, 199, -1, -200):
        assert records[place] == wanted[place]
    for part in (slice(0, 3), slice(148, 153), slice(None, None, -1), slice(500, None)):
        assert records[part] == wanted[part]
    for place in (200, -201, 5_000):
        with pytest.raises(IndexError):
            records[place]


def test_records_are_equal_to_the_same_records_only() -> None:
    records = fetched().take(10)
    assert records == fetched().take(10)
    assert records != expected(0, 9)
    assert records != expected(1, 11)
    other: object = "0123456789"
    assert records != other
    assert Records(()) == []
    assert not list(Records(()))
    assert repr(Records(())) == "Records([])"


def test_records_without_a_reference_are_gone_soon() -> None:
    records = fetched().take(221)
    gc.collect()
    most = before = len(gc.get_objects())
    for record in records:
        if record.offset % 10 == 0:
            most = max(most, len(gc.get_objects()))
    assert most - before < 100
