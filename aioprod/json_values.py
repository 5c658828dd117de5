"""Converts objects to what JSON has: those of the standard library, pydantic, attrs, msgspec and
numpy, as pydantic's ``to_jsonable_python`` does. Imported when the first such object is sent.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import ipaddress
import json
import pathlib
import re
import sys
import uuid
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

_DAY = datetime.timedelta(days=1)
_AS_TEXT = (
    decimal.Decimal,
    fractions.Fraction,
    uuid.UUID,
    pathlib.PurePath,
    ipaddress.IPv4Address,
    ipaddress.IPv6Address,
    ipaddress.IPv4Network,
    ipaddress.IPv6Network,
    ipaddress.IPv4Interface,
    ipaddress.IPv6Interface,
)
_JSON_KEYS = (str, int, float)


def to_jsonable(value: Any) -> Any:
    """Convert an object that JSON does not have by one step: what it contains may have to be
    converted, too.

    Raises:
        TypeError: if there is no conversion.
        ValueError: if the value has none, such as bytes that are not UTF-8.
    """
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        text = value.isoformat()
        return f"{text[:-6]}Z" if text.endswith("+00:00") else text
    if isinstance(value, datetime.timedelta):
        return _duration(value)
    if isinstance(value, _AS_TEXT):
        return str(value)
    if isinstance(value, set | frozenset):
        return _sorted(value)
    if isinstance(value, deque):
        return list(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _text(value)
    if isinstance(value, re.Pattern):
        return _text(value.pattern)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, type):
        raise TypeError(f"class {value.__name__} is not an object of JSON")
    return _of_library(value)


def with_text_keys(value: Any, default: Callable[[Any], Any]) -> Any:
    """Copy an object with text in place of the keys of dicts that JSON does not have.

    Args:
        value: the object.
        default: converts what JSON does not have, as :func:`to_jsonable`.
    """
    if isinstance(value, dict):
        copied = {}
        for key, each in value.items():
            name = _key(key, default)
            if name in copied:
                raise ValueError("two keys of an object have the same text")
            copied[name] = with_text_keys(each, default)
        return copied
    if isinstance(value, list | tuple):
        return [with_text_keys(each, default) for each in value]
    if value is None or isinstance(value, _JSON_KEYS):
        return value
    return with_text_keys(default(value), default)


def _key(key: Any, default: Callable[[Any], Any]) -> Any:
    while not (key is None or isinstance(key, _JSON_KEYS)):
        key = default(key)
        if isinstance(key, list | dict | tuple):
            raise TypeError("keys must be single values")
    # As json.dumps writes it, so that all keys are text and can be sorted.
    return key if isinstance(key, str) else json.dumps(key)


def _duration(value: datetime.timedelta) -> str:
    """Return a duration as ISO 8601 has it."""
    sign, value = ("-", -value) if value < datetime.timedelta() else ("", value)
    minutes, seconds = divmod(value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{value.microseconds:06}".rstrip("0") if value.microseconds else ""
    parts = [(value.days, f"{value.days}D"), (hours or minutes or seconds or fraction, "T")]
    parts += [(hours, f"{hours}H"), (minutes, f"{minutes}M")]
    parts.append((seconds or fraction, f"{seconds}{fraction}S"))
    return f"{sign}P{''.join(text for present, text in parts if present) or 'T0S'}"


def _sorted(items: Collection[Any]) -> list[Any]:
    """Return a set as a list in an order that depends on its elements alone, so that equal sets
    have equal bytes.
    """
    try:
        return sorted(items)
    except TypeError:
        return sorted(items, key=partial(json.dumps, default=to_jsonable, sort_keys=True))


def _text(data: str | bytes | bytearray | memoryview) -> str:
    return data if isinstance(data, str) else bytes(data).decode()


def _of_library(value: Any) -> Any:
    pydantic, numpy = sys.modules.get("pydantic"), sys.modules.get("numpy")
    if pydantic is not None:
        if isinstance(value, pydantic.BaseModel):
            return value.model_dump(mode="json", by_alias=True)
        if hasattr(value, "__fields__") and hasattr(value, "__fields_set__"):
            return value.dict(by_alias=True)  # a model of version 1
        if type(value).__module__.partition(".")[0] == "pydantic":
            from pydantic_core import to_jsonable_python

            return to_jsonable_python(value)
    if numpy is not None and isinstance(value, numpy.generic | numpy.ndarray):
        return value.tolist()
    if (names := _field_names(value)) is not None:
        return {name: getattr(value, name) for name in names}
    raise TypeError(
        f"{type(value).__name__} is not an object of JSON; pass JsonSerializer(default=...), or "
        "convert it before"
    )


def _field_names(value: Any) -> list[str] | None:
    """Return the fields of a dataclass, or of an object of attrs or msgspec; None of others."""
    kind = type(value)
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    if (attributes := getattr(kind, "__attrs_attrs__", None)) is not None:
        return [attribute.name for attribute in attributes]
    names = getattr(kind, "__struct_fields__", None)  # of msgspec
    return None if names is None else list(names)
