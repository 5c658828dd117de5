"""Arrow types for JSON Schemas. Imports pyarrow, which is optional: import this module lazily."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
from referencing.exceptions import Unresolvable

from aioprod.schema_registry.columns import count_types
from aioprod.schema_registry.json_references import Document

Convert = Callable[[Any], Any]

_SIMPLE: Final[dict[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "string": pa.string(),
}
_SOME_DAY: Final = datetime.date(2000, 1, 2)
_NULL: Final = {"type": "null"}


@dataclass(frozen=True, slots=True)
class JsonType:
    """A type.

    Attributes:
        arrow: the type of its column.
        read: converts a JSON value for Arrow; None if they are the same.
        write: leaves out nulls of fields that may be missing; None if there are no such fields.
    """

    arrow: pa.DataType
    read: Convert | None = None
    write: Convert | None = None


def json_type(document: Document) -> JsonType:
    """Return the column type of a schema.

    Raises:
        ValueError: if Arrow has no equivalent; the message has the position.
    """
    try:
        return _Reader(document).read(document.content, "")
    except Unresolvable as error:
        raise ValueError(f"the schema refers to {error.ref!r}, which is unknown") from None


class _Reader:
    def __init__(self, document: Document) -> None:
        self._specification = document.specification
        self._resolver = document.resolver
        self._above = [id(document.content)]
        self._types = count_types()

    def read(self, schema: Any, path: str) -> JsonType:
        next(self._types)
        if not isinstance(schema, Mapping):
            raise _untyped(path)
        around = self._resolver
        # References in a schema with its own id are relative to this id.
        self._resolver = around.in_subresource(self._specification.create_resource(schema))
        found = self._read(schema, path)
        self._resolver = around
        return found

    def _read(self, schema: Mapping[str, Any], path: str) -> JsonType:
        for name in ("$ref", "$dynamicRef"):
            if name in schema:
                return self._referenced(schema[name], path)
        for name in ("anyOf", "oneOf", "allOf"):
            if name in schema:
                return self._one_of(schema[name], path)
        kind = schema.get("type")
        if isinstance(kind, list):
            return self._one_of([{**schema, "type": each} for each in kind], path)
        if kind is None and ("enum" in schema or "const" in schema):
            return self._values(schema.get("enum", [schema.get("const")]), path)
        if kind == "object" or (kind is None and "properties" in schema):
            return self._object(schema, path)
        if kind == "array":
            items = self.read(schema.get("items"), f"{path}[]")
            return JsonType(pa.list_(items.arrow), _each(items.read), _each(items.write))
        if kind not in _SIMPLE:
            raise _untyped(path)
        return _text(schema) if kind == "string" else JsonType(_SIMPLE[kind])

    def _referenced(self, name: str, path: str) -> JsonType:
        resolved = self._resolver.lookup(name)
        if id(resolved.contents) in self._above:
            raise ValueError(f"{_at(path)}{name} contains itself, which is impossible in a column")
        self._above.append(id(resolved.contents))
        around, self._resolver = self._resolver, resolved.resolver
        found = self.read(resolved.contents, path)
        self._resolver = around
        self._above.pop()
        return found

    def _one_of(self, branches: list[Any], path: str) -> JsonType:
        others = [each for each in branches if each != _NULL and each.get("type") != "null"]
        if len(others) != 1:
            raise ValueError(
                f"{_at(path)}one of {len(others)} types and null: a column has one type"
            )
        return self.read(others[0], path)

    def _values(self, values: list[Any], path: str) -> JsonType:
        kinds = {type(each) for each in values if each is not None}
        names = {str: "string", int: "integer", float: "number", bool: "boolean"}
        if len(kinds) != 1 or (kind := kinds.pop()) not in names:
            raise ValueError(f"{_at(path)}an enum of several types: a column has one type")
        return JsonType(_SIMPLE[names[kind]])

    def _object(self, schema: Mapping[str, Any], path: str) -> JsonType:
        properties, others = schema.get("properties"), schema.get("additionalProperties")
        if properties is None:
            if not isinstance(others, Mapping):
                raise _untyped(path)
            items = self.read(others, f"{path}{{}}")
            arrow = pa.map_(pa.string(), items.arrow)
            return JsonType(arrow, _each_value(items.read), _each_value(items.write))
        fields = {
            name: self.read(each, f"{path}.{name}" if path else name)
            for name, each in properties.items()
        }
        required = frozenset(schema.get("required", ()))
        found = JsonType(
            pa.struct([(name, each.arrow) for name, each in fields.items()]), write=None
        )
        reads = {name: each.read for name, each in fields.items() if each.read is not None}
        writes = {name: each.write for name, each in fields.items() if each.write is not None}
        return replace(
            found,
            read=_reading(reads) if reads else None,
            write=_writing(writes, frozenset(fields) - required),
        )


def _text(schema: Mapping[str, Any]) -> JsonType:
    if schema.get("contentEncoding") == "base64":
        return JsonType(pa.binary(), lambda text: base64.b64decode(text, validate=True))
    form = schema.get("format")
    if form == "date-time":
        return JsonType(pa.timestamp("us", "UTC"), _moment)
    if form == "date":
        return JsonType(pa.date32(), datetime.date.fromisoformat)
    if form == "time":
        return JsonType(pa.time64("us"), _time, _with_zone)
    return JsonType(pa.string())


def _moment(text: str) -> datetime.datetime:
    found = datetime.datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("a date-time has no time zone")
    return found


def _time(text: str) -> datetime.time:
    """Return a time of day in UTC, since Arrow's times have no time zone."""
    found = datetime.time.fromisoformat(text)
    offset = found.utcoffset()
    if offset is None:
        raise ValueError("a time has no time zone")
    return (datetime.datetime.combine(_SOME_DAY, found.replace(tzinfo=None)) - offset).time()


def _with_zone(value: Any) -> Any:
    is_local = isinstance(value, datetime.time) and value.tzinfo is None
    return value.replace(tzinfo=datetime.UTC) if is_local else value


def _each(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda items: [None if each is None else convert(each) for each in items]


def _each_value(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda items: {
        name: None if each is None else convert(each) for name, each in items.items()
    }


def _reading(reads: Mapping[str, Convert]) -> Convert:
    def read(found: dict[str, Any]) -> dict[str, Any]:
        for name, convert in reads.items():
            if found.get(name) is not None:
                found[name] = convert(found[name])
        return found

    return read


def _writing(writes: Mapping[str, Convert], optional: frozenset[str]) -> Convert:
    def write(given: dict[str, Any]) -> dict[str, Any]:
        return {
            name: writes[name](value) if name in writes and value is not None else value
            for name, value in given.items()
            if value is not None or name not in optional
        }

    return write


def _untyped(path: str) -> ValueError:
    return ValueError(f"{_at(path)}the schema has no type, which a column needs")


def _at(path: str) -> str:
    return f"{path}: " if path else ""
