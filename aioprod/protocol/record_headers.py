"""Reads the headers and the numbers of records."""

from __future__ import annotations

from typing import Final

from aioprod.errors import CorruptRecordError
from aioprod.header_names import decode_name
from aioprod.varints import read_uvarint, rest_of_uvarint

Header = tuple[str, bytes | None]

#: Limit on base and delta of timestamps and offsets, so that their sum fits in 64 bits.
LIMIT: Final = 1 << 62


class HeaderBlocks(dict[bytes, tuple[Header, ...]]):
    """Cache of headers by their encoded bytes (number, names and values).

    Many records of a batch have the same headers, which are decoded once and shared. Malformed
    bytes raise CorruptRecordError or IndexError.
    """

    def __missing__(self, block: bytes) -> tuple[Header, ...]:
        headers, end = read_headers(block)
        if end != len(block):
            raise CorruptRecordError(
                f"headers end at byte {end} of {len(block)}: the record's length does not match"
            )
        self[block] = headers
        return headers


def read_headers(block: bytes) -> tuple[tuple[Header, ...], int]:
    """Return the headers at the start of ``block``, and the position after them."""
    number, position = read_uvarint(block, 0)
    count = unsigned(number, "number of headers")
    if count > len(block) - position:
        raise CorruptRecordError(f"{count} record headers in {len(block) - position} bytes")
    headers: list[Header] = []
    for _ in range(count):
        number = block[position]
        position += 1
        if number > 127:
            number, position = rest_of_uvarint(block, position, number)
        following = position + (number >> 1)
        if number & 1:
            raise CorruptRecordError("negative length of a header's name")
        name = decode_name(block[position:following])
        number = block[following]
        position = following + 1
        if number > 127:
            number, position = rest_of_uvarint(block, position, number)
        if number & 1:
            headers.append((name, None))
            continue
        following = position + (number >> 1)
        headers.append((name, block[position:following]))
        position = following
    return tuple(headers), position


def int64(number: int) -> int:
    """Wrap around a sum to 64 bits, as Java does."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def unsigned(number: int, what: str) -> int:
    """Decode a zig-zag encoded number; raise CorruptRecordError if it is negative."""
    if number & 1:
        raise CorruptRecordError(f"negative {what}")
    return number >> 1
