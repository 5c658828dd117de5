"""Avro schemas of dataclasses and pydantic models, and their data as fastavro has them.

| Python | Avro |
|---|---|
| str, int, float, bool, bytes, None | string, long, double, boolean, bytes, null |
| datetime, date, time | timestamp-micros, date, time-micros |
| uuid.UUID | string, uuid |
| Annotated[Decimal, AvroDecimal(precision, scale)] | bytes, decimal |
| Enum, Literal of texts | enum; string |
| list, set, tuple[X, ...], Sequence | array |
| dict[str, X] | map |
| X or Y | union; with None first if that is the default |
| dataclass, pydantic model | record |
"""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from collections import abc
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin

from aioprod.errors import ConfigError
from aioprod.public_module import set_module
from aioprod.schema_registry.model_fields import (
    MISSING,
    Field,
    described,
    fields_of,
    is_model,
    is_pydantic,
    member_of,
    symbol_of,
    union_of,
    without_annotation,
)
from aioprod.schema_registry.schemas import Schema

__all__ = ["AvroDecimal", "avro_schema", "from_avro", "is_model", "to_avro"]

_SIMPLE: dict[Any, Any] = {
    str: "string",
    int: "long",
    float: "double",
    bool: "boolean",
    bytes: "bytes",
    type(None): "null",
    datetime.datetime: {"type": "long", "logicalType": "timestamp-micros"},
    datetime.date: {"type": "int", "logicalType": "date"},
    datetime.time: {"type": "long", "logicalType": "time-micros"},
    uuid.UUID: {"type": "string", "logicalType": "uuid"},
}
_ARRAYS = (list, set, frozenset, tuple, abc.Sequence, abc.Set, abc.Collection, abc.Iterable)
_WRITTEN_AS_THEY_ARE = frozenset({*_SIMPLE, decimal.Decimal})
_NO_NAMES: Mapping[str, str] = MappingProxyType({})
_MAPS = (dict, abc.Mapping, abc.MutableMapping)


@set_module("aioprod.schema_registry")
@dataclass(frozen=True, slots=True)
class AvroDecimal:
    """The digits of a Decimal: ``Annotated[Decimal, AvroDecimal(precision=10, scale=2)]``.

    Attributes:
        precision: all digits.
        scale: digits behind the point.
    """

    precision: int
    scale: int = 0


def avro_schema(model: type, *, namespace: str | None = None) -> Schema:
    """Return the Avro schema of a dataclass or pydantic model; the table of the module says which
    type becomes what.

    Args:
        model: the class; its name is that of the record.
        namespace: the namespace of all records and enumerations in it.

    Raises:
        ConfigError: if a field has a type that Avro does not have.
    """
    return Schema(json.dumps(_Builder(namespace).record(model)))


class _Builder:
    """Builds one schema: a named type is written out once, and named later."""

    def __init__(self, namespace: str | None) -> None:
        self._namespace = namespace
        self._written: dict[str, Any] = {}

    def record(self, model: Any) -> Any:
        if self._is_written(model):
            return model.__name__
        schema: dict[str, Any] = {"type": "record", "name": model.__name__}
        if self._namespace:
            schema["namespace"] = self._namespace
        if text := described(model):
            schema["doc"] = text
        schema["fields"] = [self._field(model, field) for field in fields_of(model)]
        return schema

    def _is_written(self, kind: Any) -> bool:
        before = self._written.get(kind.__name__)
        if before not in (None, kind):
            raise ConfigError(f"two types of an Avro schema have the name {kind.__name__!r}")
        self._written[kind.__name__] = kind
        return before is kind

    def _field(self, model: Any, field: Field) -> dict[str, Any]:
        try:
            kind = self._type(field.hint, field.default)
            schema = {"name": field.name, "type": kind}
            if field.default is not MISSING:
                schema["default"] = _default(field.default)
        except ConfigError as error:
            raise ConfigError(f"{model.__qualname__}.{field.attribute}: {error}") from None
        return schema

    def _type(self, hint: Any, default: Any = MISSING) -> Any:
        hint, extras = without_annotation(hint)
        digits = next((each for each in extras if isinstance(each, AvroDecimal)), None)
        if hint is decimal.Decimal and digits is not None:
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": digits.precision,
                "scale": digits.scale,
            }
        if hint in _SIMPLE:
            return _SIMPLE[hint]
        if (parts := union_of(hint)) is not None:
            return self._union(parts, default)
        origin, arguments = get_origin(hint) or hint, get_args(hint)
        if origin is Literal and all(isinstance(each, str) for each in arguments):
            return "string"
        if isinstance(origin, type) and issubclass(origin, Enum):
            return self._enum(origin)
        if is_model(origin):
            return self.record(origin)
        if origin in _ARRAYS and len([each for each in arguments if each is not ...]) == 1:
            return {"type": "array", "items": self._type(arguments[0])}
        if origin in _MAPS and len(arguments) == 2 and arguments[0] is str:
            return {"type": "map", "values": self._type(arguments[1])}
        raise ConfigError(f"the type {hint!r} has no Avro type (a Decimal needs AvroDecimal)")

    def _enum(self, kind: type[Enum]) -> Any:
        if self._is_written(kind):
            return kind.__name__
        schema: dict[str, Any] = {"type": "enum", "name": kind.__name__}
        if self._namespace:
            schema["namespace"] = self._namespace
        schema["symbols"] = [symbol_of(member) for member in kind]
        return schema

    def _union(self, parts: tuple[Any, ...], default: Any) -> list[Any]:
        # The default of a union belongs to its first type.
        first = [part for part in parts if default is None and part is type(None)]
        if default is not MISSING and default is not None:
            first = [part for part in parts if _fits(part, default)][:1]
        return [self._type(part) for part in (*first, *(p for p in parts if p not in first))]


def _fits(hint: Any, value: Any) -> bool:
    kind, _ = without_annotation(hint)
    kind = get_origin(kind) or kind
    return isinstance(kind, type) and isinstance(value, kind)


def _default(value: Any) -> Any:
    """Return a default as the JSON of a schema has it."""
    value = to_avro(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, list) and all(isinstance(each, str | int | float) for each in value):
        return value
    raise ConfigError(f"the default {value!r} can't be written into an Avro schema")


def to_avro(value: Any, names: Mapping[str, str] = _NO_NAMES) -> Any:
    """Return what fastavro writes for a value: models become dictionaries, members of enumerations
    texts.

    Args:
        value: the value.
        names: the full names of records by the names of classes, by which fastavro finds the type
            of a union.
    """
    kind = type(value)
    if kind in _WRITTEN_AS_THEY_ARE:
        return value
    if kind is dict:
        return {key: to_avro(each, names) for key, each in value.items()}
    if is_model(kind):
        content = {
            each.name: to_avro(getattr(value, each.attribute), names) for each in fields_of(kind)
        }
        if kind.__name__ in names:
            content["-type"] = names[kind.__name__]
        return content
    if isinstance(value, Enum):
        return symbol_of(value)
    if isinstance(value, tuple):  # fastavro's notation of a type of a union, or an array
        return tuple(to_avro(each, names) for each in value)
    if isinstance(value, list | set | frozenset):
        return [to_avro(each, names) for each in value]
    return value


def from_avro(hint: Any, value: Any) -> Any:
    """Return the object of a type for what fastavro has read.

    Raises:
        ValueError: if the value does not fit.
    """
    hint, _ = without_annotation(hint)
    if value is None or hint is Any:
        return value
    if (parts := union_of(hint)) is not None:
        return _from_union(parts, value)
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if is_pydantic(origin):
        return origin.model_validate(value)
    if is_model(origin):
        known = [each for each in fields_of(origin) if each.name in value]
        return origin(**{each.attribute: from_avro(each.hint, value[each.name]) for each in known})
    if isinstance(origin, type) and issubclass(origin, Enum):
        return member_of(origin, value)
    if origin in _MAPS and arguments:
        return {key: from_avro(arguments[1], each) for key, each in value.items()}
    if origin in _ARRAYS and arguments:
        made = [from_avro(arguments[0], each) for each in value]
        return origin(made) if origin in (set, frozenset, tuple) else made
    return value


def _from_union(parts: tuple[Any, ...], value: Any) -> Any:
    failures = []
    for part in parts:
        kind, _ = without_annotation(part)
        origin = get_origin(kind) or kind
        fits = isinstance(value, dict) if is_model(origin) or origin in _MAPS else True
        if origin in _SIMPLE:
            fits = type(value) is origin
        if not fits:
            continue
        if is_model(origin) and not {each.name for each in fields_of(origin)} >= set(value):
            continue
        try:
            return from_avro(part, value)
        except (ValueError, TypeError) as error:
            failures.append(repr(error))
    raise ValueError(f"a {type(value).__name__} fits none of {parts}: {'; '.join(failures)}")
