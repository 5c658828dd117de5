"""Values with registered Avro schemas are the same in Spark's columns as in rows, even if the
schema of the query is newer than that of a record.
"""

from __future__ import annotations

import asyncio
import datetime
import decimal
import itertools
import json
import uuid
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from aioprod import ConfigError, CorruptRecordError, SerializationError
from aioprod.schema_registry import AvroDeserializer, Schema, SchemaRegistry
from aioprod.schema_registry.avro_nodes import parse_node
from aioprod.schema_registry.avro_writing import writer_of
from aioprod.schema_registry.wire_format import write_id
from aioprod.spark.registered.columns import spark_type
from aioprod.spark.registered.encoding import encoded
from aioprod.spark.registered.rows import RegisteredRows
from aioprod.spark.registered.schemas import RegisteredValue, fetch_schema
from aioprod.spark.source_options import parse_source_options
from tests.schema_registry.avro_cases import Case, cases

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_subjects = itertools.count()


def registered(url: str, *schemas: Any) -> list[tuple[str, int]]:
    """Register schemas, each in a subject of its own; return names and ids."""

    async def register() -> list[tuple[str, int]]:
        async with SchemaRegistry(url) as registry:
            found = []
            for schema in schemas:
                subject = f"s{next(_subjects)}-value"
                made = await registry.register(subject, Schema(json.dumps(schema)))
                found.append((subject, made.id))
            return found

    return asyncio.run(register())


def value_of(url: str, subject: str) -> RegisteredValue:
    """Return the schema that ``load()`` finds."""
    options = parse_source_options(
        {
            "kafka.bootstrap.servers": "h:1",
            "subscribe": "t",
            "value.format": "avro",
            "schema.registry.url": url,
            "value.subject": subject,
        },
        streaming=False,
    )
    assert options.registry is not None
    return fetch_schema(options.registry)


def in_spark(value: RegisteredValue, records: list[bytes | None]) -> pa.Array:
    """Return the column that a task returns for records."""
    count = len(records)
    rows = pa.record_batch(
        {
            "value": pa.array(records, pa.binary()),
            "topic": pa.array(["t"] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "headers": pa.array([None] * count, HEADERS),
        }
    )

    async def decode() -> pa.Array:
        reader = await RegisteredRows.open(value)
        try:
            return (await reader.decode(rows, keep_headers=False)).column("value")
        finally:
            await reader.close()

    return asyncio.run(decode())


def in_rows(url: str, value: RegisteredValue, records: list[bytes | None]) -> list[Any]:
    """Return the rows that the row decoder returns for records."""

    async def decode() -> list[Any]:
        async with SchemaRegistry(url) as registry:
            deserializer = AvroDeserializer(registry, value.schema)
            return [await deserializer.deserialize("t", each) for each in records]

    return asyncio.run(decode())


BASE: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}],
}
# A type, its default in a schema, and what an older record then has.
ADDED: list[tuple[Any, Any, Any]] = [
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        "\u0001\u0000",
        decimal.Decimal("2.56"),
    ),
    (
        {
            "type": "fixed",
            "name": "Price",
            "size": 4,
            "logicalType": "decimal",
            "precision": 9,
            "scale": 2,
        },
        "\u00ff\u00ff\u00ff\u009c",
        decimal.Decimal("-1.00"),
    ),
    ("bytes", "\u00ff\u0000a", b"\xff\x00a"),
    ({"type": "fixed", "name": "Two", "size": 2}, "\u00e9b", b"\xe9b"),
    ({"type": "int", "logicalType": "date"}, 20_000, datetime.date(2024, 10, 4)),
    (
        {"type": "long", "logicalType": "timestamp-millis"},
        1_000,
        datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC),
    ),
    ({"type": "int", "logicalType": "time-millis"}, 1_500, 1_500),
    (
        {"type": "string", "logicalType": "uuid"},
        str(uuid.UUID(int=7)),
        str(uuid.UUID(int=7)),
    ),
    ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, "\u0001" * 16, b"\1" * 16),
    ({"type": "enum", "name": "Size", "symbols": ["S", "L"]}, "L", "L"),
    (["null", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 0}], None, None),
    (
        [{"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 0}, "null"],
        "\u0005",
        decimal.Decimal(5),
    ),
    (
        {
            "type": "record",
            "name": "Inner",
            "fields": [
                {
                    "name": "d",
                    "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1},
                },
            ],
        },
        {"d": "\u0005"},
        {"d": decimal.Decimal("0.5")},
    ),
    (
        {"type": "array", "items": {"type": "int", "logicalType": "date"}},
        [0],
        [datetime.date(1970, 1, 1)],
    ),
    ({"type": "map", "values": "bytes"}, {"k": "\u00ff"}, [("k", b"\xff")]),
]


@pytest.mark.parametrize(("kind", "default", "expected"), ADDED, ids=lambda each: str(each)[:40])
def test_an_older_record_has_the_default_of_a_field_that_was_added(
    schema_registry: Any, kind: Any, default: Any, expected: Any
) -> None:
    newer = {**BASE, "fields": [*BASE["fields"], {"name": "x", "type": kind, "default": default}]}
    (_, old_id), (subject, _) = registered(schema_registry.url, BASE, newer)
    record = write_id(old_id) + writer_of(parse_node(BASE))({"id": 3})
    found = in_spark(value_of(schema_registry.url, subject), [record, None, record]).to_pylist()
    assert found == [{"id": 3, "x": expected}, None, {"id": 3, "x": expected}]


@settings(
    max_examples=60,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(case=cases())
def sample_of_cases(case: Case) -> None:
    _seen.append(case)


_seen: list[Case] = []


def test_what_spark_reads_is_written_as_the_row_decoders_values_are(schema_registry: Any) -> None:
    """A hypothesis sample of schemas and values, through registry, driver and task."""
    _seen.clear()
    sample_of_cases()
    compared = 0
    for case in _seen:
        (_, writer_id), (subject, _) = registered(schema_registry.url, case.writer, case.reader)
        record = write_id(writer_id) + writer_of(parse_node(case.writer))(case.value)
        value = value_of(schema_registry.url, subject)
        try:
            spark_type(value)  # as load() does
        except ConfigError:
            continue  # Spark has no such type
        try:
            rows = in_rows(schema_registry.url, value, [record, None, record])
            expected = [None if row is None else encode(value, row) for row in rows]
        except (SerializationError, TypeError, ValueError):
            with pytest.raises(CorruptRecordError):
                in_spark(value, [record, None, record])
            continue
        batch = pa.record_batch({"value": in_spark(value, [record, None, record])})
        (found,) = encoded(value, iter([batch]))
        assert found.column("value").to_pylist() == expected, case
        compared += 1
    assert compared > 5


def encode(value: RegisteredValue, row: Any) -> bytes:
    """A row, written by the schema of the query."""
    return write_id(value.schema_id) + writer_of(parse_node(json.loads(value.schema.text)))(row)
