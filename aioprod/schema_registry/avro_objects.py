"""Converts decoded Avro values to dataclasses and pydantic models. A function is created once for
each pair of an Avro type and a Python type.
"""

from __future__ import annotations

import datetime
import decimal
import inspect
import uuid
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import partial
from typing import Any, Final, Literal, get_args, get_origin

from aioprod.schema_registry.avro_branches import Branch, marked, marker
from aioprod.schema_registry.avro_logical import Convert
from aioprod.schema_registry.avro_models import ARRAYS, MAPS
from aioprod.schema_registry.avro_nodes import AvroNode, short_name
from aioprod.schema_registry.model_fields import (
    Field,
    computed_fields_of,
    fields_of,
    is_model,
    is_pydantic,
    member_of,
    symbol_of,
    union_of,
    without_annotation,
)

_LOGICAL: Final[Mapping[str, type]] = {
    "decimal": decimal.Decimal,
    "date": datetime.date,
    "time-millis": datetime.time,
    "time-micros": datetime.time,
    "timestamp-millis": datetime.datetime,
    "timestamp-micros": datetime.datetime,
    "local-timestamp-millis": datetime.datetime,
    "local-timestamp-micros": datetime.datetime,
    "uuid": uuid.UUID,
}
_PRIMITIVES: Final[Mapping[str, tuple[type, ...]]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (int, float),
    "long": (int, float),
    "float": (float,),
    "double": (float,),
    "bytes": (bytes,),
    "fixed": (bytes,),
    "string": (str,),
    "enum": (str,),
}


def keep_branch(union: AvroNode, place: int) -> Convert | None:
    """Return a function that keeps the branch of values, if the union has several types."""
    several = sum(each.kind != "null" for each in union.branches) > 1
    return partial(Branch, place) if several and union.branches[place].kind != "null" else None


def mark_branch(union: AvroNode, place: int) -> Convert | None:
    """Return a function that makes a value remember its branch, if another could be guessed."""
    kind = marker(union, place)
    return None if kind is None else partial(marked, kind, union.branches[place].label)


class ObjectMaker:
    """Converts values to objects of a type.

    Args:
        node: the type of the values, with the branches of unions as in :func:`keep_branch`.
        hint: the Python type of the objects.
    """

    def __init__(self, node: AvroNode, hint: Any) -> None:
        self._made: dict[tuple[int, Any], list[Convert]] = {}
        self._convert = self._maker(node, hint)

    def __call__(self, value: Any) -> Any:
        """Return the object for a value.

        Raises:
            ValueError, TypeError: if the value does not fit.
        """
        return value if self._convert is None else self._convert(value)

    def _maker(self, node: AvroNode, hint: Any) -> Convert | None:
        hint, _ = without_annotation(hint)
        if node.kind == "union":
            return self._union(node, hint)
        if (parts := union_of(hint)) is not None:
            hint, _ = without_annotation(_part_for(node, parts))
        origin, arguments = get_origin(hint) or hint, get_args(hint)
        if node.kind == "record":
            return self._record(node, origin if is_model(origin) else Any)
        if node.kind == "array":
            return self._array(node, origin, arguments)
        if node.kind == "map":
            value_hint = arguments[1] if origin in MAPS and len(arguments) == 2 else Any
            convert = self._maker(node.item, value_hint)
            if convert is None:
                return None
            return lambda found: {key: convert(each) for key, each in found.items()}
        if isinstance(origin, type) and issubclass(origin, Enum):
            return _members(node, origin)
        if origin is uuid.UUID and node.kind == "string" and node.logical is None:
            return uuid.UUID
        return None

    def _union(self, node: AvroNode, hint: Any) -> Convert | None:
        parts = union_of(hint) or (hint,)
        converts = [self._maker(each, _part_for(each, parts)) for each in node.branches]
        others = [place for place in range(len(converts)) if place != node.null_branch]
        if len(others) == 1:
            convert = converts[others[0]]
            if convert is None:
                return None
            return lambda value: None if value is None else convert(value)
        markers = [
            mark_branch(node, place) if _part_for(each, parts) is Any else None
            for place, each in enumerate(node.branches)
        ]

        def of_branch(value: Any) -> Any:
            if value is None:
                return None
            place, inner = value
            convert, mark = converts[place], markers[place]
            made = inner if convert is None else convert(inner)
            return made if mark is None else mark(made)

        return of_branch

    def _array(self, node: AvroNode, origin: Any, arguments: tuple[Any, ...]) -> Convert | None:
        item_hint = arguments[0] if origin in ARRAYS and arguments else Any
        convert = self._maker(node.item, item_hint)
        kind = origin if origin in (set, frozenset, tuple) else None
        if convert is None:
            return kind
        if kind is None:
            return lambda items: [convert(each) for each in items]
        return lambda items: kind(convert(each) for each in items)

    def _record(self, node: AvroNode, model: Any) -> Convert | None:
        known = self._made.get((id(node), model))
        if known is not None:
            return (lambda value: known[0](value)) if not known else _unless_same(known[0])
        cell: list[Convert] = []
        self._made[id(node), model] = cell
        if model is Any:
            fields = [(each.name, self._maker(each.node, Any)) for each in node.fields]
            changed = [(name, convert) for name, convert in fields if convert is not None]
            cell.append(_fields_convert(changed) if changed else _same)
        else:
            cell.append(self._object(node, model))
        return _unless_same(cell[0])

    def _object(self, node: AvroNode, model: Any) -> Convert:
        fields = fields_of(model)
        known = {each.attribute: each for each in fields} | {each.name: each for each in fields}
        computed = {each.name for each in computed_fields_of(model)}
        for field in node.fields:  # the object supplies them
            own = known.get(field.name)
            field.supplied = field.name in computed or (own is not None and own.is_supplied)
        read = [
            (each.name, known[each.name], self._maker(each.node, known[each.name].hint))
            for each in node.fields
            if each.name in known
        ]
        return _pydantic_maker(model, read) if is_pydantic(model) else _dataclass_maker(model, read)


def _same(value: Any) -> Any:
    return value


def _unless_same(convert: Convert) -> Convert | None:
    return None if convert is _same else convert


def _fields_convert(changed: list[tuple[str, Convert]]) -> Convert:
    def convert(record: dict[str, Any]) -> dict[str, Any]:
        for name, each in changed:
            record[name] = each(record[name])
        return record

    return convert


def _dataclass_maker(model: Any, read: list[tuple[str, Field, Convert | None]]) -> Convert:
    later = [field for _, field, _ in read if field.is_set]

    def make(record: dict[str, Any]) -> Any:
        values = {}
        for name, field, convert in read:
            if name in record:
                value = record[name]
                values[field.attribute] = value if convert is None else convert(value)
        after = [(each.attribute, values.pop(each.attribute)) for each in later]
        made = model(**values)
        for attribute, value in after:
            object.__setattr__(made, attribute, value)
        return made

    return make


def _validates_by_name(model: Any) -> bool:
    """Return whether pydantic can ignore aliases, which it can since 2.11."""
    return "by_name" in inspect.signature(model.model_validate).parameters


def _pydantic_maker(model: Any, read: list[tuple[str, Field, Convert | None]]) -> Convert:
    if _validates_by_name(model):
        validate = partial(model.model_validate, by_alias=False, by_name=True)
        keys = [(name, field.attribute, convert) for name, field, convert in read]
    else:
        validate = model.model_validate
        keys = [(name, field.key, convert) for name, field, convert in read]

    def make(record: dict[str, Any]) -> Any:
        values = {}
        for name, key, convert in keys:
            if name in record:
                value = record[name]
                values[key] = value if convert is None else convert(value)
        return validate(values)

    return make


def _members(node: AvroNode, kind: type[Enum]) -> Convert:
    members = {symbol_of(each): each for each in kind}

    def member(symbol: Any) -> Enum:
        found = members.get(symbol)
        return member_of(kind, symbol) if found is None else found

    return member


def _part_for(node: AvroNode, parts: Iterable[Any]) -> Any:
    """Return the one of several Python types that values of an Avro type are converted to."""
    ranked = [(_rank(node, part), place, part) for place, part in enumerate(parts)]
    best = min(
        (each for each in ranked if each[0] is not None), default=None, key=lambda it: it[:2]
    )
    return Any if best is None else best[2]


def _rank(node: AvroNode, hint: Any) -> int | None:
    hint, _ = without_annotation(hint)
    kind = get_origin(hint) or hint
    if hint is Any:
        return 9
    if node.kind == "record":
        if not is_model(kind):
            return 5 if kind in MAPS else None
        names = {short_name(each) for each in (node.name, *node.aliases)}
        if kind.__name__ in names:
            return 0
        own = {each.name for each in fields_of(kind)}
        return 2 if own >= {each.name for each in node.fields} else 3
    if node.kind == "array":
        return 0 if kind in ARRAYS else None
    if node.kind == "map":
        return 0 if kind in MAPS else None
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _rank_enum(node, kind)
    if kind is _LOGICAL.get(node.logical or "", Any):
        return 0
    kinds = _PRIMITIVES.get(node.kind, ())
    if kind in kinds:
        return 1 + kinds.index(kind)
    return 4 if node.kind == "string" and _is_of_texts(kind) else None


def _rank_enum(node: AvroNode, kind: type[Enum]) -> int | None:
    if node.kind == "enum":
        return 0 if kind.__name__ == short_name(node.name) else 1
    return 3 if node.kind == "string" else None


def _is_of_texts(kind: Any) -> bool:
    return kind is Literal or kind is uuid.UUID
