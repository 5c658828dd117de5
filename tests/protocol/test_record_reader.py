"""Reading fetched bytes: the same records as aiokafka reads, without partial and control batches;
one kind of error for invalid bytes.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from aioprod.codecs import Codec
from aioprod.errors import CorruptRecordError, ProtocolError
from aioprod.protocol.batch_cursor import iter_batches
from aioprod.protocol.compression import compress
from aioprod.protocol.record_batch import build_batch, read_header
from aioprod.protocol.record_reader import (
    Record,
    read_batch_records,
    read_columns,
    read_records,
)
from aioprod.varints import encode_varint
from tests.protocol.record_bytes import BASE, batch_of, handmade, headers, record, timestamps

entries = st.lists(
    st.tuples(
        timestamps,
        st.none() | st.binary(max_size=300),
        st.none() | st.binary(max_size=300),
        headers,
    ),
    max_size=70,
)
PLAIN = record(0, 0, -1, 1, b"v", 0)


@pytest.mark.parametrize("codec", Codec)
@given(records=entries)
def test_what_was_written_is_read(codec: Codec, records: list[Any]) -> None:
    built = (
        batch_of(records, codec)
        if records
        else build_batch(
            compress(codec, b""),
            attributes=codec,
            last_offset_delta=0,
            base_timestamp=0,
            max_timestamp=0,
            record_count=0,
        )
    )
    expected = [
        Record(offset, timestamp, 0, key, value, tuple(headers))
        for offset, (timestamp, key, value, headers) in enumerate(records)
    ]
    assert read_records(built) == expected
    columns = read_columns(memoryview(b"12" + built), 2, read_header(built))
    assert list(zip(*columns, strict=True)) == [
        (r.offset, r.timestamp, r.key, r.value, r.headers) for r in expected
    ]


@pytest.mark.parametrize("codec", Codec)
@given(records=entries.filter(bool))
def test_what_aiokafka_wrote_is_read_as_aiokafka_reads_it(codec: Codec, records: list[Any]) -> None:
    builder = DefaultRecordBatchBuilder(2, int(codec), 0, -1, -1, -1, 1 << 30)
    for offset, entry in enumerate(records):
        builder.append(offset, *entry)
    built = bytes(builder.build())
    theirs = [
        Record(r.offset, r.timestamp, r.timestamp_type, r.key, r.value, tuple(r.headers))
        for r in DefaultRecordBatch(built)
    ]
    assert read_records(built) == theirs


def test_a_brokers_own_batch_is_read() -> None:
    from_kafka = bytes.fromhex(  # Kafka 0.11: two records with empty values, 168 ms apart
        "0000000000000001 00000040 00000002 02 c85cbd23 0000 00000001 0000015dff7cdd6c "
        "0000015dff7cde14"
        "ffffffffffffffff ffff ffffffff 00000002 0c000000010000 0e00d00202010000"
    )
    assert read_records(from_kafka) == [
        Record(1, 1503229959532, 0, None, b"", ()),
        Record(2, 1503229959700, 0, None, b"", ()),
    ]


class TestBatches:
    def test_batches_follow_one_another_and_a_partial_last_one_is_left_out(self) -> None:
        first, second = (
            batch_of([(BASE, None, b"1")]),
            batch_of([(BASE, None, b"2"), (BASE, b"k", None)]),
        )
        data = first + second
        assert [(header.record_count, position) for header, position in iter_batches(data)] == [
            (1, 0),
            (2, len(first)),
        ]
        for end in range(len(first), len(data)):
            assert [position for _, position in iter_batches(data[:end])] == [0]
        for end in range(len(first)):
            assert list(iter_batches(data[:end])) == []
            assert read_records(data[:end]) == []

    def test_control_batches_are_left_out_but_can_be_read(self) -> None:
        marker = handmade(
            record(0, 0, 4, struct.pack(">hh", 0, 1), 6, struct.pack(">hi", 0, 3), 0),
            attributes=0x30,
        )
        data = marker + batch_of([(BASE, None, b"v")])
        assert [record.value for record in read_records(data)] == [b"v"]
        (read,) = read_batch_records(data, 0, read_header(data))
        assert read.key == struct.pack(">hh", 0, 1)

    def test_log_append_time_replaces_every_timestamp(self) -> None:
        data = handmade(PLAIN, record(7, 1, -1, -1, 0), attributes=0x08)
        assert [(r.timestamp, r.timestamp_type) for r in read_records(data)] == [
            (BASE + 9, 1),
            (BASE + 9, 1),
        ]

    def test_offsets_have_gaps_after_compaction(self) -> None:
        deltas = [3, 4, 70, 71, 9000, 9001, 70_000]
        data = handmade(*(record(0, delta, -1, -1, 0) for delta in deltas), last_delta=70_005)
        assert [r.offset for r in read_records(data)] == [50 + delta for delta in deltas]
        assert read_header(data).last_offset == 70_055

    def test_negative_timestamp_deltas(self) -> None:
        deltas = [0, -1, -64, -65, -8192, -8193, 1 << 40, -(1 << 40)]
        data = handmade(*(record(delta, index, -1, -1, 0) for index, delta in enumerate(deltas)))
        assert [r.timestamp - BASE for r in read_records(data)] == deltas

    def test_the_unused_attributes_of_a_record_are_ignored(self) -> None:
        assert read_records(handmade(PLAIN[:1] + b"\xff" + PLAIN[2:])) == read_records(
            handmade(PLAIN)
        )

    def test_longer_varints_than_needed_are_read(self) -> None:
        body = (
            b"\0" + b"\x82\x80\x00" + b"\x80\x80\x00" + b"\x80\x00" + b"\x82\x80\x00v" + b"\x80\x00"
        )
        assert read_records(handmade(encode_varint(len(body)) + body)) == [
            Record(50, BASE + 1, 0, b"", b"v", ())
        ]


class TestGarbage:
    def test_a_wrong_checksum_is_found_unless_asked_not_to_look(self) -> None:
        data = bytearray(batch_of([(BASE, None, b"value")]))
        data[-3] ^= 1
        with pytest.raises(CorruptRecordError, match="checksum"):
            read_records(data)
        assert len(read_records(data, check_crc=False)) == 1

    @pytest.mark.parametrize(
        ("broken", "words"),
        [
            pytest.param(
                handmade(PLAIN, count=2), "2 records in", id="fewer records than the header says"
            ),
            pytest.param(
                handmade(PLAIN, PLAIN, count=1),
                "8 of 16 bytes of a batch",
                id="more bytes than records",
            ),
            pytest.param(
                handmade(PLAIN, b"1234567", count=2),
                "runs past|length does not match|bytes of a batch|63 bits|negative",
                id="a record of garbage",
            ),
            pytest.param(
                handmade(PLAIN, count=(1 << 31) - 1),
                "2,147,483,647 records in",
                id="a count that would take all memory",
            ),
            pytest.param(
                handmade(encode_varint(9) + PLAIN[1:]),
                "length does not match",
                id="a wrong record length",
            ),
            pytest.param(
                handmade(encode_varint(-8) + PLAIN[1:]),
                "length does not match",
                id="a negative record length",
            ),
            pytest.param(
                handmade(record(0, 0, -1, 500, b"v", 0)),
                "runs past",
                id="a value longer than the batch",
            ),
            pytest.param(
                handmade(record(0, 0, 1 << 60, 1, b"v", 0)), "runs past", id="a key of an exabyte"
            ),
            pytest.param(
                handmade(record(0, -1, -1, 1, b"v", 0)),
                "offset delta -1 of record 0 is too small",
                id="an offset before the base",
            ),
            pytest.param(
                handmade(record(0, 1001, -1, 1, b"v", 0)),
                "above the batch's last",
                id="an offset after the last",
            ),
            pytest.param(
                handmade(PLAIN, base_offset=-1), "impossible", id="a negative base offset"
            ),
            pytest.param(
                handmade(record(b"\xff" * 10, b"\0", 0, -1, -1, 0)),
                "64 bits",
                id="an endless varint",
            ),
            pytest.param(
                handmade(record(0, 0, -1, -1, -1)),
                "negative number of headers",
                id="a negative number of headers",
            ),
            pytest.param(
                handmade(record(0, 0, -1, -1, 99)),
                "99 record headers",
                id="a number of headers that can't be",
            ),
            pytest.param(
                handmade(record(0, 0, -1, -1, 1, -1, -1)),
                "negative length of a header",
                id="a header without a name",
            ),
            pytest.param(
                handmade(record(0, 0, -1, -1, 1, 1, b"n", 900)),
                "length does not match",
                id="a header's value longer than the batch",
            ),
            pytest.param(
                handmade(b"not zstd at all", count=1, attributes=4),
                "zstd",
                id="bytes that the codec refuses",
            ),
            pytest.param(handmade(PLAIN, attributes=6), "codec 6", id="an unknown codec"),
        ],
    )
    def test_broken_records_with_a_right_checksum(self, broken: bytes, words: str) -> None:
        with pytest.raises(CorruptRecordError, match=words):
            read_records(broken)

    def test_a_bomb_in_a_batch_is_stopped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("aioprod.protocol.record_reader.MAX_DECOMPRESSED_SIZE", 1 << 20)
        with pytest.raises(CorruptRecordError, match="limit of 1048576 bytes"):
            read_records(handmade(compress(Codec.ZSTD, bytes(50 << 20)), attributes=4))

    @given(data=st.binary(max_size=300))
    def test_any_bytes(self, data: bytes) -> None:
        try:
            read_records(data)
        except ProtocolError:
            pass

    @given(
        body=st.binary(max_size=120),
        count=st.integers(0, 12),
        codec=st.sampled_from(Codec),
        last_delta=st.integers(0, 100),
    )
    def test_any_bytes_as_records(
        self, body: bytes, count: int, codec: Codec, last_delta: int
    ) -> None:
        try:
            read = read_records(
                handmade(
                    compress(codec, body), count=count, attributes=codec, last_delta=last_delta
                )
            )
        except CorruptRecordError:
            return
        assert len(read) == count
        for r in read:
            assert -(1 << 63) <= r.timestamp < 1 << 63
            assert 50 <= r.offset <= 50 + last_delta

    @given(
        records=entries.filter(bool),
        changes=st.lists(
            st.tuples(st.integers(0, 100_000), st.integers(0, 255)), min_size=1, max_size=4
        ),
    )
    def test_changed_bytes_without_a_checksum(
        self, records: list[Any], changes: list[tuple[int, int]]
    ) -> None:
        data = bytearray(batch_of(records))
        for at, byte in changes:
            data[at % len(data)] = byte
        try:
            for header, position in iter_batches(data, check_crc=False):
                read_batch_records(data, position, header)
        except ProtocolError:
            pass

    def test_a_batch_that_is_not_all_there_is_refused_when_asked_for(self) -> None:
        built = batch_of([(BASE, None, b"value")])
        with pytest.raises(CorruptRecordError, match="bytes"):
            read_batch_records(built[:-1], 0, read_header(built))
