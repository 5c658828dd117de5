"""A Spark read treats hostile values as malformed."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioprod import ConfigError, DecodingLimits
from aioprod.errors import CorruptRecordError
from aioprod.schema_registry import Schema, SchemaRegistry
from aioprod.spark.registered.options import parse_registry_options
from aioprod.spark.registered.rows import RegisteredColumn, RegisteredRows
from aioprod.spark.registered.schemas import RegisteredValue
from aioprod.testing.registry import EmbeddedSchemaRegistry
from tests.schema_registry import hostile

FORMATS = {"AVRO": "avro", "JSON": "json-schema"}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
GIVEN = {"schema.registry.url": "http://r:1", "value.format": "avro"}


def schema_of_query(case: hostile.Hostile) -> Schema:
    """An earlier version, which has none of the fields; for decimals the same one."""
    if "decimal" in case.name:
        return case.schema
    written = json.loads(case.schema.text)
    if case.schema.type == "JSON":
        wide = {"title": "T", "type": "object", "properties": {"zz": {"type": "integer"}}}
        return Schema(json.dumps(wide), "JSON")
    return Schema(json.dumps(hostile.record(written["name"], zz="null") | {
        "fields": [{"name": "zz", "type": ["null", "int"], "default": None}]
    }))  # fmt: skip


async def rows_of(registry: SchemaRegistry, case: hostile.Hostile, mode: str) -> RegisteredRows:
    options = parse_registry_options(
        {**GIVEN, "value.format": FORMATS[case.schema.type], "mode": mode}, "t"
    )
    assert options is not None
    value = RegisteredValue(options, schema_of_query(case), 1, 1)
    return RegisteredRows(value, registry, [await RegisteredColumn.open(value, registry)])


def batch(data: bytes) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "topic": ["t"],
            "partition": pa.array([0], pa.int32()),
            "offset": pa.array([7], pa.int64()),
            "value": pa.array([data], pa.binary()),
            "headers": pa.nulls(1, HEADERS),
        }
    )


CASES = [*hostile.AVRO, *(each for each in hostile.JSON if "deep" in each.name)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.schema.type}: {case.name}")
async def test_a_hostile_value_is_malformed(case: hostile.Hostile) -> None:
    async with EmbeddedSchemaRegistry() as server, SchemaRegistry(server.url) as registry:
        found = await registry.register("t-value", case.schema)
        rows = batch(hostile.framed(found.id, case))
        permissive = await rows_of(registry, case, "permissive")
        decoded = await permissive.decode(rows, keep_headers=False)
        assert decoded.column("value").null_count == 1
        failing = await rows_of(registry, case, "failfast")
        with pytest.raises(CorruptRecordError, match="t-0, offset 7"):
            await failing.decode(rows, keep_headers=False)


def test_the_options_are_the_limits() -> None:
    given: dict[str, Any] = {
        "value.max.depth": "7",
        "value.max.empty.values": "8",
        "value.max.decimal.digits": "9",
        "value.max.checks": "10",
        "value.linear.patterns": "false",
    }
    options = parse_registry_options({**GIVEN, **given}, "t")
    assert options is not None and options.limits == DecodingLimits(7, 8, 9, 10, False)
    default = parse_registry_options(GIVEN, "t")
    assert default is not None and default.limits == DecodingLimits()
    with pytest.raises(ConfigError, match=r"option value.max.depth must be a whole number of at"):
        parse_registry_options({**GIVEN, "value.max.depth": "0"}, "t")
    with pytest.raises(ConfigError, match=r"option value.max.depth requires value.format=avro"):
        parse_registry_options({"value.max.depth": "9"}, "t")
