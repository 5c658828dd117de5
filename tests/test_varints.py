"""Numbers of variable length: one module, its copies in hot loops, and two foreign libraries."""

from __future__ import annotations

import io
import re
from pathlib import Path

import fastavro
import numpy as np
import pytest
from google.protobuf.internal import decoder, encoder
from hypothesis import example, given
from hypothesis import strategies as st

import aioprod
from aioprod.errors import CorruptRecordError, ProtocolError
from aioprod.protocol.primitives import Reader, Writer
from aioprod.protocol.record_encoder import encode_record
from aioprod.protocol.record_headers import read_headers
from aioprod.schema_registry.arrow_bytes import zigzag_varints
from aioprod.schema_registry.wire_format import read_indexes, write_indexes
from aioprod.testing.broker.telemetry.otlp_reader import read_metrics
from aioprod.varints import (
    append_uvarint,
    append_varint,
    encode_uvarint,
    encode_varint,
    read_uvarint,
    varint_size,
    zigzag_decoded,
)

UINT64 = st.integers(0, 2**64 - 1) | st.integers(0, 64).map(lambda bits: (1 << bits) - 1)
INT64 = st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300)


@given(number=UINT64)
@example(number=127)
@example(number=128)
def test_unsigned_numbers_are_those_of_protobuf(number: int) -> None:
    encoded = encode_uvarint(number)
    assert encoded == vars(encoder)["_VarintBytes"](number)
    assert vars(decoder)["_DecodeVarint"](encoded, 0) == (number, len(encoded))
    buffer = bytearray(b"x")
    append_uvarint(buffer, number)
    assert buffer == b"x" + encoded
    assert read_uvarint(b"x" + encoded + b"\xff", 1, 64) == (number, 1 + len(encoded))


@given(number=INT64)
@example(number=2**63 - 1)
@example(number=-(2**63))
def test_signed_numbers_are_those_of_avro(number: int) -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, {"type": "long"}, number)
    encoded = encode_varint(number)
    assert encoded == out.getvalue()
    assert varint_size(number) == len(encoded)
    buffer = bytearray()
    append_varint(buffer, number)
    assert buffer == encoded
    unsigned, end = read_uvarint(encoded, 0, 64)
    assert (zigzag_decoded(unsigned), end) == (number, len(encoded))
    (column,) = zigzag_varints(np.array([number], np.int64)).to_pylist()
    assert column == encoded


@given(number=INT64)
def test_copies_in_loops_write_and_read_the_same(number: int) -> None:
    writer = Writer()
    writer.varlong(number)
    assert bytes(writer.buffer) == encode_varint(number)
    assert Reader(bytes(writer.buffer)).varlong() == number
    size = min(abs(number), 70_000)
    record = encode_record(size, 0, None, b"v" * size)
    assert record == _record(encode_varint(size) + encode_varint(0), size)
    headers = encode_varint(1) + encode_varint(size) + b"n" * size + encode_varint(-1)
    assert read_headers(headers) == ((("n" * size, None),), len(headers))
    if 0 <= number < 2**32:
        writer = Writer()
        writer.uvarint(number)
        assert bytes(writer.buffer) == encode_uvarint(number)
        assert Reader(bytes(writer.buffer)).uvarint() == number
    index = number % 2**31
    assert write_indexes([index, 1]) == b"".join(map(encode_varint, (2, index, 1)))
    assert read_indexes(write_indexes([index, 1]), 0)[0] == (index, 1)


def _record(start: bytes, size: int) -> bytes:
    rest = b"\0" + start + b"\x01" + encode_varint(size) + b"v" * size + b"\0"
    return encode_varint(len(rest)) + rest


@given(data=st.binary(max_size=12), bits=st.sampled_from([32, 35, 63, 64]))
def test_any_bytes_are_a_number_or_an_error(data: bytes, bits: int) -> None:
    try:
        number, end = read_uvarint(data, 0, bits)
    except IndexError:
        assert all(byte > 127 for byte in data) and len(data) < 10
    except CorruptRecordError:
        assert len(data) >= 5
    else:
        assert number < 1 << bits
        assert data[end - 1] < 128 and all(byte > 127 for byte in data[: end - 1])
        assert int.from_bytes(data[:1]) & 127 == number & 127


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_larger_numbers_are_refused(number: int) -> None:
    with pytest.raises(OverflowError, match="64 bits"):
        encode_varint(number)


def test_a_number_without_end_is_refused_in_linear_time() -> None:
    endless = b"\x80" * 1_000_000
    with pytest.raises(CorruptRecordError, match="more than 63 bits"):
        read_uvarint(endless, 0)
    with pytest.raises(ProtocolError, match="too large"):
        Reader(endless).uvarint()
    with pytest.raises(ValueError, match="not a MetricsData"):
        read_metrics(endless)
    with pytest.raises(ValueError, match="truncated"):
        read_indexes(endless, 0)


#: Files that read or write such numbers without a call, each with the reason.
COPIES = {
    "varints.py": "the module itself",
    "protocol/arrow_records.py": "columns of numbers in Arrow",
    "protocol/fixed_width_records.py": "layouts of records: numbers of up to five bytes",
    "protocol/arrow_reader.py": "columns of numbers in NumPy",
    "protocol/variable_width_records.py": "columns of numbers in NumPy",
}


def test_no_other_module_has_a_loop_of_its_own() -> None:
    root = Path(aioprod.__file__).parent
    shifts = re.compile(r"& (0x7F|127)\) << |>>= 7|& (0x7F|127) \| (0x80|128)")
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if shifts.search(path.read_text())
    }
    assert found == COPIES.keys()
