"""JSON Schemas as documents: drafts, and references within a schema, to others and by ids."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioprod import SerializationError
from aioprod.preparation import NotPrepared
from aioprod.schema_registry import (
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    Schema,
    SchemaReference,
    SchemaRegistry,
)

DRAFT = "http://json-schema.org/draft-0{}/schema#"
LATER = "https://json-schema.org/draft/{}/schema"
LOCAL: dict[str, dict[str, Any]] = {
    "definitions": {"$ref": "#/definitions/a", "definitions": {"a": {"type": "integer"}}},
    "$defs without a draft": {"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}},
    "escaped": {"$ref": "#/definitions/a~1b~0", "definitions": {"a/b~": {"type": "integer"}}},
    "an id of draft 4": {
        "$schema": DRAFT.format(4),
        "$ref": "#here",
        "definitions": {"a": {"id": "#here", "type": "integer"}},
    },
    "an $id as anchor": {
        "$schema": DRAFT.format(7),
        "$ref": "#here",
        "definitions": {"a": {"$id": "#here", "type": "integer"}},
    },
    "$anchor": {
        "$schema": LATER.format("2020-12"),
        "$ref": "#here",
        "$defs": {"a": {"$anchor": "here", "type": "integer"}},
    },
    "$anchor without a draft": {
        "$ref": "#here",
        "$defs": {"a": {"$anchor": "here", "type": "integer"}},
    },
    "an $id within": {
        "$schema": LATER.format("2019-09"),
        "$id": "http://shop.example/order.json",
        "$ref": "parts/count.json#/$defs/n",
        "$defs": {
            "a": {
                "$id": "parts/count.json",
                "$defs": {"n": {"$ref": "#/$defs/m"}, "m": {"type": "integer"}},
            },
        },
    },
    "$dynamicRef": {
        "$schema": LATER.format("2020-12"),
        "$dynamicRef": "#n",
        "$defs": {"a": {"$dynamicAnchor": "n", "type": "integer"}},
    },
}


async def verdicts(
    registry: SchemaRegistry, schema: Schema | dict[str, Any], *values: Any
) -> list[bool]:
    serializer = JsonSchemaSerializer(registry, schema)
    found = []
    for value in values:
        try:
            await serializer.serialize("t", value)
        except ValueError:
            found.append(False)
        else:
            found.append(True)
    return found


async def column(registry: SchemaRegistry, schema: Schema | dict[str, Any], *values: Any) -> Any:
    lax = JsonSchemaSerializer(registry, schema, validate=False)
    rows = pa.array([(await lax.serialize("t", value))[0] for value in values], pa.binary())
    reads = JsonSchemaDeserializer(registry)
    try:
        reads.deserialize_column("t", None, rows)
    except NotPrepared as needed:
        await needed.prepare()
    return reads.deserialize_column("t", None, rows)


@pytest.mark.parametrize("schema", LOCAL.values(), ids=LOCAL.keys())
async def test_references_within_a_schema(registry: SchemaRegistry, schema: dict[str, Any]) -> None:
    assert await verdicts(registry, schema, 7, "x") == [True, False]
    found = await column(registry, schema, 7)
    assert (found.data.type, found.data.to_pylist()) == (pa.int64(), [7])


@pytest.mark.parametrize(
    ("own_id", "name", "used_id", "reference"),
    [
        (None, "customer.json", None, "customer.json"),
        (None, "customer.json", "http://shop.example/c.json", "customer.json"),
        (None, "customer.json", "http://shop.example/c.json", "http://shop.example/c.json"),
        ("http://shop.example/order.json", "customer.json", None, "customer.json"),
        (
            "http://shop.example/order.json",
            "http://shop.example/customer.json",
            None,
            "customer.json",
        ),
        ("http://shop.example/a/order.json", "../customer.json", None, "../customer.json"),
        (None, "urn:customer", None, "urn:customer"),
    ],
)
async def test_references_of_the_registry(
    registry: SchemaRegistry, own_id: str | None, name: str, used_id: str | None, reference: str
) -> None:
    used: dict[str, Any] = {
        "type": "object",
        "properties": {"id": {"$ref": "#/definitions/id"}},
        "definitions": {"id": {"type": "integer"}},
    }
    if used_id:
        used["$id"] = used_id
    await registry.register("customer", Schema(json.dumps(used), "JSON"))
    own: dict[str, Any] = {"type": "object", "properties": {"customer": {"$ref": reference}}}
    if own_id:
        own["$id"] = own_id
    schema = Schema(json.dumps(own), "JSON", (SchemaReference(name, "customer", 1),))
    good, bad = {"customer": {"id": 7}}, {"customer": {"id": "x"}}
    assert await verdicts(registry, schema, good, bad) == [True, False]
    assert (await column(registry, schema, good)).data.to_pylist() == [good]


async def test_a_schema_that_is_unknown_is_not_looked_for_elsewhere(
    registry: SchemaRegistry,
) -> None:
    schema = {"$ref": "http://127.0.0.1:9/x.json"}
    lax = JsonSchemaSerializer(registry, schema, validate=False)
    data, _ = await lax.serialize("t", 7)
    with pytest.raises(Exception, match=r"x\.json"):
        await JsonSchemaDeserializer(registry).deserialize("t", data)
    with pytest.raises(ValueError, match=r"refers to '.*/x\.json', which is unknown"):
        await column(registry, schema, 7)


TUPLE = {"items": [{"type": "number"}, {"type": "number"}], "additionalItems": False}
PREFIX = {"prefixItems": [{"type": "number"}], "items": False}


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        # Without a draft: draft 7, as for Confluent's Java.
        (TUPLE, [1, 2], True),
        (TUPLE, [1, 2, 3], False),
        (TUPLE, [1, "x"], False),
        ({"$ref": "#/definitions/a", "type": "string", "definitions": {"a": {}}}, 7, True),
        ({"dependencies": {"a": ["b"]}}, {"a": 1}, False),
        ({"if": {"type": "string"}, "then": {"minLength": 2}}, "x", False),
        # Unless keywords of later drafts say otherwise.
        (PREFIX, [1], True),
        (PREFIX, [1, 2], False),
        ({"properties": {"a": PREFIX}}, {"a": ["x"]}, False),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, False),
        ({"properties": {"a": {}}, "unevaluatedProperties": False}, {"b": 1}, False),
        ({**TUPLE, "unevaluatedItems": False}, [1, 2], True),
        ({"properties": {"$anchor": {"items": [{"type": "null"}]}}}, {"$anchor": [1]}, False),
        # With one: that one.
        ({"$schema": DRAFT.format(4), "maximum": 5, "exclusiveMaximum": True}, 5, False),
        ({"$schema": DRAFT.format(6), "exclusiveMaximum": 5}, 5, False),
        ({"$schema": DRAFT.format(7), **PREFIX}, [], True),
        ({"$schema": DRAFT.format(7).rstrip("#"), **TUPLE}, [1, 2, 3], False),
        ({"$schema": LATER.format("2019-09"), **TUPLE}, [1, 2, 3], False),
        ({"$schema": LATER.format("2020-12"), **PREFIX}, [1, 2], False),
        ({"$schema": "http://unknown.example/draft", **TUPLE}, [1, 2, 3], False),
        (True, [1], True),
        (False, [1], False),
    ],
)  # fmt: skip
async def test_the_draft_of_a_schema(
    registry: SchemaRegistry, schema: Any, value: Any, fits: bool
) -> None:
    given = Schema(json.dumps(schema), "JSON")
    assert await verdicts(registry, given, value) == [fits]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"not": {"$ref": "#"}}]},
        {"allOf": [{"$ref": "#/$defs/b"}], "$defs": {"b": {"if": {"$ref": "#"}}}},
        {"properties": {"x": {"$ref": "#/properties/x"}}},
    ],
)
async def test_a_schema_without_end_is_refused(registry: SchemaRegistry, schema: Any) -> None:
    with pytest.raises(SerializationError, match="refers to itself without end"):
        await JsonSchemaSerializer(registry, schema).serialize("t", 7)


async def test_a_schema_may_contain_itself(registry: SchemaRegistry) -> None:
    schema = {"properties": {"a": {"$ref": "#"}}, "items": {"$ref": "#"}, "not": {"type": "null"}}
    good, bad = {"a": [{"a": 1}]}, {"a": [{"a": None}]}
    assert await verdicts(registry, schema, good, bad) == [True, False]
