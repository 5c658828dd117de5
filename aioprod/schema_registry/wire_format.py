"""The position of a record's schema id: the first bytes of the data, or a header.

In front of the data: a byte 0 and the id in 4 bytes, or a byte 1 and the GUID in 16 bytes. A
header, ``__key_schema_id`` or ``__value_schema_id``, contains the same bytes. For Protobuf they are
followed by the message's indexes in its file: those of the enclosing types and its own, as zigzag
varints after their number; the first type of a file is a single 0.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from aioprod.errors import CorruptRecordError
from aioprod.types import Headers
from aioprod.varints import encode_varint, read_uvarint, zigzag_decoded

KEY_HEADER = "__key_schema_id"
VALUE_HEADER = "__value_schema_id"

_ID, _GUID = 0, 1
_MOST_INDEXES = 1_000
# Formats of others by their first bytes. A writer that needs no registry is the usual reason.
_OTHER_FORMATS = (
    (b"{", "JSON without a schema id; use JsonDeserializer"),
    (b"[", "JSON without a schema id; use JsonDeserializer"),
    (b'"', "JSON without a schema id; use JsonDeserializer"),
    (b"\xc3\x01", "Avro's single-object encoding, which has no id of a registry"),
    (b"Obj\x01", "an Avro file"),
    (b"\x03", "the format of AWS Glue's registry"),
)

SchemaId: TypeAlias = int | uuid.UUID
"""The number of a schema, or its GUID."""


class Place(NamedTuple):
    """The type of a record.

    Attributes:
        schema_id: the id of its schema.
        indexes: for Protobuf, the message's indexes in its file.
    """

    schema_id: Any  # a SchemaId: places are compared only if all have numbers
    indexes: tuple[int, ...] = ()


def write_id(schema_id: SchemaId) -> bytes:
    """Return the bytes of an id."""
    if isinstance(schema_id, uuid.UUID):
        return bytes((_GUID,)) + schema_id.bytes
    return bytes((_ID,)) + schema_id.to_bytes(4, "big")


def read_id(data: bytes) -> tuple[SchemaId, int]:
    """Return the id at the beginning of data, and the number of its bytes.

    Raises:
        ValueError: if data do not begin with one.
    """
    if len(data) >= 5 and data[0] == _ID:
        return int.from_bytes(data[1:5], "big"), 5
    if len(data) >= 17 and data[0] == _GUID:
        return uuid.UUID(bytes=data[1:17]), 17
    other = next((what for first, what in _OTHER_FORMATS if data.startswith(first)), "")
    raise ValueError(
        f"no schema id: {len(data)} bytes that begin with {data[:1].hex() or 'nothing'}, not with "
        f"00 and 4 bytes, or 01 and 16 bytes{other and f' (perhaps {other})'}"
    )


def find_id(headers: Headers, is_key: bool, data: bytes) -> tuple[SchemaId, bytes, int]:
    """Return the id of a record's schema, the bytes that contain it, and where it ends there. They
    are the header's if it has an id, otherwise ``data``.

    Raises:
        ValueError: if there is no id.
    """
    wanted = KEY_HEADER if is_key else VALUE_HEADER
    source = next((value for name, value in headers if name == wanted and value is not None), data)
    schema_id, end = read_id(source)
    return schema_id, source, end


def write_indexes(indexes: Sequence[int]) -> bytes:
    """Return the encoded indexes of a Protobuf message in its file."""
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(encode_varint(number) for number in (len(indexes), *indexes))


def read_indexes(data: bytes, place: int) -> tuple[tuple[int, ...], int]:
    """Return the indexes of a Protobuf message, and where they end in ``data``.

    Raises:
        ValueError: if they are truncated, or too many.
    """
    count, place = _read_index(data, place)
    if not 0 <= count <= _MOST_INDEXES:
        raise ValueError(f"{count} message indexes: must be 0 to {_MOST_INDEXES}")
    if count == 0:
        return (0,), place
    indexes = []
    for _ in range(count):
        index, place = _read_index(data, place)
        indexes.append(index)
    return tuple(indexes), place


def _read_index(data: bytes, place: int) -> tuple[int, int]:
    try:
        number, end = read_uvarint(data, place, 64)
    except (IndexError, CorruptRecordError):
        raise ValueError("the message indexes are truncated") from None
    return zigzag_decoded(number), end
