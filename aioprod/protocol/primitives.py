"""The protocol's primitive types: numbers, strings, bytes and arrays.

Each method of Writer appends a value, each method of Reader returns the next one. For invalid
bytes, a Reader only raises ProtocolError.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Mapping
from functools import lru_cache

from aioprod.errors import CorruptRecordError, ProtocolError
from aioprod.foreign_text import shown
from aioprod.native import accelerated_type
from aioprod.varints import append_uvarint, append_varint, read_uvarint, zigzag_decoded

BytesLike = bytes | bytearray | memoryview

ZERO_UUID = uuid.UUID(int=0)

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_UINT16 = struct.Struct(">H")
_UINT32 = struct.Struct(">I")
_FLOAT64 = struct.Struct(">d")

_MAX_INT16 = 0x7FFF
_MAX_UINT32 = 0xFFFFFFFF


@accelerated_type
class Writer:
    """Appends values to ``buffer``. If a value does not fit its type, the method raises
    ProtocolError and does not change the buffer.
    """

    __slots__ = ("buffer",)

    def __init__(self) -> None:
        self.buffer: bytearray = bytearray()

    def _pack(self, packer: struct.Struct, value: float) -> None:
        try:
            self.buffer += packer.pack(value)
        except struct.error as error:
            raise ProtocolError(f"{shown(value)} can't be written: {error}") from None

    def int8(self, value: int) -> None:
        self._pack(_INT8, value)

    def int16(self, value: int) -> None:
        self._pack(_INT16, value)

    def int32(self, value: int) -> None:
        self._pack(_INT32, value)

    def int64(self, value: int) -> None:
        self._pack(_INT64, value)

    def uint16(self, value: int) -> None:
        self._pack(_UINT16, value)

    def uint32(self, value: int) -> None:
        self._pack(_UINT32, value)

    def float64(self, value: float) -> None:
        self._pack(_FLOAT64, value)

    def boolean(self, value: bool) -> None:
        self.buffer.append(1 if value else 0)

    def uvarint(self, value: int) -> None:
        if not 0 <= value <= _MAX_UINT32:
            raise ProtocolError(f"{value} is outside an unsigned varint's 32 bits")
        append_uvarint(self.buffer, value)

    def varint(self, value: int) -> None:
        if not -0x80000000 <= value <= 0x7FFFFFFF:
            raise ProtocolError(f"{value} is outside a varint's 32 bits")
        append_varint(self.buffer, value)

    def varlong(self, value: int) -> None:
        if not -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
            raise ProtocolError(f"{value} is outside a varlong's 64 bits")
        append_varint(self.buffer, value)

    def uuid(self, value: uuid.UUID) -> None:
        self.buffer += value.bytes

    def string(self, value: str) -> None:
        data = _utf8(value)
        self.buffer += _INT16.pack(len(data))
        self.buffer += data

    def nullable_string(self, value: str | None) -> None:
        if value is None:
            self.buffer += b"\xff\xff"
        else:
            self.string(value)

    def compact_string(self, value: str) -> None:
        data = _utf8(value)
        append_uvarint(self.buffer, len(data) + 1)
        self.buffer += data

    def compact_nullable_string(self, value: str | None) -> None:
        if value is None:
            self.buffer.append(0)
        else:
            self.compact_string(value)

    def bytes_(self, value: BytesLike) -> None:
        data = _contiguous(value)
        self._pack(_INT32, _byte_length(data))
        self.buffer += data

    def nullable_bytes(self, value: BytesLike | None) -> None:
        if value is None:
            self.buffer += b"\xff\xff\xff\xff"
        else:
            self.bytes_(value)

    def compact_bytes(self, value: BytesLike) -> None:
        data = _contiguous(value)
        self.uvarint(_byte_length(data) + 1)
        self.buffer += data

    def compact_nullable_bytes(self, value: BytesLike | None) -> None:
        if value is None:
            self.buffer.append(0)
        else:
            self.compact_bytes(value)

    def array_length(self, length: int, compact: bool) -> None:
        """Append the number of elements that follow; -1 for a null array."""
        if compact:
            self.uvarint(length + 1)
        else:
            self._pack(_INT32, length)

    def tagged_fields(self, fields: Mapping[int, Writer]) -> None:
        """Append tagged fields (KIP-482), given in ascending order of their tags."""
        append_uvarint(self.buffer, len(fields))
        for tag, field in fields.items():
            append_uvarint(self.buffer, tag)
            append_uvarint(self.buffer, len(field.buffer))
            self.buffer += field.buffer

    def no_tagged_fields(self) -> None:
        self.buffer.append(0)


@accelerated_type
class Reader:
    """Reads values from ``data``, from ``offset`` on. Raises ProtocolError if bytes are missing or
    invalid.
    """

    __slots__ = ("data", "offset")

    def __init__(self, data: BytesLike, offset: int = 0) -> None:
        self.data: memoryview | bytes = memoryview(data) if isinstance(data, bytearray) else data
        self.offset: int = offset

    @property
    def remaining(self) -> int:
        return len(self.data) - self.offset

    def _take(self, length: int) -> bytes | memoryview:
        start = self.offset
        end = start + length
        if length < 0 or end > len(self.data):
            raise self._short(length)
        self.offset = end
        return self.data[start:end]

    def _short(self, wanted: int) -> ProtocolError:
        return ProtocolError(
            f"{wanted} bytes expected at offset {self.offset}, but {self.remaining} remain"
        )

    def int8(self) -> int:
        try:
            value: int = _INT8.unpack_from(self.data, self.offset)[0]
        except struct.error:
            raise self._short(1) from None
        self.offset += 1
        return value

    def int16(self) -> int:
        try:
            value: int = _INT16.unpack_from(self.data, self.offset)[0]
        except struct.error:
            raise self._short(2) from None
        self.offset += 2
        return value

    def int32(self) -> int:
        try:
            value: int = _INT32.unpack_from(self.data, self.offset)[0]
        except struct.error:
            raise self._short(4) from None
        self.offset += 4
        return value

    def int64(self) -> int:
        try:
            value: int = _INT64.unpack_from(self.data, self.offset)[0]
        except struct.error:
            raise self._short(8) from None
        self.offset += 8
        return value

    def uint16(self) -> int:
        return self.int16() & 0xFFFF

    def uint32(self) -> int:
        return self.int32() & _MAX_UINT32

    def float64(self) -> float:
        value: float = _FLOAT64.unpack(self._take(8))[0]
        return value

    def boolean(self) -> bool:
        return self.int8() != 0

    def uvarint(self) -> int:
        data = self.data
        offset = self.offset
        # Most lengths and tags take one byte.
        if offset < len(data) and (first := data[offset]) < 0x80:
            self.offset = offset + 1
            return first
        return self._base128(32)

    def varint(self) -> int:
        return zigzag_decoded(self._base128(32))

    def varlong(self) -> int:
        return zigzag_decoded(self._base128(64))

    def _base128(self, bits: int) -> int:
        try:
            value, self.offset = read_uvarint(self.data, self.offset, bits)
        except IndexError:
            raise ProtocolError(f"the varint at offset {self.offset} has no end") from None
        except CorruptRecordError:
            raise ProtocolError(f"the varint at offset {self.offset} is too large") from None
        return value

    def uuid(self) -> uuid.UUID:
        return _uuid_of(bytes(self._take(16)))

    def _text(self, length: int) -> str:
        start = self.offset
        try:
            return str(self._take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise ProtocolError(
                f"the string at offset {start} is not UTF-8: {error.reason}"
            ) from None

    def string(self) -> str:
        return self._text(self.int16())

    def nullable_string(self) -> str | None:
        length = self.int16()
        return None if length == -1 else self._text(length)

    def compact_string(self) -> str:
        return self._text(self.uvarint() - 1)

    def compact_nullable_string(self) -> str | None:
        length = self.uvarint() - 1
        return None if length == -1 else self._text(length)

    def bytes_(self) -> bytes:
        return bytes(self._take(self.int32()))

    def nullable_bytes(self) -> bytes | None:
        length = self.int32()
        return None if length == -1 else bytes(self._take(length))

    def compact_bytes(self) -> bytes:
        return bytes(self._take(self.uvarint() - 1))

    def compact_nullable_bytes(self) -> bytes | None:
        length = self.uvarint() - 1
        return None if length == -1 else bytes(self._take(length))

    def nullable_records(self) -> BytesLike | None:
        return self.nullable_bytes()

    def compact_nullable_records(self) -> BytesLike | None:
        return self.compact_nullable_bytes()

    def compact_records(self) -> BytesLike:
        return self.compact_bytes()

    def nullable_array_length(self, compact: bool) -> int:
        """Return the number of elements that follow; -1 for a null array.

        Each element takes at least one byte, so a number above the remaining bytes is refused
        before memory is allocated.
        """
        length = self.uvarint() - 1 if compact else self.int32()
        if not -1 <= length <= self.remaining:
            raise ProtocolError(
                f"an array of {length} elements does not fit into the {self.remaining} bytes from "
                f"offset {self.offset}"
            )
        return length

    def array_length(self, compact: bool) -> int:
        length = self.nullable_array_length(compact)
        if length < 0:
            raise ProtocolError(f"the array before offset {self.offset} must not be null")
        return length

    def tagged_fields(self) -> Iterable[tuple[int, Reader]]:
        """Yield the tags of tagged fields (KIP-482), each with a reader of its bytes."""
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            yield tag, Reader(self._take(self.uvarint()))

    def skip_tagged_fields(self) -> None:
        for _ in range(self.uvarint()):
            self.uvarint()
            self._take(self.uvarint())


class RecordViewReader(Reader):
    """Returns record batches of large frames, which are memoryviews, as views instead of copies."""

    __slots__ = ()

    def nullable_records(self) -> BytesLike | None:
        length = self.int32()
        return None if length == -1 else self._take(length)

    def compact_nullable_records(self) -> BytesLike | None:
        length = self.uvarint() - 1
        return None if length == -1 else self._take(length)


@lru_cache(1024)
def _uuid_of(data: bytes) -> uuid.UUID:
    """Return the same object for the same id: to compare others takes a call in Python."""
    return uuid.UUID(bytes=data)


def _utf8(value: str) -> bytes:
    try:
        data = value.encode()
    except UnicodeEncodeError as error:
        raise ProtocolError(f"{shown(value)} can't be written as UTF-8: {error.reason}") from None
    except AttributeError:
        raise ProtocolError(f"{shown(value)} can't be written: it is not a string") from None
    if len(data) > _MAX_INT16:
        raise ProtocolError(
            f"a string of {len(data)} bytes is longer than the protocol's limit of {_MAX_INT16}"
        )
    return data


def _contiguous(value: BytesLike) -> BytesLike:
    """Return bytes that can be appended to a bytearray; a memoryview with gaps can't."""
    return bytes(value) if isinstance(value, memoryview) and not value.c_contiguous else value


def _byte_length(value: BytesLike) -> int:
    return value.nbytes if isinstance(value, memoryview) else len(value)
