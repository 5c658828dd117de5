"""Converts records to and from lines of JSON."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Collection, Mapping, Sequence
from json.encoder import encode_basestring
from typing import Any, NamedTuple

from aioprod.cli.output import encode_json
from aioprod.decoding_limits import load_json
from aioprod.header_names import decode_name, encode_name
from aioprod.types import ConsumerRecord, Header, ProducerRecord

MOST_DEPTH = 500
"""The most levels of nesting in JSON that users write."""

_PLAIN = (bytes, type(None))  # no subclass: a JsonText is JSON already
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
    """A key or value for a serializer, with the id of the schema that encoded it before.

    Attributes:
        content: the parsed JSON.
        schema_id: a number, or the text of a GUID.
    """

    content: Any
    schema_id: int | str


class FormatError(ValueError):
    """A line is not a record."""


def json_lines(records: Sequence[ConsumerRecord]) -> bytes:
    """Encode each record as a line of JSON. Bytes that are not UTF-8 are in ``key_base64``,
    ``value_base64``, or, in headers, an object with ``base64`` in place of the name or value.
    """
    lines = []
    topics: dict[str, str] = {}
    for record in records:
        topic, partition, offset, timestamp, _, key, value, headers, _ = record
        if headers or type(key) not in _PLAIN or type(value) not in _PLAIN:
            lines.append(_json_line(record))
            continue
        name = topics.get(topic) or topics.setdefault(topic, encode_basestring(topic))
        try:
            key = "null" if key is None else encode_basestring(key.decode())
            value = "null" if value is None else encode_basestring(value.decode())
        except UnicodeDecodeError:
            lines.append(_json_line(record))
            continue
        line = (
            f'{{"topic": {name}, "partition": {partition}, "offset": {offset}, '
            f'"timestamp": {timestamp}, "key": {key}, "value": {value}}}'
        )
        lines.append(line if line.isprintable() else _json_line(record))
    return ("\n".join(lines) + "\n").encode() if lines else b""


def _json_line(record: ConsumerRecord) -> str:
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
    return encode_json(line)


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
    """Parse a line of JSON, written by :func:`json_lines` or by hand, as a record to send.

    ``key``, ``value``, ``headers``, ``partition`` and ``timestamp`` are optional; a value or key
    that is an object, a list or a number is sent as JSON. ``topic`` and ``offset`` are ignored.
    ``key_schema_id`` and ``value_schema_id`` are used for keys and values with a serializer.

    Args:
        topic: the topic to send it to.
        line: the text.
        objects: ``value`` or ``key``, if a serializer encodes them: these are parsed JSON.

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
