"""JSON Schemas of dataclasses and pydantic models, and conversion of their objects to JSON.

A pydantic model provides its own schema and JSON. For a dataclass:

| Python | JSON Schema |
|---|---|
| str, int, float, bool, None | string, integer, number, boolean, null |
| bytes | string in Base64 |
| datetime, date, time, UUID | string with that format |
| Decimal | string |
| Enum, Literal | enum of the values |
| list, tuple[X, ...], Sequence; set | array; with unique items |
| dict[str, X] | object |
| X or Y | anyOf |
| dataclass, pydantic model | object |
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import uuid
from collections import abc
from collections.abc import Callable
from enum import Enum
from typing import Any, Literal, get_args, get_origin

from aioprod.decoding_limits import DecodingLimitError
from aioprod.errors import ConfigError
from aioprod.schema_registry.model_fields import (
    MISSING,
    described,
    fields_of,
    is_model,
    is_pydantic,
    union_of,
    without_annotation,
)
from aioprod.schema_registry.pydantic_json import read_model, written_schema
from aioprod.schema_registry.schemas import Schema

_SIMPLE: dict[Any, dict[str, Any]] = {
    Any: {},
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string", "format": "date"},
    datetime.time: {"type": "string", "format": "time"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    decimal.Decimal: {"type": "string"},
}
_READ: dict[Any, Callable[[Any], Any]] = {
    bytes: base64.b64decode,
    datetime.datetime: datetime.datetime.fromisoformat,
    datetime.date: datetime.date.fromisoformat,
    datetime.time: datetime.time.fromisoformat,
    uuid.UUID: uuid.UUID,
    decimal.Decimal: decimal.Decimal,
    float: float,
}
_CHEAP = 8
"""This many values of a list cost as much as an attempt to match a union."""
_LONGEST_REASON = 100
_SETS = (set, frozenset, abc.Set)
_ARRAYS = (list, tuple, abc.Sequence, abc.Collection, abc.Iterable, *_SETS)
_MAPS = (dict, abc.Mapping, abc.MutableMapping)


def json_schema(model: type) -> Schema:
    """Return the JSON Schema of a dataclass or pydantic model. The table in the module's docstring
    lists the types.

    Raises:
        ConfigError: if a field's type can't be expressed in JSON.
    """
    if is_pydantic(model):
        return Schema(json.dumps(written_schema(model)), "JSON")
    builder = _Builder()
    schema = builder.object(model)
    definitions = {
        name: each for name, each in builder.definitions.items() if name != model.__name__
    }
    if definitions:
        schema["$defs"] = definitions
    return Schema(json.dumps(schema), "JSON")


class _Builder:
    """Builds one schema; nested models are its definitions."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}
        self._kinds: dict[str, Any] = {}
        self._root: Any = None

    def object(self, model: Any) -> dict[str, Any]:
        self._root = self._root or model
        self._kinds[model.__name__] = model
        schema: dict[str, Any] = {"title": model.__name__, "type": "object"}
        if text := described(model):
            schema["description"] = text
        schema["properties"], required = {}, []
        for field in fields_of(model):
            try:
                schema["properties"][field.name] = self._type(field.hint)
            except ConfigError as error:
                raise ConfigError(f"{model.__qualname__}.{field.attribute}: {error}") from None
            if field.default is MISSING:
                required.append(field.name)
            else:
                schema["properties"][field.name]["default"] = to_json(field.default)
        if required:
            schema["required"] = required
        return schema

    def _type(self, hint: Any) -> dict[str, Any]:
        hint, _ = without_annotation(hint)
        if hint in _SIMPLE:
            return dict(_SIMPLE[hint])
        if (parts := union_of(hint)) is not None:
            return {"anyOf": [self._type(part) for part in parts]}
        origin, arguments = get_origin(hint) or hint, get_args(hint)
        if origin is Literal:
            return {"enum": list(arguments)}
        if isinstance(origin, type) and issubclass(origin, Enum):
            return {"title": origin.__name__, "enum": [member.value for member in origin]}
        if is_model(origin):
            return self._reference(origin)
        if origin in _ARRAYS and len([each for each in arguments if each is not ...]) == 1:
            unique = {"uniqueItems": True} if origin in _SETS else {}
            return {"type": "array", "items": self._type(arguments[0]), **unique}
        if origin in _MAPS and len(arguments) == 2 and arguments[0] is str:
            return {"type": "object", "additionalProperties": self._type(arguments[1])}
        raise ConfigError(f"the type {hint!r} has no JSON type")

    def _reference(self, model: Any) -> dict[str, Any]:
        name = model.__name__
        if self._kinds.get(name, model) is not model:
            raise ConfigError(f"two types of a JSON Schema have the name {name!r}")
        if model is self._root:
            return {"$ref": "#"}
        if name not in self._kinds:
            self._kinds[name] = model
            if is_pydantic(model):
                schema = written_schema(model)
                for each, definition in schema.pop("$defs", {}).items():
                    if self.definitions.setdefault(each, definition) != definition:
                        raise ConfigError(f"two types of a JSON Schema have the name {each!r}")
                if schema.get("$ref") != f"#/$defs/{name}":  # otherwise it contains itself
                    self.definitions[name] = schema
            else:
                self.definitions[name] = self.object(model)
        return {"$ref": f"#/$defs/{name}"}


def to_json(value: Any) -> Any:
    """Convert a value to JSON."""
    kind = type(value)
    if is_pydantic(kind):
        return value.model_dump(mode="json", by_alias=True)
    if is_model(kind):
        return {each.name: to_json(getattr(value, each.attribute)) for each in fields_of(kind)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {key: to_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(each) for each in value]
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, uuid.UUID | decimal.Decimal):
        return str(value)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def from_json(hint: Any, value: Any, spend: Callable[[int], None]) -> Any:
    """Convert JSON to an object of a type.

    Args:
        spend: counts steps: a union tries its types in order, and so do nested unions.

    Raises:
        ValueError: if the value does not fit.
    """
    hint, _ = without_annotation(hint)
    if value is None:
        return value
    if hint in _READ:
        return _READ[hint](value)
    if (parts := union_of(hint)) is not None:
        return _from_union(parts, value, spend)
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if is_pydantic(origin):
        return read_model(origin, value)
    if is_model(origin):
        if not isinstance(value, dict):
            raise ValueError(f"{origin.__name__}: must be an object, not {type(value).__name__}")
        known = [each for each in fields_of(origin) if each.name in value]
        found = {each.attribute: from_json(each.hint, value[each.name], spend) for each in known}
        return origin(**found)
    if isinstance(origin, type) and issubclass(origin, Enum):
        return origin(value)
    if origin in _MAPS and arguments:
        spend(len(value) // _CHEAP)
        return {key: from_json(arguments[1], each, spend) for key, each in value.items()}
    if origin in _ARRAYS and arguments:
        spend(len(value) // _CHEAP)
        made = [from_json(arguments[0], each, spend) for each in value]
        return origin(made) if origin in (set, frozenset, tuple) else made
    if hint in _SIMPLE and hint is not Any and not isinstance(value, hint):
        raise ValueError(f"must be {hint.__name__}, not {type(value).__name__}")
    return value


def _from_union(parts: tuple[Any, ...], value: Any, spend: Callable[[int], None]) -> Any:
    failures = []
    for part in parts:
        kind, _ = without_annotation(part)
        if (
            is_model(kind)
            and isinstance(value, dict)
            and not {each.name for each in fields_of(kind)} >= set(value)
        ):
            continue
        try:
            spend(1)
            return from_json(part, value, spend)
        except DecodingLimitError:
            raise
        except (ValueError, TypeError, decimal.DecimalException) as error:
            failures.append(repr(error)[:_LONGEST_REASON])
    raise ValueError(f"a {type(value).__name__} fits none of {parts}: {'; '.join(failures)}")
