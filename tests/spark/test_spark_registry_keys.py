"""Keys with schemas of a registry: confluent-kafka writes and Spark reads, and the other way."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from aioprod import ConfigError, CorruptRecordError
from aioprod.spark.registered.rows import RegisteredRows
from aioprod.spark.registered.schemas import RegisteredValue, fetch_schema
from aioprod.spark.sink_options import parse_sink_options, with_schema
from aioprod.spark.source_options import parse_source_options
from aioprod.testing import ThreadedCluster
from tests.schema_registry import confluent

from .source_topics import send

URL = "schema.registry.url"
AVRO = {"value.format": "avro", "key.format": "avro"}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
VALUE = {"type": "record", "name": "Value", "fields": [{"name": "item", "type": "string"}]}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
IDS = (7, 8, 7, 1 << 20)


def by_confluent(
    url: str, topic: str, field: confluent.MessageField, values: list[Any], **conf: Any
) -> list[Any]:
    """Return keys or values as its serializer encodes them: data and headers."""
    schema = KEY if field == confluent.MessageField.KEY else VALUE
    found = []
    with confluent.SchemaRegistryClient({"url": url}) as client:
        serializer = confluent.AvroSerializer(client, json.dumps(schema), conf=conf)
        for value in values:
            context = confluent.SerializationContext(topic, field, headers=[])
            found.append((serializer(value, context), context.headers))
    return found


def keys(url: str, topic: str, *ids: int, **conf: Any) -> list[Any]:
    given = [{"id": number} for number in ids]
    return by_confluent(url, topic, confluent.MessageField.KEY, given, **conf)


def values(url: str, topic: str, *items: str) -> list[bytes]:
    given = [{"item": item} for item in items]
    found = by_confluent(url, topic, confluent.MessageField.VALUE, given)
    return [data for data, _ in found]


def test_keys_are_read_and_written(
    session: SparkSession, threaded_broker: ThreadedCluster, schema_registry: Any, tmp_path: Path
) -> None:
    """confluent-kafka wrote them, and reads the copies, which have the same bytes."""
    servers, url = threaded_broker.bootstrap_servers, schema_registry.url
    for topic in ("in", "out"):
        threaded_broker.create_topic(topic, 3)
        encoded = [*(key for key, _ in keys(url, topic, *IDS)), None]
        items = values(url, topic, "tea", "milk", "more tea", "far", "no key")
    send(servers, "in", key=encoded, value=items)
    given = {"kafka.bootstrap.servers": servers, **AVRO, URL: url}
    stream = session.readStream.format("aioprod").options(**given, subscribe="in")
    rows = stream.option("startingOffsets", "earliest").load()
    assert rows.schema["key"].dataType.simpleString() == "struct<id:int>"
    changed = rows.where("key.id IS NULL OR key.id < 1000000").select("key", "value")
    writer = changed.writeStream.format("aioprod").options(**given, topic="out")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)

    def stored(topic: str, partition: int) -> list[tuple[bytes | None, bytes | None]]:
        records = threaded_broker.records(topic, partition, committed_only=True)
        return [(record.key, record.value) for record in records if record.key is not None]

    far = encoded[3]
    for partition in range(3):  # a key is in the partition that its bytes choose
        sent = [each for each in stored("in", partition) if each[0] != far]
        assert stored("out", partition) == sent
    assert len(threaded_broker.records("out", committed_only=True)) == 4


def batch(*rows: tuple[bytes | None, bytes | None, list[Any]]) -> pa.RecordBatch:
    count = len(rows)
    headers = [[{"key": name, "value": data} for name, data in each] for _, _, each in rows]
    return pa.record_batch(
        {
            "key": pa.array([key for key, _, _ in rows], pa.binary()),
            "value": pa.array([value for _, value, _ in rows], pa.binary()),
            "topic": pa.array(["t"] * count),
            "partition": pa.array([2] * count, pa.int32()),
            "offset": pa.array(range(70, 70 + count), pa.int64()),
            "headers": pa.array(headers, HEADERS),
        }
    )


def schema_of(url: str, **given: str) -> RegisteredValue:
    options = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", **AVRO, URL: url, **given}
    parsed = parse_source_options(options, streaming=False)
    assert parsed.registry is not None
    return fetch_schema(parsed.registry)


def decode(
    schema: RegisteredValue, rows: pa.RecordBatch, rejected: dict[int, str] | None = None
) -> list[Any]:
    async def run() -> pa.RecordBatch:
        reader = await RegisteredRows.open(schema)
        try:
            return await reader.decode(rows, keep_headers=False, rejected=rejected)
        finally:
            await reader.close()

    found = asyncio.run(run())
    columns = [found.column(name).to_pylist() for name in ("key", "value", "offset")]
    return list(zip(*columns, strict=True))


def test_malformed_keys_are_handled_as_malformed_values(schema_registry: Any) -> None:
    url = schema_registry.url
    ((key, _),), (value,) = keys(url, "t", 7), values(url, "t", "tea")
    rows = batch((key, value, []), (b"x", value, []), (key, b"x", []), (b"x", b"x", []))
    seven, tea = {"id": 7}, {"item": "tea"}
    assert decode(schema_of(url, mode="permissive"), rows) == [
        (seven, tea, 70),
        (None, tea, 71),
        (seven, None, 72),
        (None, None, 73),
    ]
    assert decode(schema_of(url, mode="dropmalformed"), rows) == [(seven, tea, 70)]
    rejected: dict[int, str] = {}
    assert decode(schema_of(url, mode="dropmalformed"), rows, rejected) == [(seven, tea, 70)]
    assert [reason.startswith("the key: ") for reason in rejected.values()] == [True, False, False]
    assert list(rejected) == [1, 2, 3]
    with pytest.raises(CorruptRecordError, match=r"t-2, offset 71: the key can't be .* t-key: "):
        decode(schema_of(url), rows)


def test_the_id_of_a_key_may_be_in_its_own_header(schema_registry: Any) -> None:
    url = schema_registry.url
    header = {"schema.id.serializer": confluent.header_schema_id_serializer}
    ((key, headers),) = keys(url, "t", 7, **header)
    (value,) = values(url, "t", "tea")
    assert len(headers) == 1
    found = decode(schema_of(url), batch((key, value, headers), (None, value, [])))
    assert found == [({"id": 7}, {"item": "tea"}, 70), (None, {"item": "tea"}, 71)]


def test_a_batch_without_keys_or_without_values(schema_registry: Any) -> None:
    url = schema_registry.url
    ((key, _),), (value,) = keys(url, "t", 7), values(url, "t", "tea")
    schema = schema_of(url)
    assert decode(schema, batch((None, value, []))) == [(None, {"item": "tea"}, 70)]
    assert decode(schema, batch((key, None, []))) == [({"id": 7}, None, 70)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"key.format": "avro"}, r"option key\.format requires value\.format=avro or"),
        ({**AVRO, "key.format": "xml"}, r"option key\.format must be avro or"),
        ({**AVRO, "key.message": "M"}, r"key\.message is for key\.format=protobuf, not for avro"),
        ({**AVRO, "key.schema.version": "0"}, r"option key\.schema\.version must be latest"),
        ({"value.format": "avro", "key.subject": "s"}, r"key\.subject requires key\.format=avro"),
        (
            {**AVRO, "subscribe": "a,b", "value.subject": "v"},
            r"option key\.subject is required unless .* and -key",
        ),
    ],
)
def test_options(given: dict[str, str], message: str) -> None:
    options = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", **given}
    if "value.format" in given:
        options[URL] = "http://r:1"
    with pytest.raises(ConfigError, match=message):
        parse_source_options(options, streaming=False)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (None, r"option key\.format needs the column key"),
        (StringType(), "the column key does not fit version 1 of subject t-key: "),
        (StructType([StructField("no", IntegerType())]), r"the column key does not fit .* 'no'"),
    ],
)
def test_a_column_that_does_not_fit_is_an_error_of_the_driver(
    schema_registry: Any, key: Any, message: str
) -> None:
    url = schema_registry.url
    keys(url, "t", 7)
    values(url, "t", "tea")
    sink = parse_sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t", **AVRO, URL: url})
    columns = [StructField("value", StructType([StructField("item", StringType())]))]
    if key is not None:
        columns.append(StructField("key", key))
    with pytest.raises(ConfigError, match=message):
        with_schema(sink, StructType(columns))


def test_a_subject_of_keys_that_does_not_exist(schema_registry: Any) -> None:
    values(schema_registry.url, "t", "tea")
    with pytest.raises(ConfigError, match=r"option key\.subject=t-key: .*not found"):
        schema_of(schema_registry.url)
