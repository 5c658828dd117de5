"""Schemas, readers' schemas and values for the comparison of Avro, made by hypothesis."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from aioprod.schema_registry.avro_nodes import AvroNode, parse_node

UTC = datetime.UTC
TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
LOGICAL: list[Any] = [
    {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    *(
        {"type": "long", "logicalType": f"{kind}timestamp-{unit}"}
        for kind in ("", "local-")
        for unit in ("millis", "micros", "nanos")
    ),
    {"type": "string", "logicalType": "uuid"},
    {"type": "string", "logicalType": "date"},  # not valid: it has no meaning
    {"type": "bytes", "logicalType": "unknown"},
]
PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]


@dataclass(frozen=True)
class Case:
    """A value to write, and a schema to read it with.

    Attributes:
        writer, reader: schemas.
        value: the value to write; unions are pairs of names and values.
    """

    writer: Any
    reader: Any
    value: Any


class _Names:
    def __init__(self) -> None:
        self.count = 0
        self.made: list[str] = []

    def new(self, space: str) -> str:
        self.count += 1
        name = f"{space}N{self.count}"
        self.made.append(name)
        return name


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3, names: _Names | None = None) -> Any:
    """Schemas of any kind."""
    names = names or _Names()
    forms = ["primitive", "logical", "enum", "fixed"]
    if depth:
        forms += ["record", "record", "array", "map", "union", "union", "optional"]
    form = draw(st.sampled_from(forms))
    if form == "primitive":
        kind = draw(st.sampled_from(PRIMITIVES))
        return draw(st.sampled_from([kind, {"type": kind}]))
    if form == "logical":
        return deepcopy(draw(st.sampled_from(LOGICAL)))
    if form in ("enum", "fixed"):
        return draw(_named(form, names.new(draw(st.sampled_from(["", "shop."])))))
    if form == "array":
        return {"type": "array", "items": draw(schemas(depth - 1, names))}
    if form == "map":
        return {"type": "map", "values": draw(schemas(depth - 1, names))}
    if form == "optional":
        inner = draw(schemas(depth - 1, names).filter(_may_be_optional))
        return draw(st.sampled_from([["null", inner], [inner, "null"]]))
    if form == "union":
        return draw(_unions(depth, names))
    name = names.new(draw(st.sampled_from(["", "shop."])))
    count = draw(st.integers(0, 4))
    fields = [{"name": f"f{n}", "type": draw(schemas(depth - 1, names))} for n in range(count)]
    if draw(st.integers(0, 7)) == 0:  # a type that contains itself
        below = draw(st.sampled_from([["null", name], {"type": "array", "items": name}]))
        fields.append({"name": "next", "type": below})
    return {"type": "record", "name": name, "fields": fields}


@st.composite
def _named(draw: st.DrawFn, form: str, name: str) -> Any:
    if form == "enum":
        symbols = draw(st.lists(st.sampled_from("ABCDEF"), min_size=1, max_size=4, unique=True))
        found: Any = {"type": "enum", "name": name, "symbols": symbols}
        if draw(st.booleans()):
            found["default"] = symbols[-1]
        return found
    logical = draw(st.sampled_from([None, "decimal", "uuid", "duration"]))
    size = {"uuid": 16, "duration": 12, "decimal": 4}.get(str(logical)) or draw(st.integers(0, 4))
    found = {"type": "fixed", "name": name, "size": size}
    if logical:
        found["logicalType"] = logical
    if logical == "decimal":
        found |= {"precision": 5, "scale": 1}
    return found


@st.composite
def _unions(draw: st.DrawFn, depth: int, names: _Names) -> Any:
    branches: list[Any] = []
    kinds: set[str] = set()
    for _ in range(draw(st.integers(1, 4))):
        each = draw(schemas(depth - 1, names).filter(_is_not_a_union))
        kind = each if isinstance(each, str) else each.get("name") or each["type"]
        if kind not in kinds:
            kinds.add(kind)
            branches.append(each)
        if isinstance(each, dict) and each["type"] == "record" and draw(st.booleans()):
            alike = deepcopy(each)  # a record that looks the same
            if not _names_in(alike["fields"]) and "next" not in json.dumps(alike):
                alike["name"] = names.new("shop.")
                kinds.add(alike["name"])
                branches.append(alike)
    return branches


def _is_not_a_union(schema: Any) -> bool:
    return not isinstance(schema, list)


def _may_be_optional(schema: Any) -> bool:
    return _is_not_a_union(schema) and schema not in ("null", {"type": "null"})


def _names_in(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [name for each in schema for name in _names_in(each)]
    if not isinstance(schema, dict):
        return []
    own = [schema["name"]] if schema.get("type") in ("record", "enum", "fixed") else []
    return own + [
        name
        for key in ("type", "items", "values", "fields")
        if key in schema
        for name in _names_in(schema[key])
    ]


@st.composite
def evolved(draw: st.DrawFn, schema: Any, names: _Names, depth: int = 0) -> Any:
    """A later version of a schema; most can read the earlier one."""
    if isinstance(schema, list):
        return draw(_evolved_union(schema, names, depth))
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind in ("record", "enum", "fixed") and "next" not in json.dumps(schema):
        schema = draw(_renamed(schema, names))
    if depth and draw(st.integers(0, 9)) == 0 and kind != "null":
        return ["null", draw(evolved(schema, names, 0))]
    if kind == "record":
        return draw(_evolved_record(schema, names, depth))
    if kind in ("array", "map"):
        part = "items" if kind == "array" else "values"
        return {**schema, part: draw(evolved(schema[part], names, depth + 1))}
    if kind == "enum":
        changed = draw(st.sampled_from([schema["symbols"], ["Z", *schema["symbols"]], ["A", "Z"]]))
        found = {**schema, "symbols": changed}
        if found.get("default") not in changed:
            found.pop("default", None)
        if draw(st.booleans()):
            found["default"] = changed[-1]
        return found
    if kind == "fixed":
        return schema
    return draw(st.sampled_from([schema, schema, *_PROMOTED.get(kind, [])]))


@st.composite
def _renamed(draw: st.DrawFn, schema: Any, names: _Names) -> Any:
    """A named type with another name in some cases, in most of them with the old one as alias."""
    change = draw(st.integers(0, 19))
    if change > 2:
        return schema
    found = {**schema, "name": names.new(draw(st.sampled_from(["", "shop.", "other."])))}
    if change:
        old = schema["name"]
        # An alias without a dot is in the namespace of the type.
        if "." in old or "." not in found["name"]:
            found["aliases"] = [old]
    if change == 2:
        found["name"] = f"moved.{schema['name'].rpartition('.')[2]}"
        found.pop("aliases", None)
    return found


_PROMOTED: dict[str, list[Any]] = {
    "int": ["long", "float", "double", {"type": "long", "logicalType": "timestamp-millis"}],
    "long": ["float", "double", {"type": "long", "logicalType": "timestamp-micros"}, "long"],
    "float": ["double"],
    "string": ["bytes", "string"],
    "bytes": ["string", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}],
}


@st.composite
def _evolved_record(draw: st.DrawFn, schema: Any, names: _Names, depth: int) -> Any:
    fields = []
    for each in schema["fields"]:
        change = draw(st.integers(0, 9))
        if change == 0:
            continue
        found = {"name": each["name"], "type": draw(evolved(each["type"], names, depth + 1))}
        if change == 1:
            found |= {"name": f"{each['name']}_", "aliases": [each["name"]]}
        fields.append(found)
    if draw(st.booleans()):
        kind = draw(schemas(1, names))
        node = parse_node(kind)
        fields.append({"name": "new", "type": kind, "default": draw(defaults(node))})
    return {**schema, "fields": draw(st.permutations(fields))}


@st.composite
def _evolved_union(draw: st.DrawFn, schema: Any, names: _Names, depth: int) -> Any:
    branches = [draw(evolved(each, names, 0)) for each in schema]
    kept: list[Any] = []
    met: set[str] = set()
    for each in draw(st.permutations(branches)):
        name = each if isinstance(each, str) else each.get("name") or each["type"]
        if name not in met:
            met.add(name)
            kept.append(each)
    if len(kept) == 1 and draw(st.booleans()):
        return kept[0]
    return kept


def defaults(node: AvroNode, above: tuple[AvroNode, ...] = ()) -> st.SearchStrategy[Any]:
    """Defaults, as JSON has them."""
    kinds: dict[str, Any] = {
        "null": st.none(),
        "boolean": st.booleans(),
        "int": st.integers(0, 9),
        "long": st.integers(0, 9),
        "float": st.sampled_from([0.5, 3.0]),
        "double": st.sampled_from([0.1, 3.0]),
        "string": TEXT,
        "bytes": st.text(st.characters(max_codepoint=255), max_size=2),
    }
    if node.logical == "uuid" and node.kind == "string":
        return st.just(str(uuid.UUID(int=5)))
    if node.kind in kinds:
        found: st.SearchStrategy[Any] = kinds[node.kind]
        return found
    if node.kind == "enum":
        return st.sampled_from(node.symbols)
    if node.kind == "fixed":
        return st.text(st.characters(max_codepoint=255), min_size=node.size, max_size=node.size)
    if node.kind == "array":
        return (
            st.just([]) if node.item in above else st.lists(defaults(node.item, above), max_size=2)
        )
    if node.kind == "map":
        return st.dictionaries(TEXT, defaults(node.item, above), max_size=2)
    if node.kind == "union":
        return defaults(node.branches[0], above)
    return st.fixed_dictionaries(
        {each.name: defaults(each.node, (*above, node)) for each in node.fields}
    )


def values(node: AvroNode, above: tuple[AvroNode, ...] = ()) -> st.SearchStrategy[Any]:
    """Values as fastavro writes them; those of unions are pairs of names and values.

    Args:
        above: records that the value is in; each contains itself once at most.
    """
    if node.logical is not None:
        return _logical_values(node)
    kinds: dict[str, Any] = {
        "null": st.none(),
        "boolean": st.booleans(),
        "int": st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 3),
        "long": st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
        "float": st.floats(width=32),
        "double": st.floats(),
        "string": TEXT,
        "bytes": st.binary(max_size=4),
    }
    if node.kind in kinds:
        found: st.SearchStrategy[Any] = kinds[node.kind]
        return found
    if node.kind == "enum":
        return st.sampled_from(node.symbols)
    if node.kind == "fixed":
        return st.binary(min_size=node.size, max_size=node.size)
    if node.kind == "array":
        ends = above.count(node.item) > 1
        return st.just([]) if ends else st.lists(values(node.item, above), max_size=3)
    if node.kind == "map":
        return st.dictionaries(TEXT, values(node.item, above), max_size=2)
    if node.kind == "union":
        return st.one_of(
            [
                st.none()
                if each.kind == "null"
                else st.tuples(st.just(each.label), values(each, above))
                for each in node.branches
                if above.count(each) < 2
            ]
        )
    return st.fixed_dictionaries(
        {each.name: values(each.node, (*above, node)) for each in node.fields}
    )


MOMENTS = st.datetimes(datetime.datetime(1, 1, 3), datetime.datetime(9999, 12, 29))


def _logical_values(node: AvroNode) -> st.SearchStrategy[Any]:
    logical = str(node.logical)
    if logical == "decimal":
        most = 10**node.precision - 1
        return st.integers(-most, most).map(
            lambda number: decimal.Decimal(number).scaleb(-node.scale)
        )
    if logical == "date":
        return st.dates()
    if logical == "uuid":
        return st.uuids()
    if logical == "duration":
        return st.binary(min_size=12, max_size=12)
    if logical.endswith("nanos"):
        return st.integers(-(2**63), 2**63 - 1)
    if logical == "time-micros":
        return st.times()
    if logical == "time-millis":
        return st.times().map(_in_millis)
    found = MOMENTS.map(_in_millis) if logical.endswith("millis") else MOMENTS
    if logical.startswith("timestamp"):
        return found.map(lambda each: each.replace(tzinfo=UTC))
    return found


def _in_millis(value: Any) -> Any:
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A schema, a later version of it, and a value."""
    names = _Names()
    writer = draw(schemas(3, names))
    value = draw(values(parse_node(writer)))
    reader = draw(evolved(writer, names)) if draw(st.booleans()) else writer
    return Case(writer, reader, value)


def plain(value: Any) -> Any:
    """Return a value without the names of branches."""
    if isinstance(value, tuple):
        return plain(value[1])
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return value
