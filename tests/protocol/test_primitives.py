from __future__ import annotations

import io
import tracemalloc
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import writers as kio

from aioprod.errors import ProtocolError
from aioprod.protocol.primitives import Reader, Writer

STRINGS = ["string", "nullable_string", "compact_string", "compact_nullable_string"]
BYTES = ["bytes_", "nullable_bytes", "compact_bytes", "compact_nullable_bytes"]


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << bits) - 1)


NUMBERS: dict[str, st.SearchStrategy[Any]] = {
    "int8": signed(8),
    "int16": signed(16),
    "int32": signed(32),
    "int64": signed(64),
    "uint16": unsigned(16),
    "uint32": unsigned(32),
    "float64": st.floats(allow_nan=False),
    "boolean": st.booleans(),
    "uvarint": unsigned(32),
    "varint": signed(32),
    "varlong": signed(64),
    "uuid": st.uuids(),
}
VALUES = (
    NUMBERS
    | {
        name: st.text(max_size=300) if "nullable" not in name else st.none() | st.text(max_size=300)
        for name in STRINGS
    }
    | {
        name: st.binary(max_size=300)
        if "nullable" not in name
        else st.none() | st.binary(max_size=300)
        for name in BYTES
    }
)
KIO_WRITERS: dict[str, Callable[[Any, Any], None]] = {
    "int8": kio.write_int8,
    "int16": kio.write_int16,
    "int32": kio.write_int32,
    "int64": kio.write_int64,
    "uint16": kio.write_uint16,
    "uint32": kio.write_uint32,
    "float64": kio.write_float64,
    "boolean": kio.write_boolean,
    "uvarint": kio.write_unsigned_varint,
    "varint": kio.write_signed_varint,
    "varlong": kio.write_signed_varlong,
    "uuid": kio.write_uuid,
    "string": kio.write_legacy_string,
    "nullable_string": kio.write_nullable_legacy_string,
    "compact_string": kio.write_compact_string,
    "compact_nullable_string": kio.write_nullable_compact_string,
    "bytes_": kio.write_legacy_bytes,
    "nullable_bytes": kio.write_nullable_legacy_bytes,
    "compact_bytes": kio.write_compact_string,
    "compact_nullable_bytes": kio.write_nullable_compact_string,
}


def written(method: str, value: object) -> bytes:
    writer = Writer()
    getattr(writer, method)(value)
    return bytes(writer.buffer)


@pytest.mark.parametrize("method", VALUES)
def test_same_bytes_as_kio_and_read_back_equal(method: str) -> None:
    @given(VALUES[method])
    def check(value: object) -> None:
        data = written(method, value)
        buffer = io.BytesIO()
        KIO_WRITERS[method](buffer, value)
        assert data == buffer.getvalue()
        for source in (data, bytearray(data), memoryview(data)):
            reader = Reader(source)
            assert getattr(reader, method)() == value
            assert reader.remaining == 0

    check()


@pytest.mark.parametrize("method", VALUES)
def test_garbage_raises_protocol_error_only(method: str) -> None:
    @given(st.binary(max_size=20), st.integers(0, 20))
    def check(data: bytes, offset: int) -> None:
        reader = Reader(data, min(offset, len(data)))
        try:
            getattr(reader, method)()
        except ProtocolError:
            pass
        else:
            assert 0 <= reader.remaining <= len(data)

    check()


@pytest.mark.parametrize("method", VALUES)
def test_every_truncation_is_refused(method: str) -> None:
    examples: dict[str, object] = {
        "uuid": uuid.UUID(int=1),
        "boolean": True,
        **dict.fromkeys(STRINGS, "ab"),
        **dict.fromkeys(BYTES, b"ab"),
    }
    data = written(method, examples.get(method, 100))
    for length in range(len(data)):
        with pytest.raises(ProtocolError):
            getattr(Reader(data[:length]), method)()


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("int8", 128),
        ("int16", -32769),
        ("int32", 1 << 31),
        ("int64", 1 << 63),
        ("uint16", -1),
        ("uint32", 1 << 32),
        ("uvarint", -1),
        ("uvarint", 1 << 32),
        ("varint", 1 << 31),
        ("varlong", -(1 << 63) - 1),
        ("string", "é" * 16384),
        ("compact_string", "x" * 32768),
    ],
)
def test_values_that_do_not_fit_are_refused_and_nothing_is_written(
    method: str, value: object
) -> None:
    writer = Writer()
    with pytest.raises(ProtocolError):
        getattr(writer, method)(value)
    assert writer.buffer == b""


@pytest.mark.parametrize("method", STRINGS)
def test_lone_surrogates_cannot_be_written(method: str) -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        written(method, "\ud800")


@pytest.mark.parametrize("method", BYTES)
@pytest.mark.parametrize(
    "value",
    [
        bytearray(b"abc"),
        memoryview(b"abc"),
        memoryview(b"abcdef")[::2],
        memoryview(b"abcd").cast("H"),
    ],
)
def test_bytes_of_any_kind(method: str, value: bytearray | memoryview) -> None:
    assert getattr(Reader(written(method, value)), method)() == bytes(value)


@pytest.mark.parametrize(
    ("method", "data"),
    [
        ("string", b"\xff\xff"),  # null
        ("nullable_string", b"\xff\xfe"),
        ("compact_string", b"\0"),  # null
        ("bytes_", b"\xff\xff\xff\xff"),  # null
        ("nullable_bytes", b"\x80\0\0\0"),
        ("compact_bytes", b"\0"),  # null
        ("string", b"\x7f\xff" + b"x" * 10),
        ("bytes_", b"\x7f\xff\xff\xff" + b"x" * 10),
        ("compact_bytes", b"\xff\xff\xff\xff\x0f" + b"x" * 10),
        ("string", b"\0\x01\xff"),  # not UTF-8
        ("uvarint", b"\x80\x80\x80\x80\x10"),  # 33 bits
        ("uvarint", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\0"),
        ("varlong", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x03"),  # 65 bits
        ("uvarint", b"\xff\xff"),
    ],
)
def test_malformed_data_is_refused(method: str, data: bytes) -> None:
    with pytest.raises(ProtocolError):
        getattr(Reader(data), method)()


@pytest.mark.parametrize(
    ("compact", "data"), [(False, b"\x7f\xff\xff\xff\0\0"), (True, b"\xff\xff\xff\xff\x0f\0\0")]
)
def test_an_array_longer_than_what_remains_is_refused_at_once(compact: bool, data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="elements"):
            Reader(data).array_length(compact)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("compact", [False, True])
def test_null_arrays(compact: bool) -> None:
    writer = Writer()
    writer.array_length(-1, compact)
    data = bytes(writer.buffer)
    assert Reader(data).nullable_array_length(compact) == -1
    with pytest.raises(ProtocolError, match="null"):
        Reader(data).array_length(compact)


def test_tagged_fields_are_read_one_by_one_and_skipped_whole() -> None:
    writer = Writer()
    first, second = Writer(), Writer()
    first.int32(5)
    second.string("ab")
    writer.tagged_fields({0: first, 200: second})
    data = bytes(writer.buffer)
    reader = Reader(data)
    assert [(tag, part.remaining) for tag, part in reader.tagged_fields()] == [(0, 4), (200, 4)]
    assert reader.remaining == 0
    reader = Reader(data + b"rest")
    reader.skip_tagged_fields()
    assert reader.remaining == 4


def test_a_failed_read_says_where() -> None:
    reader = Reader(b"abcdef", 4)
    with pytest.raises(ProtocolError, match="4 bytes expected at offset 4, but 2 remain"):
        reader.int32()
