"""The batch header: each field at its place, the checksum over the right bytes, and only
CorruptRecordError for invalid bytes.
"""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from aioprod.codecs import Codec
from aioprod.errors import CorruptRecordError
from aioprod.protocol.record_batch import (
    HEADER_SIZE,
    BatchHeader,
    build_batch,
    check_crc,
    read_header,
    set_base_offset,
)

#: A batch that a Kafka 0.11 broker sent: one record, value "123".
FROM_KAFKA = bytes.fromhex(
    "00000000000000000000003b000000010203 18a270000000000000 0000015dff7b063c "
    "0000015dff7b063c ffffffffffffffff ffff ffffffff 00000001"
    "1200000001 06313233 00"
)

INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
COUNT = st.integers(0, (1 << 31) - 1)


def test_a_brokers_batch_is_read_field_by_field() -> None:
    header = read_header(FROM_KAFKA)
    assert header == BatchHeader(
        base_offset=0,
        batch_length=59,
        partition_leader_epoch=1,
        magic=2,
        crc=0x0318A270,
        attributes=0,
        last_offset_delta=0,
        base_timestamp=1503229838908,
        max_timestamp=1503229838908,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=1,
    )
    check_crc(FROM_KAFKA, 0, header)
    assert header.size_in_bytes == len(FROM_KAFKA)


def test_what_a_broker_built_is_built_the_same() -> None:
    built = build_batch(
        FROM_KAFKA[HEADER_SIZE:],
        attributes=0,
        last_offset_delta=0,
        base_timestamp=1503229838908,
        max_timestamp=1503229838908,
        record_count=1,
        leader_epoch=1,
    )
    assert built == FROM_KAFKA


@given(
    body=st.binary(max_size=100),
    attributes=INT16,
    last_offset_delta=COUNT,
    base_timestamp=INT64,
    max_timestamp=INT64,
    record_count=COUNT,
    producer_id=INT64,
    producer_epoch=INT16,
    base_sequence=INT32,
    base_offset=INT64,
    leader_epoch=INT32,
    before=st.binary(max_size=70),
)
def test_every_field_comes_back(
    body: bytes,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    base_offset: int,
    leader_epoch: int,
    before: bytes,
) -> None:
    built = build_batch(
        body,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=record_count,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )
    data = before + built + b"behind"
    header = read_header(data, len(before))
    check_crc(data, len(before), header)
    assert header == BatchHeader(
        base_offset,
        49 + len(body),
        leader_epoch,
        2,
        crc32c(built[21:]),
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    assert header.size_in_bytes == len(built)
    assert header.last_offset == base_offset + last_offset_delta


@pytest.mark.parametrize(
    ("attributes", "codec", "timestamp_type", "transactional", "control"),
    [
        (0, 0, 0, False, False),
        (4, 4, 0, False, False),
        (8 | 3, 3, 1, False, False),
        (16 | 2, 2, 0, True, False),
        (32 | 16 | 1, 1, 0, True, True),
    ],
)
def test_attribute_bits(
    attributes: int, codec: int, timestamp_type: int, transactional: bool, control: bool
) -> None:
    header = read_header(
        build_batch(
            b"",
            attributes=attributes,
            last_offset_delta=0,
            base_timestamp=0,
            max_timestamp=0,
            record_count=0,
        )
    )
    assert (header.codec, header.timestamp_type, header.is_transactional, header.is_control) == (
        Codec(codec),
        timestamp_type,
        transactional,
        control,
    )


@pytest.mark.parametrize("number", [5, 6, 7])
def test_an_unknown_codec_is_corrupt(number: int) -> None:
    header = read_header(
        build_batch(
            b"",
            attributes=number,
            last_offset_delta=0,
            base_timestamp=0,
            max_timestamp=0,
            record_count=0,
        )
    )
    with pytest.raises(CorruptRecordError, match=f"codec {number}"):
        _ = header.codec


def test_setting_the_offset_leaves_the_checksum_valid() -> None:
    buffer = bytearray(b"xx" + FROM_KAFKA)
    set_base_offset(buffer, 2, 1 << 40, 77)
    header = read_header(buffer, 2)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 77)
    check_crc(buffer, 2, header)
    buffer.append(0)  # no view of the buffer remains


@pytest.mark.parametrize("at", range(17, len(FROM_KAFKA)))
def test_a_flipped_bit_under_the_checksum_is_found(at: int) -> None:
    broken = bytearray(FROM_KAFKA)
    broken[at] ^= 0x01
    with pytest.raises(CorruptRecordError):
        check_crc(broken, 0, read_header(broken))


def test_missing_bytes_are_found() -> None:
    header = read_header(FROM_KAFKA)
    with pytest.raises(
        CorruptRecordError, match=f"{len(FROM_KAFKA) - 1} of {len(FROM_KAFKA)} bytes"
    ):
        check_crc(FROM_KAFKA[:-1], 0, header)
    for end in range(HEADER_SIZE):
        with pytest.raises(CorruptRecordError, match="fewer than the 61 of its header"):
            read_header(FROM_KAFKA[:end])


@pytest.mark.parametrize(
    ("offset", "layout", "value", "words"),
    [
        (8, ">i", 48, "impossible length 48"),
        (8, ">i", -1, "impossible length -1"),
        (16, ">b", 1, "magic. 1"),
        (23, ">i", -1, "impossible counts"),
        (57, ">i", -1, "impossible counts"),
    ],
)
def test_impossible_numbers_are_refused(offset: int, layout: str, value: int, words: str) -> None:
    broken = bytearray(FROM_KAFKA)
    struct.pack_into(layout, broken, offset, value)
    with pytest.raises(CorruptRecordError, match=words):
        read_header(broken)


def test_an_old_format_is_named_even_when_it_is_short() -> None:
    with pytest.raises(CorruptRecordError, match=r"magic. 1"):
        read_header(b"\0" * 16 + b"\x01" + b"\0" * 10)


@given(data=st.binary(max_size=130), offset=st.integers(-5, 140))
def test_garbage_raises_only_corrupt_record_error(data: bytes, offset: int) -> None:
    try:
        check_crc(data, offset, read_header(data, offset))
    except CorruptRecordError:
        pass
