"""Arrow types for Avro's types. Imports pyarrow, which is optional: import this module lazily."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]

from aioprod.schema_registry.avro_nodes import AvroField as AvroNodeField
from aioprod.schema_registry.avro_nodes import AvroNode
from aioprod.schema_registry.columns import count_types

_WIDEST_FIXED: Final = 1_024
_MAX_DECIMAL128: Final = 38
_MAX_DECIMAL256: Final = 76

_SIMPLE: Final[dict[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final[dict[str, pa.DataType]] = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of a record.

    Attributes:
        name: its name.
        kind: its type.
        node: the field itself.
    """

    name: str
    kind: AvroType
    node: AvroNodeField


@dataclass(frozen=True, slots=True)
class AvroType:
    """A type.

    Attributes:
        kind: Avro's name of the type, such as "long", "record" or "array".
        name: its name in errors.
        arrow: the Arrow type of its column.
        physical: the Arrow type before logical types are applied.
        branch, null_branch: in a union, the index of this type, and the index of null, if any.
        fields: the fields of a record.
        items: the items of an array or a map.
        symbols: the symbols of an enum.
        size: the size of a fixed, in bytes.
    """

    kind: str
    name: str
    arrow: pa.DataType
    physical: pa.DataType
    branch: int | None = None
    null_branch: int | None = None
    fields: tuple[AvroField, ...] = ()
    items: AvroType | None = None
    symbols: tuple[str, ...] = ()
    size: int = 0

    @property
    def is_decimal(self) -> bool:
        """True if the bytes or the fixed are a decimal."""
        return bool(pa.types.is_decimal(self.arrow))


def avro_type(node: AvroNode) -> AvroType:
    """Return the column type of an Avro type.

    Raises:
        ValueError: if Arrow has no equivalent: a union of several types, or a type that contains
            itself.
    """
    return _Reader().read(node, "")


@dataclass
class _Reader:
    above: list[AvroNode] = field(default_factory=list)
    types: Iterator[None] = field(default_factory=count_types)

    def read(self, node: AvroNode, path: str) -> AvroType:
        next(self.types)
        if node.kind in _SIMPLE:
            return _simple(node, path)
        if node in self.above:
            raise ValueError(
                f"{_at(path)}{node.name} contains itself, which is impossible in a column"
            )
        return getattr(self, f"_{node.kind}")(node, path)  # type: ignore[no-any-return]

    def _union(self, node: AvroNode, path: str) -> AvroType:
        places = [place for place, each in enumerate(node.branches) if each.kind != "null"]
        null = node.null_branch
        if len(places) > 1:
            raise ValueError(
                f"{_at(path)}a union of {len(places)} types and null: a column has one type"
            )
        place = places[0] if places else null
        if place is None:
            raise ValueError(f"{_at(path)}a union without types")
        found = self.read(node.branches[place], path)
        return replace(found, branch=place, null_branch=null if places else None)

    def _record(self, node: AvroNode, path: str) -> AvroType:
        self.above.append(node)
        fields = tuple(
            AvroField(
                each.name,
                self.read(each.node, f"{path}.{each.name}" if path else each.name),
                each,
            )
            for each in node.fields
        )
        self.above.pop()
        return AvroType(
            "record",
            f"record {node.name}",
            pa.struct([(each.name, each.kind.arrow) for each in fields]),
            pa.struct([(each.name, each.kind.physical) for each in fields]),
            fields=fields,
        )

    def _array(self, node: AvroNode, path: str) -> AvroType:
        items = self.read(node.item, f"{path}[]")
        arrow, physical = pa.list_(items.arrow), pa.list_(items.physical)
        return AvroType("array", f"array of {items.name}", arrow, physical, items=items)

    def _map(self, node: AvroNode, path: str) -> AvroType:
        items = self.read(node.item, f"{path}{{}}")
        arrow = pa.map_(pa.string(), items.arrow)
        physical = pa.map_(pa.string(), items.physical)
        return AvroType("map", f"map of {items.name}", arrow, physical, items=items)

    def _enum(self, node: AvroNode, path: str) -> AvroType:
        return AvroType("enum", f"enum {node.name}", pa.string(), pa.string(), symbols=node.symbols)

    def _fixed(self, node: AvroNode, path: str) -> AvroType:
        if node.logical == "decimal":
            return replace(_decimal(node, path), size=node.size)
        # In a column of a fixed size, each null takes as many bytes as a value.
        kind = pa.binary(node.size) if node.size <= _WIDEST_FIXED else pa.binary()
        name = f"fixed {node.name} of {node.size} bytes"
        return AvroType("fixed", name, kind, kind, size=node.size)


def _simple(node: AvroNode, path: str) -> AvroType:
    kind = node.kind
    if node.logical == "decimal":
        return _decimal(node, path)
    arrow = _LOGICAL.get(node.logical or "")
    if arrow is None:
        return AvroType(kind, kind, _SIMPLE[kind], _SIMPLE[kind])
    return AvroType(kind, str(node.logical), arrow, _SIMPLE[kind])


def _decimal(node: AvroNode, path: str) -> AvroType:
    if node.precision > _MAX_DECIMAL256:
        raise ValueError(f"{_at(path)}{node}: a column has at most {_MAX_DECIMAL256} digits")
    make = pa.decimal128 if node.precision <= _MAX_DECIMAL128 else pa.decimal256
    arrow = make(node.precision, node.scale)
    return AvroType(node.kind, str(node), arrow, arrow)


def _at(path: str) -> str:
    return f"{path}: " if path else ""
