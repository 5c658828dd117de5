"""Avro schemas as graphs of types: names are resolved, invalid logical types are ignored."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

MISSING: Final = object()
PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
NAMED: Final = frozenset({"record", "enum", "fixed"})
_UUID_SIZE: Final = 16
_DURATION_SIZE: Final = 12
_LOGICAL: Final[Mapping[str, str]] = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    **{
        f"{kind}-{unit}": "long"
        for kind in ("timestamp", "local-timestamp")
        for unit in ("millis", "micros", "nanos")
    },
}


@dataclass(slots=True, eq=False)
class AvroField:
    """A field of a record.

    Attributes:
        name: its name.
        node: its type.
        default: its default as parsed JSON; MISSING if it has none.
        aliases: earlier names.
        doc: its description.
        supplied: whether the class of a model supplies the value if a record lacks it.
    """

    name: str
    node: AvroNode
    default: Any = MISSING
    aliases: tuple[str, ...] = ()
    doc: Any = None
    supplied: bool = False


@dataclass(slots=True, eq=False)
class AvroNode:
    """A type. A type that contains itself is a cycle of nodes.

    Attributes:
        kind: Avro's name of the type, such as "long", "record" or "union".
        name: the full name of a record, enum or fixed.
        logical: the logical type; None without a valid one.
        aliases: earlier full names.
        fields: the fields of a record.
        items: the type of the items of an array, or of the values of a map.
        branches: the branches of a union.
        symbols: the symbols of an enum.
        default: the symbol of an enum that stands for unknown symbols.
        size: the size of a fixed, in bytes.
        precision, scale: precision and scale of a decimal.
    """

    kind: str
    name: str = ""
    logical: str | None = None
    aliases: tuple[str, ...] = ()
    fields: tuple[AvroField, ...] = ()
    items: AvroNode | None = None
    branches: tuple[AvroNode, ...] = ()
    symbols: tuple[str, ...] = ()
    default: str | None = None
    size: int = 0
    precision: int = 0
    scale: int = 0
    doc: Any = field(default=None, repr=False)

    @property
    def label(self) -> str:
        """The name of this type as a branch in Avro's JSON encoding."""
        return self.name or self.kind

    @property
    def item(self) -> AvroNode:
        """The type of the items of an array, or of the values of a map."""
        assert self.items is not None
        return self.items

    @property
    def null_branch(self) -> int | None:
        """The index of null in a union; None if it is not in it."""
        return next((n for n, each in enumerate(self.branches) if each.kind == "null"), None)

    def __str__(self) -> str:
        if self.logical == "decimal":
            return f"decimal({self.precision}, {self.scale})"
        if self.kind == "union":
            return f"union of {', '.join(map(str, self.branches))}"
        if self.name:
            return f"{self.logical or self.kind} {self.name}"
        return self.logical or self.kind


def parse_node(content: Any, named: dict[str, AvroNode] | None = None) -> AvroNode:
    """Parse the JSON of a schema.

    Args:
        content: the parsed JSON of a schema.
        named: the types that it may refer to, by full name; its own types are added.

    Raises:
        ValueError: if it is not an Avro schema.
    """
    return _Parser({} if named is None else named).parse(content, "")


def short_name(name: str) -> str:
    """Return a name without its namespace."""
    return name.rpartition(".")[2]


class _Parser:
    def __init__(self, named: dict[str, AvroNode]) -> None:
        self._named = named
        self._given = set(named)

    def parse(self, content: Any, namespace: str) -> AvroNode:
        if isinstance(content, str):
            return self._by_name(content, namespace)
        if isinstance(content, list):
            return AvroNode("union", branches=self._branches(content, namespace))
        if not isinstance(content, dict) or "type" not in content:
            raise ValueError(f"{_shown(content)}: must be a name, a list, or an object with 'type'")
        kind = content["type"]
        if kind == "error":
            kind = "record"
        if isinstance(kind, str) and kind in NAMED:
            return self._named_type(kind, content, namespace)
        if kind == "array":
            return AvroNode("array", items=self.parse(_part(content, "items"), namespace))
        if kind == "map":
            return AvroNode("map", items=self.parse(_part(content, "values"), namespace))
        if isinstance(kind, str) and kind in PRIMITIVES:
            return _with_logical(AvroNode(kind), content)
        return self.parse(kind, namespace)

    def _by_name(self, name: str, namespace: str) -> AvroNode:
        if name in PRIMITIVES:
            return AvroNode(name)
        found = None
        if "." not in name and namespace:
            found = self._named.get(f"{namespace}.{name}")
        found = found or self._named.get(name)
        if found is None:
            raise ValueError(f"unknown type {name!r}: it is not defined before its first use")
        return found

    def _branches(self, content: list[Any], namespace: str) -> tuple[AvroNode, ...]:
        found = tuple(self.parse(each, namespace) for each in content)
        if any(each.kind == "union" for each in found):
            raise ValueError("a union must not contain a union")
        return found

    def _named_type(self, kind: str, content: Mapping[str, Any], namespace: str) -> AvroNode:
        name = _text(content, "name")
        given = content.get("namespace", namespace)
        if "." in name:
            namespace = name.rpartition(".")[0]
        else:
            namespace = given or ""
            name = f"{namespace}.{name}" if namespace else name
        if name in self._named and name not in self._given:
            raise ValueError(f"redefined named type: {name}")
        aliases = tuple(
            each if "." in each or not namespace else f"{namespace}.{each}"
            for each in _texts(content, "aliases")
        )
        node = AvroNode(kind, name, aliases=aliases, doc=content.get("doc"))
        self._named[name] = node
        self._given.discard(name)
        if kind == "record":
            node.fields = self._fields(_part(content, "fields"), name, namespace)
            return node
        if kind == "enum":
            _add_symbols(node, content)
            return node
        node.size = _part(content, "size")
        if not isinstance(node.size, int) or node.size < 0:
            raise ValueError(f"{name}: size={_shown(node.size)}: must be a number of bytes")
        return _with_logical(node, content)

    def _fields(self, content: Any, name: str, namespace: str) -> tuple[AvroField, ...]:
        if not isinstance(content, list):
            raise ValueError(f"{name}: fields must be a list")
        found: dict[str, AvroField] = {}
        for each in content:
            if not isinstance(each, dict):
                raise ValueError(f"{name}: a field must be an object, not {_shown(each)}")
            field_name = _text(each, "name")
            if field_name in found:
                raise ValueError(f"{name}: the field {field_name!r} occurs twice")
            node = self.parse(_part(each, "type"), namespace)
            found[field_name] = AvroField(
                field_name,
                node,
                each.get("default", MISSING),
                _texts(each, "aliases"),
                each.get("doc"),
            )
        return tuple(found.values())


def _add_symbols(node: AvroNode, content: Mapping[str, Any]) -> None:
    node.symbols = _texts(content, "symbols", needed=True)
    if len(set(node.symbols)) < len(node.symbols):
        raise ValueError(f"{node.name}: a symbol occurs twice")
    node.default = content.get("default")
    if node.default is not None and node.default not in node.symbols:
        raise ValueError(f"{node.name}: the default {_shown(node.default)} is not a symbol")


def _with_logical(node: AvroNode, content: Mapping[str, Any]) -> AvroNode:
    """Add a logical type if it is valid; Avro requires readers to ignore invalid ones."""
    logical = content.get("logicalType")
    if logical == "decimal" and node.kind in ("bytes", "fixed"):
        precision, scale = content.get("precision"), content.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int):
            return node
        most = precision if node.kind == "bytes" else math.floor(_LOG_2 * (8 * node.size - 1))
        if 1 <= precision <= most and 0 <= scale <= precision:
            node.logical, node.precision, node.scale = logical, precision, scale
    elif (
        (isinstance(logical, str) and _LOGICAL.get(logical) == node.kind)
        or (logical == "uuid" and (node.kind == "string" or node.size == _UUID_SIZE))
        or (logical == "duration" and node.kind == "fixed" and node.size == _DURATION_SIZE)
    ):
        node.logical = logical
    return node


_LOG_2: Final = math.log10(2)


def _part(content: Mapping[str, Any], name: str) -> Any:
    if name not in content:
        raise ValueError(f"{_shown(content)} has no {name!r}")
    return content[name]


def _text(content: Mapping[str, Any], name: str) -> str:
    found = _part(content, name)
    if not isinstance(found, str) or not found:
        raise ValueError(f"{name}={_shown(found)}: must be a string")
    return found


def _texts(content: Mapping[str, Any], name: str, *, needed: bool = False) -> tuple[str, ...]:
    found = _part(content, name) if needed else content.get(name) or []
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError(f"{name}={_shown(found)}: must be a list of strings")
    return tuple(found)


def _shown(content: Any) -> str:
    text = repr(content)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


_LONGEST_SHOWN: Final = 80


def described(node: AvroNode) -> Any:
    """Return a schema as JSON, with the definition of each type at its first use."""
    return _described(node, set())


def _described(node: AvroNode, written: set[str]) -> Any:
    if node.name in written:
        return node.name
    if node.kind == "union":
        return [_described(each, written) for each in node.branches]
    found: dict[str, Any] = {"type": node.kind}
    if node.name:
        written.add(node.name)
        # A name without a namespace would get that of the enclosing type.
        found |= {"name": node.name} if "." in node.name else {"name": node.name, "namespace": ""}
    if node.aliases:
        found["aliases"] = list(node.aliases)
    if node.doc is not None:
        found["doc"] = node.doc
    if node.kind == "record":
        found["fields"] = [_described_field(each, written) for each in node.fields]
    elif node.kind == "enum":
        found["symbols"] = list(node.symbols)
        if node.default is not None:
            found["default"] = node.default
    elif node.kind == "fixed":
        found["size"] = node.size
    elif node.items is not None:
        found["items" if node.kind == "array" else "values"] = _described(node.items, written)
    if node.logical is not None:
        found["logicalType"] = node.logical
        if node.logical == "decimal":
            found |= {"precision": node.precision, "scale": node.scale}
    return node.kind if len(found) == 1 else found


def _described_field(field: AvroField, written: set[str]) -> dict[str, Any]:
    found = {"name": field.name, "type": _described(field.node, written)}
    if field.default is not MISSING:
        found["default"] = field.default
    if field.aliases:
        found["aliases"] = list(field.aliases)
    if field.doc is not None:
        found["doc"] = field.doc
    return found


def all_nodes(node: AvroNode) -> Iterable[AvroNode]:
    """Yield a type and the types in it, each once."""
    met: set[int] = set()
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if id(each) in met:
            continue
        met.add(id(each))
        yield each
        waiting += [field.node for field in each.fields]
        waiting += each.branches
        if each.items is not None:
            waiting.append(each.items)
