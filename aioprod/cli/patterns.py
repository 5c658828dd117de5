"""Formats records by a pattern such as ``%k: %v``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from aioprod.cli.parser import bytes_of, unescape
from aioprod.foreign_text import escaped
from aioprod.header_names import encode_name
from aioprod.types import ConsumerRecord

Formatter = Callable[[Sequence[ConsumerRecord]], bytes]
"""Returns the text of records."""

_Column = Callable[[Sequence[ConsumerRecord]], list[bytes]]

_FIELD = re.compile(r"%(.)", re.DOTALL)
_LAYOUT = re.compile(r"[^\t\n]+")  # text between tabs and line breaks


class PatternError(ValueError):
    """A pattern has an unknown field."""


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _keys(records: Sequence[ConsumerRecord]) -> list[bytes]:
    return [record.key or b"" for record in records]


def _key_sizes(records: Sequence[ConsumerRecord]) -> list[bytes]:
    return [b"%d" % _size(record.key) for record in records]


def _values(records: Sequence[ConsumerRecord]) -> list[bytes]:
    return [record.value or b"" for record in records]


def _value_sizes(records: Sequence[ConsumerRecord]) -> list[bytes]:
    return [b"%d" % _size(record.value) for record in records]


def _headers(record: ConsumerRecord) -> bytes:
    return b",".join(
        encode_name(name) + b"=" + (b"NULL" if data is None else data)
        for name, data in record.headers
    )


_COLUMNS: Mapping[str, _Column] = {
    "t": lambda records: [record.topic.encode() for record in records],
    "p": lambda records: [b"%d" % record.partition for record in records],
    "o": lambda records: [b"%d" % record.offset for record in records],
    "T": lambda records: [b"%d" % record.timestamp for record in records],
    "k": _keys,
    "K": _key_sizes,
    "v": _values,
    "s": _values,
    "V": _value_sizes,
    "S": _value_sizes,
    "R": lambda records: [
        _size(record.value).to_bytes(4, "big", signed=True) for record in records
    ],
    "h": lambda records: [_headers(record) for record in records],
}


def pattern(text: str, *, for_terminal: bool = False) -> Formatter:
    r"""Return a function that formats records by a pattern.

    ``%t`` topic, ``%p`` partition, ``%o`` offset, ``%T`` timestamp in milliseconds, ``%k`` key,
    ``%K`` its length, ``%v`` (or ``%s``) value, ``%V`` (or ``%S``) its length, ``%R`` that length
    as four bytes, ``%h`` headers, ``%%`` a percent sign; ``\n``, ``\t``, ``\xHH`` and so on as in
    C. A length is -1 for a null.

    Args:
        text: the pattern.
        for_terminal: escape what is not printable in keys, values, headers and names of topics,
            except tabs and line breaks. Otherwise they are printed unchanged.

    Raises:
        PatternError: if a field is unknown.
    """
    columns: list[_Column] = []
    template, end = b"", 0
    for found in _FIELD.finditer(text):
        template += _constant(text[end : found.start()])
        if found[1] == "%":
            template += b"%%"
        else:
            columns.append(_column(found[1], for_terminal))
            template += b"%b"
        end = found.end()
    if text[end:].endswith("%"):
        raise PatternError("a % at the end: write %% for a percent sign")
    template += _constant(text[end:])
    if not columns:
        constant = template % ()
        return lambda records: constant * len(records)
    return lambda records: b"".join(
        map(template.__mod__, zip(*[column(records) for column in columns], strict=True))
    )


def keys_and_values(separator: str, *, for_terminal: bool = False) -> Formatter:
    """Return a function that formats records as lines of key, separator and value."""
    constant = separator.replace("\\", r"\\").replace("%", "%%")
    return pattern(rf"%k{constant}%v\n", for_terminal=for_terminal)


def _constant(text: str) -> bytes:
    return bytes_of(unescape(text)).replace(b"%", b"%%")


def _column(name: str, for_terminal: bool) -> _Column:
    column = _COLUMNS.get(name)
    if column is None:
        known = ", ".join(f"%{each}" for each in (*_COLUMNS, "%"))
        raise PatternError(f"unknown field %{name} (known: {known})")
    return (lambda records: list(map(_printable, column(records)))) if for_terminal else column


def _printable(data: bytes) -> bytes:
    text = data.decode("utf-8", "backslashreplace")
    return _LAYOUT.sub(lambda found: escaped(found[0]), text).encode()
