"""Records of odd producers, with Kafka's answers, and what readers return for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aioprod.error_codes import ErrorCode
from aioprod.varints import encode_varint
from tests.foreign_bytes.batches import batch
from tests.foreign_bytes.readers import Row
from tests.protocol.record_bytes import BASE, record

_LAST = record(0, 1, 1, b"k", 1, b"v", 0)
_LAST_ROW: Row = (1, BASE, b"k", b"v", ())


@dataclass(frozen=True, slots=True)
class Odd:
    """A batch.

    Attributes:
        name: its special property.
        data: the batch.
        rows: the rows that readers return; None if they refuse it.
        answer: Kafka's to a Produce request.
    """

    name: str
    data: bytes
    rows: list[Row] | None = None
    answer: ErrorCode = ErrorCode.NONE

    def __str__(self) -> str:
        return self.name


def _first(
    name: str,
    data: bytes,
    *,
    timestamp: int = BASE,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: tuple[Any, ...] = (),
) -> Odd:
    """A batch of two records, the first of them odd."""
    rows: list[Row] = [(0, timestamp, key, value, headers), _LAST_ROW]
    return Odd(name, batch(data + _LAST, count=2), rows)


def _deltas(name: str, *deltas: int) -> Odd:
    """Brokers store any offset deltas of records that are not compressed."""
    records = b"".join(record(0, delta, 1, b"k", 1, b"v", 0) for delta in deltas)
    rows: list[Row] = [(index, BASE, b"k", b"v", ()) for index in range(len(deltas))]
    return Odd(name, batch(records, count=len(deltas)), rows)


def _stamped(name: str, base: int, *deltas: int, answer: ErrorCode = ErrorCode.NONE) -> Odd:
    records = b"".join(
        record(delta, index, 1, b"k", 1, b"v", 0) for index, delta in enumerate(deltas)
    )
    stamps = [(base + delta + (1 << 63)) % (1 << 64) - (1 << 63) for delta in deltas]
    rows: list[Row] = [(index, stamp, b"k", b"v", ()) for index, stamp in enumerate(stamps)]
    return Odd(name, batch(records, count=len(deltas), base_timestamp=base), rows, answer)


def _invalid(name: str, body: bytes, count: int = 2, last_delta: int | None = None) -> Odd:
    data = batch(body, count=count, last_delta=last_delta)
    return Odd(name, data, None, ErrorCode.INVALID_RECORD)


def _header(*parts: bytes | int) -> bytes:
    return record(0, 0, 1, b"k", 1, b"v", 1, *parts)


_PLAIN = record(0, 0, 1, b"k", 1, b"v", 0)
_LATE = ErrorCode.INVALID_TIMESTAMP

ODD = [
    _first("a key of length -2", record(0, 0, -2, 1, b"v", 0), key=None),
    _first("a value of length -2", record(0, 0, 1, b"k", -2, 0), value=None),
    _first("a null in two bytes", record(0, 0, b"\x81\x00", 1, b"v", 0), key=None),
    _first(
        "attributes of a record",
        _PLAIN[:1] + b"\xff" + _PLAIN[2:],
    ),
    _first(
        "a name that is not UTF-8",
        _header(2, b"\xff\xfe", 1, b"x"),
        headers=(("\udcff\udcfe", b"x"),),
    ),
    _first("a name in Latin-1", _header(4, b"caf\xe9", 1, b"x"), headers=(("caf\udce9", b"x"),)),
    _first(
        "a name in part of UTF-8", _header(2, b"\xe2\x82", -1), headers=(("\udce2\udc82", None),)
    ),
    _first(
        "a name of a surrogate",
        _header(3, b"\xed\xa0\x80", 0),
        headers=(("\udced\udca0\udc80", b""),),
    ),
    _first("a name for private use", _header(3, "\uef80".encode(), 0), headers=(("\uef80", b""),)),
    _first("a name without bytes", _header(0, 1, b"x"), headers=(("", b"x"),)),
    _first("a header's value of length -2", _header(1, b"n", -2), headers=(("n", None),)),
    _first("a length of five bytes", bytes((_PLAIN[0] | 128, 128, 128, 128, 0)) + _PLAIN[1:]),
    _deltas("all offset deltas 0", 0, 0, 0),
    _deltas("offset deltas out of order", 0, 2, 1),
    _deltas("offset deltas from 1 on", 1, 2, 3),
    _deltas("a negative offset delta", -1, 1, 2),
    _stamped("no timestamp", -1, 0, 0),
    _stamped("before 1970", -86_400_000, 0, 1, -1),
    _stamped("the year 0", -62_167_219_200_000, 0),
    _stamped("a timestamp of -2**62", -(2**62), 0, -1),
    _stamped("the smallest timestamp", -(2**63), 0, answer=_LATE),
    _stamped("the largest timestamp", 2**63 - 1, 0, answer=_LATE),
    _stamped("nanoseconds", 1_700_000_000_000_000_000, 0, answer=_LATE),
    _stamped("a sum of more than 64 bits", 2**63 - 1, 0, 1, answer=_LATE),
    _invalid("more records than the count", _PLAIN + _LAST, count=1),
    _invalid("fewer records than the count", _PLAIN + _LAST, count=3),
    Odd(
        "an offset too many, as after compaction",
        batch(_PLAIN + _LAST, count=2, last_delta=2),
        [(0, BASE, b"k", b"v", ()), _LAST_ROW],
        ErrorCode.INVALID_RECORD,
    ),
    _invalid("an offset too few", _PLAIN + _LAST, last_delta=0),
    _invalid("a byte after the records", _PLAIN + _LAST + b"\0"),
    _invalid("a key of 100 bytes", record(0, 0, 100, b"k", 1, b"v", 0) + _LAST),
    _invalid("a length of 0", encode_varint(0) + _LAST),
    _invalid("a negative length", encode_varint(-1) + _LAST),
    _invalid("a length that is too large", encode_varint(50) + _PLAIN[1:] + _LAST),
    _invalid("a length that is too small", encode_varint(6) + _PLAIN[1:] + _LAST),
    _invalid("bytes after the headers", record(0, 0, 1, b"k", 1, b"v", 0, b"zz") + _LAST),
    _invalid("a negative number of headers", record(0, 0, 1, b"k", 1, b"v", -1) + _LAST),
    _invalid("more headers than bytes", record(0, 0, 1, b"k", 1, b"v", 5) + _LAST),
    _invalid("a name of length -1", _header(-1, 1, b"x") + _LAST),
]
