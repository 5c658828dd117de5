"""Avro as JSON: the encoding of Kafka's console tools, and the defaults in schemas."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from aioprod.schema_registry.avro_branches import (
    Branch,
    fits,
    named_branch,
)
from aioprod.schema_registry.avro_nodes import MISSING, AvroNode

_INFINITE: Final[Mapping[str, float]] = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
    "INF": math.inf,
    "-INF": -math.inf,
}


def from_json(node: AvroNode, content: Any) -> Any:
    """Convert a value in Avro's JSON encoding for the writer. A value of a union is wrapped in an
    object that names its branch.

    Raises:
        ValueError: if no branch is named, or the value is not of the type; the message names the
            field.
    """
    return _FromJson(names_branches=True).read(node, content, "")


def from_json_default(node: AvroNode, content: Any) -> Any:
    """Convert a default for the writer. Defaults of unions name no branch: the first branch that
    fits is used.

    Raises:
        ValueError: if the value is not of the type.
    """
    return _FromJson(names_branches=False).read(node, content, "")


class _FromJson:
    def __init__(self, *, names_branches: bool) -> None:
        self._names_branches = names_branches

    def read(self, node: AvroNode, content: Any, path: str) -> Any:
        if node.kind == "union":
            if self._names_branches:
                return self._named(node, content, path)
            return self._first(node, content, path)
        if node.kind in ("bytes", "fixed"):
            return _bytes(node, content, path)
        if node.kind in ("int", "long", "float", "double"):
            return _number_of(node, content, path)
        if node.kind == "array" and isinstance(content, list):
            return [self.read(node.item, each, f"{path}[]") for each in content]
        if node.kind == "map" and isinstance(content, dict):
            return {
                key: self.read(node.item, each, f"{path}[{key!r}]") for key, each in content.items()
            }
        if node.kind == "record" and isinstance(content, dict):
            return self._record(node, content, path)
        if node.kind in _KINDS and not isinstance(content, _KINDS[node.kind]):
            raise _wrong(node, content, path)
        if node.kind == "enum" and content not in node.symbols:
            raise ValueError(f"{_at(path)}expected {node}, which has no symbol {content!r}")
        return content

    def _record(self, node: AvroNode, content: dict[str, Any], path: str) -> dict[str, Any]:
        found = {}
        for each in node.fields:
            value = content.get(each.name, MISSING)
            if value is not MISSING:
                below = f"{path}.{each.name}" if path else each.name
                found[each.name] = self.read(each.node, value, below)
            elif not self._names_branches and each.default is MISSING:
                raise ValueError(f"{_at(path)}the default of {node} has no field {each.name!r}")
        return found

    def _named(self, node: AvroNode, content: Any, path: str) -> Any:
        if content is None and node.null_branch is not None:
            return None
        if isinstance(content, dict) and len(content) == 1:
            ((name, value),) = content.items()
            if (place := named_branch(node, name)) is not None:
                branch = node.branches[place]
                return Branch(place, self.read(branch, value, path))
        raise ValueError(
            f"{_at(path)}expected {node}: write the value as an object that names its branch, such "
            f'as {{"{node.branches[-1].label}": ...}}'
        )

    def _first(self, node: AvroNode, content: Any, path: str) -> Any:
        for place, branch in enumerate(node.branches):
            try:
                return Branch(place, self.read(branch, content, path))
            except ValueError:
                continue
        raise _wrong(node, content, path)


def _bytes(node: AvroNode, content: Any, path: str) -> bytes:
    if not isinstance(content, str):
        raise _wrong(node, content, path)
    try:
        data = content.encode("latin-1")
    except UnicodeEncodeError:
        raise ValueError(
            f"{_at(path)}expected {node}, whose JSON has characters up to U+00FF only"
        ) from None
    if node.kind == "fixed" and len(data) != node.size:
        raise ValueError(f"{_at(path)}expected {node} of {node.size} bytes, got {len(data)}")
    return data


def _number_of(node: AvroNode, content: Any, path: str) -> int | float:
    if node.kind in ("float", "double") and isinstance(content, str) and content in _INFINITE:
        return _INFINITE[content]
    if not isinstance(content, int | float) or isinstance(content, bool):
        raise _wrong(node, content, path)
    if node.kind in ("float", "double"):
        try:
            return float(content)
        except OverflowError:
            raise ValueError(
                f"{_at(path)}expected {node}, got a number that is too large"
            ) from None
    if not fits(node, content) or content != int(content):
        raise ValueError(f"{_at(path)}expected {node}, got {content}")
    return int(content)


def to_json(node: AvroNode, value: Any, *, names_branches: bool = True) -> Any:
    """Return Avro's JSON encoding of a value of underlying types, in which values of unions are
    :class:`Branch`.

    Args:
        names_branches: whether a value of a union is wrapped in its branch; not in defaults.
    """
    below = partial(to_json, names_branches=names_branches)
    if node.kind == "union":
        place, value = value
        branch = node.branches[place]
        found = below(branch, value)
        return {branch.label: found} if names_branches and branch.kind != "null" else found
    if node.kind in ("bytes", "fixed"):
        return value.decode("latin-1")
    if node.kind in ("float", "double"):
        return _number(value)
    if node.kind == "array":
        return [below(node.item, each) for each in value]
    if node.kind == "map":
        return {key: below(node.item, each) for key, each in value.items()}
    if node.kind == "record":
        return {each.name: below(each.node, value[each.name]) for each in node.fields}
    return value


def _number(value: float) -> Any:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _wrong(node: AvroNode, content: Any, path: str) -> ValueError:
    names = {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "a boolean",
        type(None): "null",
    }
    given = names.get(type(content), "a number")
    return ValueError(f"{_at(path)}expected {node}, got {given}")


def _at(path: str) -> str:
    return f"{path}: " if path else ""


_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "string": (str,),
    "enum": (str,),
    "array": (list,),
    "map": (dict,),
    "record": (dict,),
}
