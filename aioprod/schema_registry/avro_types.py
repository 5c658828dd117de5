"""Avro's types as Arrow has them. Imports pyarrow, which is optional: import this module late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]

MISSING: Final = object()
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
_LOGICAL: Final[dict[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of a record.

    Attributes:
        name: its name.
        kind: its type.
        default: what JSON has for its default; MISSING if it has none.
    """

    name: str
    kind: AvroType
    default: Any = MISSING


@dataclass(frozen=True, slots=True)
class AvroType:
    """A type.

    Attributes:
        kind: Avro's name of the type, such as "long", "record" or "array".
        name: how errors show it.
        arrow: the type of its column.
        physical: the type of its column before logical types are applied.
        branch, null_branch: in a union the place of this type, and that of null, if any.
        fields: of a record.
        items: of an array or a map.
        symbols: of an enum.
        size: of a fixed, in bytes.
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
        """Whether bytes or a fixed are a decimal."""
        return bool(pa.types.is_decimal(self.arrow))


def avro_type(parsed: Any) -> AvroType:
    """Return a schema that fastavro has parsed, references included.

    Raises:
        ValueError: if Arrow has no type for it: a union of several types, or a type that contains
            itself.
    """
    return _Reader().read(parsed, "")


def without_logical_types(parsed: Any) -> Any:
    """Return a schema that reads the numbers of dates and times as numbers."""
    if isinstance(parsed, list):
        return [without_logical_types(each) for each in parsed]
    if not isinstance(parsed, dict):
        return parsed
    keep = parsed.get("logicalType") == "decimal"
    return {
        name: value if name == "default" else without_logical_types(value)
        for name, value in parsed.items()
        if not name.startswith("__") and (keep or name != "logicalType")
    }


@dataclass
class _Reader:
    named: dict[str, Any] = field(default_factory=dict)
    above: list[str] = field(default_factory=list)

    def read(self, schema: Any, path: str) -> AvroType:
        if isinstance(schema, list):
            return self._union(schema, path)
        if isinstance(schema, str):
            if schema in _SIMPLE:
                return AvroType(schema, schema, _SIMPLE[schema], _SIMPLE[schema])
            if schema in self.above:
                raise ValueError(f"{_at(path)}{schema} contains itself, which no column can")
            return self.read(self.named[schema], path)
        kind = schema["type"]
        if isinstance(kind, list | dict) or (kind not in _SIMPLE and kind not in _COMPLEX):
            return self.read(kind, path)
        if kind in _SIMPLE:
            return _simple(kind, schema, path)
        if "name" in schema:
            self.named[schema["name"]] = schema
        return getattr(self, f"_{kind}")(schema, path)  # type: ignore[no-any-return]

    def _union(self, branches: list[Any], path: str) -> AvroType:
        places = [place for place, each in enumerate(branches) if each != "null"]
        nulls = [place for place, each in enumerate(branches) if each == "null"]
        for each in branches:  # a later branch is not used here, but may be named elsewhere
            if isinstance(each, dict) and "name" in each:
                self.named[each["name"]] = each
        if len(places) > 1:
            raise ValueError(
                f"{_at(path)}a union of {len(places)} types besides null: a column has one type"
            )
        place = places[0] if places else nulls[0]
        found = self.read(branches[place], path)
        if found.branch is not None:
            raise ValueError(f"{_at(path)}a union in a union")
        null = nulls[0] if places and nulls else None
        return replace(found, branch=place, null_branch=null)

    def _record(self, schema: Mapping[str, Any], path: str) -> AvroType:
        self.above.append(schema["name"])
        fields = tuple(
            AvroField(
                each["name"],
                self.read(each["type"], f"{path}.{each['name']}" if path else each["name"]),
                each.get("default", MISSING),
            )
            for each in schema["fields"]
        )
        self.above.pop()
        return AvroType(
            "record",
            f"record {schema['name']}",
            pa.struct([(each.name, each.kind.arrow) for each in fields]),
            pa.struct([(each.name, each.kind.physical) for each in fields]),
            fields=fields,
        )

    def _array(self, schema: Mapping[str, Any], path: str) -> AvroType:
        items = self.read(schema["items"], f"{path}[]")
        arrow, physical = pa.list_(items.arrow), pa.list_(items.physical)
        return AvroType("array", f"array of {items.name}", arrow, physical, items=items)

    def _map(self, schema: Mapping[str, Any], path: str) -> AvroType:
        items = self.read(schema["values"], f"{path}{{}}")
        arrow, physical = pa.map_(pa.string(), items.arrow), pa.map_(pa.string(), items.physical)
        return AvroType("map", f"map of {items.name}", arrow, physical, items=items)

    def _enum(self, schema: Mapping[str, Any], path: str) -> AvroType:
        name = f"enum {schema['name']}"
        return AvroType("enum", name, pa.string(), pa.string(), symbols=tuple(schema["symbols"]))

    def _fixed(self, schema: Mapping[str, Any], path: str) -> AvroType:
        size = schema["size"]
        if schema.get("logicalType") == "decimal":
            return replace(_decimal("fixed", schema, path), size=size)
        kind = pa.binary(size)
        return AvroType("fixed", f"fixed {schema['name']} of {size} bytes", kind, kind, size=size)


_COMPLEX: Final = frozenset({"record", "array", "map", "enum", "fixed"})


def _simple(kind: str, schema: Mapping[str, Any], path: str) -> AvroType:
    logical = schema.get("logicalType")
    if kind == "bytes" and logical == "decimal":
        return _decimal(kind, schema, path)
    arrow = _LOGICAL.get((kind, str(logical)))
    if arrow is None:
        return AvroType(kind, kind, _SIMPLE[kind], _SIMPLE[kind])
    return AvroType(kind, str(logical), arrow, _SIMPLE[kind])


def _decimal(kind: str, schema: Mapping[str, Any], path: str) -> AvroType:
    precision, scale = schema["precision"], schema.get("scale", 0)
    if precision > _MAX_DECIMAL256:
        raise ValueError(
            f"{_at(path)}decimal({precision}, {scale}): a column has at most "
            f"{_MAX_DECIMAL256} digits"
        )
    make = pa.decimal128 if precision <= _MAX_DECIMAL128 else pa.decimal256
    arrow = make(precision, scale)
    return AvroType(kind, f"decimal({precision}, {scale})", arrow, arrow)


def _at(path: str) -> str:
    return f"{path}: " if path else ""
