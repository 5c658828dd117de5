"""The producer's encoder agrees with three others: aiokafka's builder byte by byte, aiokafka's
reader, and kio's.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import Any

import pytest
from aiokafka.record.default_records import (
    DefaultRecordBatch,
    DefaultRecordBatchBuilder,
    _DefaultRecordBatchBuilderPy,
    _DefaultRecordBatchPy,
)
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.records.readers import read_batch

from aioprod.codecs import Codec
from aioprod.protocol.record_batch import HEADER_SIZE, check_crc, read_header
from aioprod.protocol.record_encoder import (
    NO_HEADERS,
    encode_headers,
    encode_record,
    encode_records,
    estimate_upper_bound,
)
from aioprod.protocol.record_writer import RecordBatchWriter
from aioprod.varints import encode_varint, varint_size

BASE = 1_700_000_000_000

Entry = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

entries = st.lists(
    st.tuples(
        st.one_of(
            st.just(BASE), st.integers(BASE - 200, BASE + 20_000), st.integers(0, 4_000_000_000_000)
        ),
        st.none() | st.binary(max_size=80),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=10)), max_size=3),
    ),
    min_size=1,
    max_size=20,
)


def written(records: list[Entry]) -> RecordBatchWriter:
    writer = RecordBatchWriter(records[0][0])
    for timestamp, key, value, headers in records:
        writer.append(timestamp, key, value, headers)
    return writer


def timestamps_of(writer: RecordBatchWriter) -> list[int]:
    starts, timestamps = writer.timestamp_runs
    return [timestamps[bisect_right(starts, index) - 1] for index in range(writer.count)]


def by_aiokafka(builder_type: Any, records: list[Entry], codec: Codec = Codec.NONE) -> bytes:
    builder = builder_type(2, int(codec), 1, 4321, 7, 99, 1 << 30)
    for offset, (timestamp, key, value, headers) in enumerate(records):
        assert builder.append(offset, timestamp, key, value, headers) is not None
    return bytes(builder.build())


@pytest.mark.parametrize("builder_type", [DefaultRecordBatchBuilder, _DefaultRecordBatchBuilderPy])
@given(records=entries)
def test_the_bytes_are_those_of_aiokafka(builder_type: Any, records: list[Entry]) -> None:
    ours = written(records).build(
        producer_id=4321, producer_epoch=7, base_sequence=99, transactional=True
    )
    theirs = bytearray(by_aiokafka(builder_type, records))
    # aiokafka's builders set the leader epoch to 0 or -1; brokers ignore it.
    theirs[12:16] = ours[12:16]
    assert ours == theirs


@pytest.mark.parametrize("reader_type", [DefaultRecordBatch, _DefaultRecordBatchPy])
@pytest.mark.parametrize("codec", Codec)
def test_aiokafka_reads_every_codec(reader_type: Any, codec: Codec) -> None:
    records: list[Entry] = [
        (BASE + index // 3, b"k%d" % index, b"v" * index, [("h", b"%d" % index)])
        for index in range(300)
    ]
    batch = reader_type(written(records).build(codec=codec))
    assert batch.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch] == [
        (i, *record) for i, record in enumerate(records)
    ]


@given(records=entries)
def test_kio_reads_it(records: list[Entry]) -> None:
    built = written(records).build()
    batch, size = read_batch(built, 0)
    assert size == len(built)
    assert [
        (r.offset, r.key, r.value, [(h.key, h.value) for h in r.headers]) for r in batch.records
    ] == [
        (index, key, value, [(name.encode(), data) for name, data in headers])
        for index, (_, key, value, headers) in enumerate(records)
    ]


@pytest.mark.parametrize(
    "length", [0, 1, 52, 63, 64, 8191, 8192, 16383, 16384, 1_048_575, 1_048_576, 1_100_000]
)
@pytest.mark.parametrize("field", ["key", "value", "header"])
def test_lengths_on_both_sides_of_the_tables_end(length: int, field: str) -> None:
    data = b"d" * length
    record: Entry = (
        BASE,
        data if field == "key" else None,
        data if field == "value" else b"",
        [("name", data)] if field == "header" else [],
    )
    writer = written([record])
    assert writer.size <= estimate_upper_bound(*record[1:]) - HEADER_SIZE
    batch = DefaultRecordBatch(writer.build())
    (read,) = batch
    assert (read.timestamp, read.key, read.value, read.headers) == record


def test_more_records_than_the_tables_keep() -> None:
    records: list[Entry] = [(BASE, None, b"", []) for _ in range(16_400)] + [
        (BASE, b"key", b"value", [])
    ]
    batch = DefaultRecordBatch(written(records).build())
    read = list(batch)
    assert [record.offset for record in read] == list(range(16_401))
    assert read[-1].key == b"key"


@pytest.mark.parametrize(
    "first", [0, 1, 50, 63, 64, 8100, 8191, 8192, 16_300, 16_384, (1 << 20) - 3]
)
@settings(max_examples=30)
@given(data=st.data(), keyed=st.booleans(), headed=st.booleans())
def test_many_at_once_are_the_same_bytes_as_one_by_one(
    data: st.DataObject, keyed: bool, headed: bool, first: int
) -> None:
    lengths = st.one_of(st.integers(0, 70), st.sampled_from([8190, 8191, 8192, 16_383, 16_384]))
    count = data.draw(st.integers(1, 150))
    sizes = data.draw(
        st.lists(st.tuples(lengths, st.integers(0, 70)), min_size=count, max_size=count)
    )
    values = [b"v" * value for value, _ in sizes]
    keys = [b"k" * key for _, key in sizes] if keyed else []
    headers = (
        [encode_headers([("name", b"h" * key), ("other", None)]) for _, key in sizes]
        if headed
        else []
    )
    starts = sorted({0, *data.draw(st.lists(st.integers(0, count - 1), max_size=12))})
    delta_of_run = st.one_of(st.integers(-70, 70), st.integers(-9000, 9000), st.just(1 << 40))
    deltas = data.draw(st.lists(delta_of_run, min_size=len(starts), max_size=len(starts)))
    expected = b""
    for index, value in enumerate(values):
        delta = deltas[max(at for at, start in enumerate(starts) if start <= index)]
        expected += encode_record(
            delta,
            first + index,
            keys[index] if keyed else None,
            value,
            headers[index] if headed else NO_HEADERS,
        )
    assert encode_records(first, keys, values, headers, starts, deltas) == expected


@given(records=entries)
def test_records_that_were_encoded_elsewhere_are_as_ours(records: list[Entry]) -> None:
    ours = written(records)
    times = [record[0] for record in records]
    timestamps = times if len(set(times)) > 1 else None
    taken = RecordBatchWriter.of_encoded(
        ours.body(), ours.count, ours.base_timestamp, ours.max_timestamp, timestamps
    )
    assert taken.size == ours.size
    assert timestamps_of(taken) == timestamps_of(ours)
    assert taken.build(codec=Codec.LZ4, base_sequence=5) == ours.build(
        codec=Codec.LZ4, base_sequence=5
    )
    taken.release()
    assert timestamps_of(taken) == times


@given(records=entries, folds=st.sets(st.integers(0, 20)))
def test_size_is_an_upper_bound_and_exact_after_a_fold(
    records: list[Entry], folds: set[int]
) -> None:
    whole = written(records).build()
    writer = RecordBatchWriter(records[0][0])
    for index, record in enumerate(records):
        writer.append(*record)
        if index in folds:
            before = writer.size
            writer.encode_pending()
            # Distant timestamps take more bytes than the bound assumes.
            assert writer.size == len(writer.build()) - HEADER_SIZE <= before + 20
    assert writer.build() == whole
    assert writer.size == len(whole) - HEADER_SIZE


def test_what_is_assumed_of_a_records_size_is_enough() -> None:
    for size in (0, 1, 63, 64, 8191, 8192, 100_000):
        for key in (None, b"k" * 100):
            writer = RecordBatchWriter(BASE)
            for index in range(70):
                writer.append(BASE + index * 10, key, b"v" * size)
            assumed = writer.size
            writer.encode_pending()
            assert assumed - 70 * 8 <= writer.size <= assumed


@pytest.mark.parametrize(
    "headers",
    [
        [("n", "text")],
        [("n", 5)],
        [(b"n", b"")],
        [("n", bytearray(b"x"))],
        [("n", memoryview(b"x"))],
        "ab",
        {"ab": b""},
        5,
    ],
)
def test_headers_that_are_none_are_refused(headers: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode_headers(headers)


def test_names_of_headers_are_remembered_within_bounds() -> None:
    for number in range(5_000):
        assert encode_headers([(f"name {number}", b"")])[2:] == f"name {number}".encode() + b"\0"
    assert (
        encode_headers([("x" * 300, None)])
        == encode_varint(1) + encode_varint(300) + b"x" * 300 + b"\x01"
    )


@given(records=entries)
def test_timestamps_are_remembered_by_index(records: list[Entry]) -> None:
    writer = written(records)
    timestamps = [timestamp for timestamp, *_ in records]
    assert timestamps_of(writer) == timestamps
    assert writer.max_timestamp == max(timestamps)


@given(records=entries)
def test_the_upper_bound_is_true_and_is_near(records: list[Entry]) -> None:
    for timestamp, key, value, headers in records:
        bound = estimate_upper_bound(key, value, headers)
        for base in (timestamp, 0, 1 << 62):
            writer = RecordBatchWriter(base)
            writer.append(timestamp, key, value, headers)
            assert bound - 20 <= len(writer.build()) <= bound or base != timestamp
            assert len(writer.build()) <= bound


def test_the_upper_bound_is_javas() -> None:
    # DefaultRecordBatch.estimateBatchSizeUpperBound: 61 + 21 + key, value and headers with their
    # varint lengths.
    assert estimate_upper_bound(None, None) == 61 + 21 + 1 + 1 + 1
    assert estimate_upper_bound(b"k", b"v" * 64, [("h", None), ("i", b"1")]) == 61 + 21 + (
        1 + 1
    ) + (2 + 64) + 1 + (1 + 1 + 1) + (1 + 1 + 1 + 1)


@pytest.mark.parametrize(
    ("key", "value"), [("text", b""), (b"", "text"), (1, b""), (b"", 1), (None, [1])]
)
def test_a_record_that_is_not_bytes_changes_nothing(key: Any, value: Any) -> None:
    writer = RecordBatchWriter(BASE)
    writer.append(BASE, None, b"first")
    before = writer.build()
    for timestamp in (BASE, BASE + 5):
        with pytest.raises(TypeError):
            writer.append(timestamp, key, value)
    assert writer.build() == before
    assert (writer.count, writer.max_timestamp) == (1, BASE)
    assert list(map(list, writer.timestamp_runs)) == [[0], [BASE]]


def test_a_timestamp_too_far_away_changes_nothing() -> None:
    writer = RecordBatchWriter(-(1 << 62))
    with pytest.raises(OverflowError):
        writer.append(1 << 63, None, b"")
    assert (writer.count, writer.size, writer.max_timestamp) == (0, 0, -(1 << 62))


def test_bytearray_and_memoryview_are_copied_at_append() -> None:
    data = bytearray(b"before")
    writer = RecordBatchWriter(BASE)
    writer.append(BASE, data, memoryview(data))  # type: ignore[arg-type]
    data[:] = b"behind"
    (read,) = DefaultRecordBatch(writer.build())
    assert (read.key, read.value) == (b"before", b"before")


def test_building_again_with_another_sequence_changes_only_that() -> None:
    writer = RecordBatchWriter(BASE)
    writer.append(BASE, b"k", b"v")
    first = writer.build(
        codec=Codec.ZSTD, level=1, producer_id=5, producer_epoch=1, base_sequence=10
    )
    again = writer.build(
        codec=Codec.ZSTD, level=1, producer_id=5, producer_epoch=2, base_sequence=0
    )
    assert first[HEADER_SIZE:] == again[HEADER_SIZE:]
    header = read_header(again)
    check_crc(again, 0, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.codec) == (
        5,
        2,
        0,
        Codec.ZSTD,
    )


def test_header_of_a_built_batch() -> None:
    writer = RecordBatchWriter(BASE)
    for timestamp in (BASE, BASE + 40, BASE - 3):
        writer.append(timestamp, None, b"v")
    built = writer.build(
        codec=Codec.LZ4,
        transactional=True,
        producer_id=1,
        producer_epoch=0,
        base_sequence=2147483647,
    )
    assert struct.unpack_from(">qiibI", built) == (0, len(built) - 12, -1, 2, crc32c(built[21:]))
    assert struct.unpack_from(">hiqqqhii", built, 21) == (
        0x13,
        2,
        BASE,
        BASE + 40,
        1,
        0,
        2147483647,
        3,
    )


@given(number=st.integers(-(1 << 63), (1 << 63) - 1))
def test_varint_size_is_its_length(number: int) -> None:
    assert varint_size(number) == len(encode_varint(number))


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (2147483647, "feffffff0f"),
        ((1 << 63) - 1, "feffffffffffffffff01"),
        (-(1 << 63), "ffffffffffffffffff01"),
    ],
)
def test_varints_known_from_kafkas_tests(number: int, encoded: str) -> None:
    assert encode_varint(number).hex() == encoded
