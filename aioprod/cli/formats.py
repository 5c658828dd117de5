"""Converts records to and from lines of JSON, and formats them by a pattern."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from aioprod.cli.parser import bytes_of, unescape
from aioprod.decoding_limits import load_json
from aioprod.foreign_text import encode_json, escaped
from aioprod.header_names import decode_name, encode_name
from aioprod.types import ConsumerRecord, Header, ProducerRecord

Formatter = Callable[[ConsumerRecord], bytes]

MOST_DEPTH = 500
"""Of what users write as JSON."""

_FIELD = re.compile(r"%(.)", re.DOTALL)
_LAYOUT = re.compile(r"[^\t\n]+")  # what lies between tabs and line breaks
_NAMES = {
    "key",
    "key_base64",
    "value",
    "value_base64",
    "key_schema_id",
    "value_schema_id",
    "headers",
    "partition",
    "timestamp",
    "topic",
    "offset",
}


class JsonText(bytes):
    """A key or value that was decoded by its schema, as JSON.

    Attributes:
        schema_id: the id of its schema: a number, or the text of a GUID.
    """

    schema_id: int | str | None = None


class WithSchema(NamedTuple):
    """A key or value for a serializer, with the id of the schema that it had.

    Attributes:
        content: the parsed JSON.
        schema_id: a number, or the text of a GUID.
    """

    content: Any
    schema_id: int | str


class FormatError(ValueError):
    """A line is not a record, or a pattern has an unknown field."""


def json_line(record: ConsumerRecord) -> bytes:
    """Encode a record as a line of JSON. Bytes that are not UTF-8 are in ``key_base64``,
    ``value_base64``, or, in headers, an object with ``base64`` in place of the name or value.
    """
    line: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    for name, data in (("key", record.key), ("value", record.value)):
        if isinstance(data, JsonText):
            line[name] = json.loads(data)
            if data.schema_id is not None:
                line[f"{name}_schema_id"] = data.schema_id
            continue
        text = _text(data)
        line[name if isinstance(text, str | None) else f"{name}_base64"] = (
            text if isinstance(text, str | None) else text["base64"]
        )
    if record.headers:
        line["headers"] = [[_text(encode_name(name)), _text(data)] for name, data in record.headers]
    return encode_json(line).encode() + b"\n"


def _text(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def record_of_line(
    topic: str, line: bytes, objects: Collection[str] = frozenset()
) -> ProducerRecord:
    """Parse a line of JSON, written by :func:`json_line` or by hand, as a record to send.

    ``key``, ``value``, ``headers``, ``partition`` and ``timestamp`` are optional; a value or key
    that is an object, a list or a number is sent as JSON. ``topic`` and ``offset`` are ignored.
    ``key_schema_id`` and ``value_schema_id`` count for keys and values with a serializer.

    Args:
        topic: where to send it.
        line: the text.
        objects: ``value`` or ``key``, if they are left as JSON has them, for a serializer.

    Raises:
        FormatError: if it is invalid.
    """
    try:
        fields = load_json(line, MOST_DEPTH, "a line")
    except ValueError as error:
        raise FormatError(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise FormatError('not a JSON object such as {"key": "k", "value": "v"}')
    if unknown := fields.keys() - _NAMES:
        raise FormatError(f"unknown name {min(unknown)!r} (known: {', '.join(sorted(_NAMES))})")
    return ProducerRecord(
        topic,
        _object_of(fields, "value") if "value" in objects else _bytes_of(fields, "value"),
        _object_of(fields, "key") if "key" in objects else _bytes_of(fields, "key"),
        _number(fields, "partition", at_least=0),
        _number(fields, "timestamp"),
        _headers(fields.get("headers")),
    )


def _object_of(fields: Mapping[str, Any], name: str) -> Any:
    if fields.get(f"{name}_base64") is not None:
        raise FormatError(f"{name}_base64: give {name}, which is encoded by its schema")
    schema_id = fields.get(f"{name}_schema_id")
    if schema_id is None:
        return fields.get(name)
    if not isinstance(schema_id, int | str) or isinstance(schema_id, bool):
        raise FormatError(f"{name}_schema_id must be a number, or the text of a GUID")
    return WithSchema(fields.get(name), schema_id)


def _bytes_of(fields: Mapping[str, Any], name: str) -> bytes | None:
    coded = fields.get(f"{name}_base64")
    if coded is not None:
        if fields.get(name) is not None:
            raise FormatError(f"{name} and {name}_base64 are both given")
        return _decoded(coded, f"{name}_base64")
    data = fields.get(name)
    if data is None:
        return None
    return (data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)).encode()


def _decoded(coded: object, name: str) -> bytes:
    try:
        return base64.b64decode(coded, validate=True)  # type: ignore[arg-type]
    except (TypeError, ValueError, binascii.Error):
        raise FormatError(f"{name} is not base64") from None


def _number(fields: Mapping[str, Any], name: str, at_least: int | None = None) -> int | None:
    number = fields.get(name)
    if number is None:
        return None
    least = "" if at_least is None else f" of at least {at_least}"
    if (
        not isinstance(number, int)
        or isinstance(number, bool)
        or (at_least is not None and number < at_least)
    ):
        raise FormatError(f"{name}={number!r}: must be a whole number{least}")
    return number


def _headers(given: object) -> tuple[Header, ...]:
    if given is None:
        return ()
    pairs = list(given.items()) if isinstance(given, dict) else given
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs
    ):
        raise FormatError('headers must be {"name": "value"} or [["name", "value"], ...]')
    return tuple(_header(name, data) for name, data in pairs)


def _header(name: object, data: object) -> Header:
    encoded = None if name is None else _header_bytes("the name of a header", name)
    if encoded is None:
        raise FormatError('the name of a header: must be text or {"base64": "..."}')
    known = decode_name(encoded)
    return known, _header_bytes(f"header {known}", data)


def _header_bytes(what: str, data: object) -> bytes | None:
    if data is None or isinstance(data, str):
        return None if data is None else data.encode()
    if isinstance(data, dict) and data.keys() == {"base64"}:
        return _decoded(data["base64"], what)
    raise FormatError(f'{what}: must be text, null or {{"base64": "..."}}')


_FIELDS: Mapping[str, Formatter] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
    "k": lambda record: record.key or b"",
    "K": lambda record: b"%d" % (-1 if record.key is None else len(record.key)),
    "v": lambda record: record.value or b"",
    "s": lambda record: record.value or b"",
    "V": lambda record: b"%d" % (-1 if record.value is None else len(record.value)),
    "S": lambda record: b"%d" % (-1 if record.value is None else len(record.value)),
    "h": lambda record: b",".join(
        encode_name(name) + b"=" + (b"NULL" if data is None else data)
        for name, data in record.headers
    ),
    "%": lambda record: b"%",
}


def pattern(text: str, *, for_terminal: bool = False) -> Formatter:
    r"""Return a function that formats records by a pattern.

    ``%t`` topic, ``%p`` partition, ``%o`` offset, ``%T`` timestamp in milliseconds, ``%k`` key,
    ``%K`` its length, ``%v`` (or ``%s``) value, ``%V`` (or ``%S``) its length, ``%h`` headers,
    ``%%`` a percent sign; ``\n``, ``\t``, ``\xHH`` and so on as in C. A length is -1 for a null.

    Args:
        text: the pattern.
        for_terminal: escape what is not printable in keys, values, headers and names of topics,
            except tabs and line breaks. Otherwise they are as the broker has them.

    Raises:
        FormatError: if a field is unknown.
    """
    parts: list[Formatter] = []
    end = 0
    for found in _FIELD.finditer(text):
        parts += [_constant(text[end : found.start()]), _field(found[1], for_terminal)]
        end = found.end()
    if text[end:].endswith("%"):
        raise FormatError("a % at the end: write %% for a percent sign")
    parts.append(_constant(text[end:]))
    return lambda record: b"".join([part(record) for part in parts])


def _constant(text: str) -> Formatter:
    data = bytes_of(unescape(text))
    return lambda record: data


def _field(name: str, for_terminal: bool) -> Formatter:
    field = _FIELDS.get(name)
    if field is None:
        raise FormatError(
            f"unknown field %{name} (known: {', '.join('%' + each for each in _FIELDS)})"
        )
    return _printable(field) if for_terminal else field


def _printable(field: Formatter) -> Formatter:
    def shown(record: ConsumerRecord) -> bytes:
        text = field(record).decode("utf-8", "backslashreplace")
        return _LAYOUT.sub(lambda found: escaped(found[0]), text).encode()

    return shown
