"""The branch of a union that a Python value is written as, and how values that were read remember
the branch that they were written as.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple, TypeVar

from aioprod.schema_registry.avro_nodes import MISSING, AvroNode, short_name
from aioprod.schema_registry.model_fields import is_model, symbol_of

_LIMITS: Final[Mapping[str, int]] = {"int": 2**31, "long": 2**63}
TEXTS_AND_BYTES: Final = (str, bytes, bytearray, memoryview)


class Branch(NamedTuple):
    """A value of a union with the index of its branch."""

    place: int
    value: Any


class OfBranch:
    """Base class of values that were read from a union, if another branch could be guessed when
    they are written again. It compares, prints and pickles like the plain type.

    Attributes:
        branch: the name of the branch: the full name of a type, or "long".
    """

    branch: str


class RecordOfBranch(OfBranch, dict[str, Any]):
    """A record."""


class TextOfBranch(OfBranch, str):
    """A string, or the symbol of an enum."""


class BytesOfBranch(OfBranch, bytes):
    """Bytes, or a fixed."""


class IntOfBranch(OfBranch, int):
    """An int or long."""


class FloatOfBranch(OfBranch, float):
    """A float."""


class DecimalOfBranch(OfBranch, decimal.Decimal):
    """A decimal."""


class UUIDOfBranch(OfBranch, uuid.UUID):
    """A UUID."""


class TimeOfBranch(OfBranch, datetime.time):
    """A time."""


_GROUPS: Final = (
    (RecordOfBranch, frozenset({"record", "map"})),
    (TextOfBranch, frozenset({"enum", "string"})),
    (BytesOfBranch, frozenset({"fixed", "bytes", "duration"})),
    (IntOfBranch, frozenset({"int", "long", "timestamp-nanos", "local-timestamp-nanos"})),
    (FloatOfBranch, frozenset({"float", "double"})),
    (DecimalOfBranch, frozenset({"decimal"})),
    (UUIDOfBranch, frozenset({"uuid"})),
    (TimeOfBranch, frozenset({"time-millis", "time-micros"})),
)
"""Python classes, and the Avro types that their values have."""

_GUESSED: Final = frozenset({"map", "double"})
"""Types that are guessed for all values of their class, at any index in a union."""
_NOT_BY_PLACE: Final = (RecordOfBranch, FloatOfBranch)
"""Classes for which the first type of a union is not the guess."""


def marker(union: AvroNode, place: int) -> type[OfBranch] | None:
    """Return the class for values of a branch; None if the branch is guessed correctly."""
    node = union.branches[place]
    for kind, group in _GROUPS:
        if _class_of(node) in group:
            alike = [each for each in union.branches if _class_of(each) in group]
            if len(alike) < 2 or _class_of(node) in _GUESSED:
                return None
            return None if kind not in _NOT_BY_PLACE and node is alike[0] else kind
    return None


def _class_of(node: AvroNode) -> str:
    return node.logical or node.kind


M = TypeVar("M", bound=OfBranch)


def marked(kind: type[M], branch: str, value: Any) -> M:
    """Return a value that remembers its branch."""
    arguments: tuple[Any, ...] = (value,)
    if isinstance(value, uuid.UUID):
        arguments = (str(value),)
    elif isinstance(value, datetime.time):
        arguments = (value.hour, value.minute, value.second, value.microsecond)
    found = kind(*arguments)
    object.__setattr__(found, "branch", branch)  # a UUID allows no other way
    return found


def fits(node: AvroNode, number: float) -> bool:
    """Return whether a number fits an int or long."""
    limit = _LIMITS[node.kind]
    return -limit <= number < limit


def named_branch(union: AvroNode, name: str) -> int | None:
    """Return the index of the branch with a name: its name in JSON, or without its namespace."""
    labels = [each.label for each in union.branches]
    if name in labels:
        return labels.index(name)
    short = [place for place, each in enumerate(labels) if short_name(each) == name]
    return short[0] if len(short) == 1 else None


def candidates(union: AvroNode, value: Any) -> list[int]:
    """Return the branches that a value may belong to, the best first."""
    ranked = []
    for place, node in enumerate(union.branches):
        rank = _rank(node, value)
        if rank is not None:
            ranked.append((rank, place))
    return [place for _, place in sorted(ranked)]


def _rank(node: AvroNode, value: Any) -> tuple[int, ...] | None:
    """Return how well a value fits, lower is better; None if it does not fit."""
    if value is None or node.kind == "null":
        return (0,) if value is None and node.kind == "null" else None
    for types, rank in _RANKS:
        if isinstance(value, types):
            found: tuple[int, ...] | None = rank(node, value)
            return found
    if is_model(type(value)):
        return _rank_model(node, value)
    if hasattr(value, "__index__"):
        return _rank_int(node, value.__index__())
    if hasattr(value, "__float__"):
        return _rank_float(node, float(value))
    return (0,) if node.kind == "array" and isinstance(value, Iterable) else None


def _rank_bool(node: AvroNode, value: Any) -> tuple[int, ...] | None:
    return (0,) if node.kind == "boolean" else None


def _rank_int(node: AvroNode, value: int) -> tuple[int, ...] | None:
    if node.kind in ("int", "long"):
        nanos = (node.logical or "").endswith("nanos")
        return (0 if node.logical is None or nanos else 3,) if fits(node, value) else None
    if node.logical == "decimal":
        return (1,)
    return {"double": (4,), "float": (5,)}.get(node.kind)


def _rank_float(node: AvroNode, value: float) -> tuple[int, ...] | None:
    # Python's floats are doubles: as an Avro float they would lose digits.
    return {"double": (0,), "float": (1,)}.get(node.kind)


def _rank_text(node: AvroNode, value: str) -> tuple[int, ...] | None:
    if node.kind == "enum":
        return (0,) if value in node.symbols else None
    if node.logical == "uuid":
        return (1,)
    return (0,) if node.kind == "string" else None


def _rank_enum(node: AvroNode, value: Enum) -> tuple[int, ...] | None:
    if node.kind == "enum":
        if symbol_of(value) not in node.symbols:
            return None
        return (0 if short_name(node.name) == type(value).__name__ else 1,)
    if isinstance(value, int) and node.kind in ("int", "long"):
        return (2,)
    return (2,) if node.kind == "string" else None


def _rank_bytes(node: AvroNode, value: Any) -> tuple[int, ...] | None:
    if node.kind == "fixed" and len(value) != node.size:
        return None
    if node.kind not in ("bytes", "fixed"):
        return None
    return (0 if node.logical in (None, "duration") else 1,)


def _rank_moment(node: AvroNode, value: datetime.datetime) -> tuple[int, ...] | None:
    logical = node.logical or ""
    if value.tzinfo is None and logical.startswith("local-timestamp"):
        return (0, _loses(node, value))
    return (1, _loses(node, value)) if logical.startswith("timestamp") else None


def _rank_time(node: AvroNode, value: datetime.time) -> tuple[int, ...] | None:
    return (_loses(node, value),) if (node.logical or "").startswith("time-") else None


def _loses(node: AvroNode, value: datetime.datetime | datetime.time) -> int:
    """Return 1 if the unit of a type is too coarse for a value."""
    return int((node.logical or "").endswith("millis") and value.microsecond % 1000 != 0)


def _of_logical(*names: str) -> Any:
    return lambda node, value: (0,) if node.logical in names else None


def _rank_mapping(node: AvroNode, value: Mapping[Any, Any]) -> tuple[int, ...] | None:
    if node.kind == "map":
        return (0,)
    if node.kind != "record":
        return None
    names = {each.name for each in node.fields}
    for each in node.fields:
        if each.default is MISSING and each.name not in value and not _may_be_null(each.node):
            return None
    return (1, -len(names & value.keys()), len(value.keys() - names))


def _may_be_null(node: AvroNode) -> bool:
    return node.kind == "null" or node.null_branch is not None


def _rank_model(node: AvroNode, value: Any) -> tuple[int, ...] | None:
    if node.kind != "record":
        return None
    own = [each.__name__ for each in type(value).__mro__]
    names = {short_name(each) for each in (node.name, *node.aliases)}
    return (min((place for place, each in enumerate(own) if each in names), default=len(own)),)


def _rank_items(node: AvroNode, value: Any) -> tuple[int, ...] | None:
    return (0,) if node.kind == "array" else None


_RANKS: Final[tuple[tuple[Any, Any], ...]] = (
    (Enum, _rank_enum),
    (bool, _rank_bool),
    (int, _rank_int),
    (float, _rank_float),
    (str, _rank_text),
    ((bytes, bytearray, memoryview), _rank_bytes),
    (datetime.datetime, _rank_moment),
    (datetime.date, _of_logical("date")),
    (datetime.time, _rank_time),
    (decimal.Decimal, _of_logical("decimal")),
    (uuid.UUID, _of_logical("uuid")),
    (Mapping, _rank_mapping),
    ((list, tuple, set, frozenset), _rank_items),
)
