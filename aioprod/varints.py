"""Numbers of variable length, as in Kafka's records and requests, Avro and Protobuf: seven bits a
byte, the lowest first, each byte but the last with its highest bit set. Signed numbers are zig-zag
encoded: 0, -1, 1, -2 as 0, 1, 2, 3.

Loops that read or write most of a record's bytes handle numbers of one byte themselves, without a
call; tests/test_varints.py compares all of them.
"""

from __future__ import annotations

from typing import Final

from aioprod.errors import CorruptRecordError

_INT64: Final = 1 << 63


def append_uvarint(buffer: bytearray, number: int) -> None:
    """Append an unsigned number."""
    while number > 0x7F:
        buffer.append(number & 0x7F | 0x80)
        number >>= 7
    buffer.append(number)


def append_varint(buffer: bytearray, number: int) -> None:
    """Append a signed number of up to 64 bits. The range is not checked."""
    number = (number << 1) ^ (number >> 63)
    while number > 0x7F:
        buffer.append(number & 0x7F | 0x80)
        number >>= 7
    buffer.append(number)


def encode_uvarint(number: int) -> bytes:
    """Encode an unsigned number."""
    if number < 0x80:
        return bytes((number,))
    buffer = bytearray()
    append_uvarint(buffer, number)
    return bytes(buffer)


def encode_varint(number: int) -> bytes:
    """Encode a signed number of up to 64 bits.

    Raises:
        OverflowError: if it has more bits.
    """
    if not -_INT64 <= number < _INT64:
        raise OverflowError(f"{number} does not fit in 64 bits")
    return encode_uvarint(number << 1 if number >= 0 else ~(number << 1))


def varint_size(number: int) -> int:
    """Return the size of an encoded signed number in bytes."""
    rest = number << 1 if number >= 0 else ~(number << 1)
    return (rest.bit_length() + 6) // 7 or 1


def zigzag_decoded(number: int) -> int:
    """Return the signed number whose zig-zag encoding is ``number``."""
    return (number >> 1) ^ -(number & 1)


def read_uvarint(data: bytes | memoryview, position: int, bits: int = 63) -> tuple[int, int]:
    """Read an unsigned number; a signed one is returned zig-zag encoded.

    Args:
        bits: the maximum number of bits that it may have.

    Returns:
        The number, and the position after it.

    Raises:
        IndexError: if the data ends within the number.
        CorruptRecordError: if it has more than ``bits`` bits.
    """
    first = data[position]
    return (
        (first, position + 1) if first < 0x80 else rest_of_uvarint(data, position + 1, first, bits)
    )


def rest_of_uvarint(
    data: bytes | memoryview, position: int, first: int, bits: int = 63
) -> tuple[int, int]:
    """Like :func:`read_uvarint`, for a number whose first byte was read already and is above 127.

    Args:
        position: that of the second byte.
        first: the first byte.
        bits: the maximum number of bits that it may have.
    """
    number = first & 0x7F
    for shift in range(7, 70, 7):
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> bits:
                break
            return number, position
    raise CorruptRecordError(f"number of more than {bits} bits before byte {position}")
