"""Avro schemas of dataclasses and pydantic models.

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
import re
import uuid
from collections import abc
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, get_args, get_origin

from aioprod.errors import ConfigError
from aioprod.public_module import set_module
from aioprod.schema_registry.avro_json import to_json
from aioprod.schema_registry.avro_nodes import AvroNode, all_nodes, parse_node, short_name
from aioprod.schema_registry.avro_resolution import UNDERLYING, reading
from aioprod.schema_registry.avro_writing import writer_of
from aioprod.schema_registry.model_fields import (
    MISSING,
    Field,
    computed_fields_of,
    described,
    fields_of,
    is_model,
    symbol_of,
    union_of,
    without_annotation,
)
from aioprod.schema_registry.schemas import Schema

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
ARRAYS = (list, set, frozenset, tuple, abc.Sequence, abc.Set, abc.Collection, abc.Iterable)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAPS = (dict, abc.Mapping, abc.MutableMapping)


@set_module("aioprod.schema_registry")
@dataclass(frozen=True, slots=True)
class AvroDecimal:
    """The digits of a Decimal: ``Annotated[Decimal, AvroDecimal(precision=10, scale=2)]``.

    Attributes:
        precision: all digits.
        scale: the digits after the decimal point.
    """

    precision: int
    scale: int = 0


def avro_schema(model: type, *, namespace: str | None = None) -> Schema:
    """Return the Avro schema of a dataclass or pydantic model. The table in the module's docstring
    lists the types.

    Args:
        model: the class; its name is that of the record.
        namespace: the namespace of all records and enumerations in it.

    Raises:
        ConfigError: if a field's type can't be expressed in Avro.
    """
    builder = _Builder(namespace)
    schema = builder.record(model)
    builder.add_defaults(parse_node(schema))
    return Schema(json.dumps(schema))


class _Builder:
    """Builds one schema. A named type is defined at its first use, later only named."""

    def __init__(self, namespace: str | None) -> None:
        self._namespace = namespace
        self._written: dict[str, Any] = {}
        self._defaults: list[tuple[str, str, dict[str, Any], Any]] = []

    def record(self, model: Any) -> Any:
        if self._is_written(model):
            return model.__name__
        schema: dict[str, Any] = {"type": "record", "name": model.__name__}
        if self._namespace:
            schema["namespace"] = self._namespace
        if text := described(model):
            schema["doc"] = text
        fields = (*fields_of(model), *computed_fields_of(model))
        schema["fields"] = [self._field(model, field) for field in fields]
        return schema

    def add_defaults(self, node: AvroNode) -> None:
        """Add the defaults of all fields, by the types of the finished schema.

        Raises:
            ConfigError: if a default does not fit its type.
        """
        records = {short_name(each.name): each for each in all_nodes(node)}
        for record, name, schema, default in self._defaults:
            field = next(each for each in records[record].fields if each.name == name)
            try:
                schema["default"] = default_json(field.node, default)
            except (TypeError, ValueError) as error:
                raise ConfigError(
                    f"{record}.{name}: the default {default!r} can't be written into an Avro "
                    f"schema: {error}"
                ) from None

    def _is_written(self, kind: Any) -> bool:
        before = self._written.get(kind.__name__)
        if before not in (None, kind):
            raise ConfigError(f"two types of an Avro schema have the name {kind.__name__!r}")
        self._written[kind.__name__] = kind
        return before is kind

    def _field(self, model: Any, field: Field) -> dict[str, Any]:
        default = constant_default(field)
        try:
            _check_name(field.name, "field", "give it an alias with letters, digits and _")
            schema = {"name": field.name, "type": self._type(field.hint, default)}
        except ConfigError as error:
            raise ConfigError(f"{model.__qualname__}.{field.attribute}: {error}") from None
        if default is not MISSING:
            self._defaults.append((model.__name__, field.name, schema, default))
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
        if origin in ARRAYS and len([each for each in arguments if each is not ...]) == 1:
            return {"type": "array", "items": self._type(arguments[0])}
        if origin in MAPS and len(arguments) == 2 and arguments[0] is str:
            return {"type": "map", "values": self._type(arguments[1])}
        raise ConfigError(f"the type {hint!r} has no Avro type (a Decimal needs AvroDecimal)")

    def _enum(self, kind: type[Enum]) -> Any:
        if self._is_written(kind):
            return kind.__name__
        schema: dict[str, Any] = {"type": "enum", "name": kind.__name__}
        if self._namespace:
            schema["namespace"] = self._namespace
        schema["symbols"] = [symbol_of(member) for member in kind]
        for symbol in schema["symbols"]:
            _check_name(symbol, f"symbol of {kind.__name__}", "give that member another value")
        return schema

    def _union(self, parts: tuple[Any, ...], default: Any) -> Any:
        # The default of a union must be of its first type.
        first = [part for part in parts if default is None and part is type(None)]
        if default is not MISSING and default is not None:
            fitting = [part for part in parts if _fits(part, default)]
            first = sorted(fitting, key=lambda part: not _is_of(part, default))[:1]
        found: list[Any] = []
        for part in (*first, *(part for part in parts if part not in first)):
            each = self._type(part)
            if each not in found:  # two of them may be strings
                found.append(each)
        kinds = [each["type"] for each in found if isinstance(each, dict)]
        for kind in ("array", "map"):
            if kinds.count(kind) > 1:
                raise ConfigError(
                    f"a union has two types that are an Avro {kind}, which can't be distinguished: "
                    "use one with a union of items, or a dataclass around one of them"
                )
        return found if len(found) > 1 else found[0]


def _check_name(name: str, what: str, cure: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise ConfigError(
            f"the name {name!r} of a {what} must consist of letters, digits and _, and not begin "
            f"with a digit, in Avro: {cure}"
        )


def _fits(hint: Any, value: Any) -> bool:
    kind, _ = without_annotation(hint)
    kind = get_origin(kind) or kind
    return isinstance(kind, type) and isinstance(value, kind)


def _is_of(hint: Any, value: Any) -> bool:
    kind, _ = without_annotation(hint)
    return (get_origin(kind) or kind) is type(value)


def constant_default(field: Field) -> Any:
    """Return a field's default for its schema; MISSING if it has none that all objects share.

    The result of a factory is used if it is a collection, or the empty value of a type, and if it
    is the same in each call: not a time, a counter or a UUID.
    """
    if field.factory is None:
        return field.default
    if field.needs_fields:
        return MISSING
    first, second = field.factory(), field.factory()
    if isinstance(field.factory, type) and not is_model(field.factory):
        return first if not first and first == second else MISSING
    same = is_model(type(first)) or isinstance(first, list | tuple | dict | set | frozenset)
    return first if same and first == second and not _has_moments(first) else MISSING


def _has_moments(value: Any) -> bool:
    if is_model(type(value)):
        fields = fields_of(type(value))
        return any(
            _has_moments(getattr(value, each.attribute))
            or (each.factory is not None and constant_default(each) is MISSING)
            for each in fields
        )
    if isinstance(value, Mapping):
        return any(map(_has_moments, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_has_moments, value))
    return isinstance(value, datetime.date | datetime.time | uuid.UUID)


def default_json(node: AvroNode, value: Any) -> Any:
    """Convert a default to JSON for a schema: unions do not name their branch.

    Raises:
        TypeError, ValueError: if it is not of the type.
    """
    read = reading(node, node, UNDERLYING)
    return to_json(node, read(writer_of(node)(value), 0), names_branches=False)
