"""Values with schemas of a registry: confluent-kafka writes and Spark reads, and the other way."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType

from aioprod import ConfigError, Consumer, CorruptRecordError
from aioprod.spark.errors import SinkError
from aioprod.spark.registered.columns import spark_shape
from aioprod.spark.registered.encoding import encoded
from aioprod.spark.registered.rows import RegisteredRows
from aioprod.spark.registered.schemas import fetch_schema
from aioprod.spark.sink_options import parse_sink_options, with_schema
from aioprod.spark.source import KafkaDataSource
from aioprod.spark.source_options import parse_source_options
from aioprod.testing import ThreadedCluster
from tests.schema_registry import confluent
from tests.schema_registry.messages import User

from .source_topics import send

URL = "schema.registry.url"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
GIVEN = {"kafka.bootstrap.servers": "h:1", "value.format": "avro", URL: "http://r:1"}
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=datetime.UTC)
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "item", "type": "string"},
        {"name": "count", "type": ["null", "long"]},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "size", "type": {"type": "enum", "name": "Size", "symbols": ["S", "L"]}},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
    ],
}
LATER = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": "-"}]}
TYPE = (
    "struct<item:string,count:bigint,price:decimal(9,2),at:timestamp,clock:int,size:string,"
    "tags:map<string,array<int>>>"
)


def order(item: str, **more: Any) -> dict[str, Any]:
    return {
        "item": item,
        "count": None,
        "price": decimal.Decimal("7.50"),
        "at": NOW,
        "clock": datetime.time(0, 0, 1),
        "size": "L",
        "tags": {"a": [1, 2], "b": []},
        **more,
    }


def by_confluent(
    url: str, topic: str, schema: dict[str, Any], values: list[Any], **conf: Any
) -> list[tuple[Any, Any]]:
    """Serialize values with Confluent's serializer, and return data and headers of each."""
    made = []
    with confluent.SchemaRegistryClient({"url": url}) as client:
        serializer = confluent.AvroSerializer(client, json.dumps(schema), conf=conf)
        for value in values:
            context = confluent.SerializationContext(
                topic, confluent.MessageField.VALUE, headers=[]
            )
            made.append((serializer(value, context), context.headers))
    return made


def stored(broker: ThreadedCluster, topic: str) -> list[bytes | None]:
    """The values in a topic, in order, committed ones only."""

    async def read() -> list[bytes | None]:
        found: list[bytes | None] = []
        async with Consumer(
            topic,
            bootstrap_servers=broker.bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            while records := await consumer.getmany(timeout_ms=1_000):
                found += [record.value for record in records]
        return found

    return asyncio.run(read())


def options(broker: ThreadedCluster, registry: Any, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "value.format": "avro",
        URL: registry.url,
        **{name.replace("_", "."): text for name, text in more.items()},
    }


def load(session: SparkSession, given: dict[str, str]) -> DataFrame:
    return session.read.format("aioprod").options(**given).load()


def test_confluent_writes_and_spark_reads(
    session: SparkSession, threaded_broker: ThreadedCluster, schema_registry: Any
) -> None:
    first = by_confluent(schema_registry.url, "in", ORDER, [order("tea", count=1 << 40)])
    second = by_confluent(schema_registry.url, "in", LATER, [order("milk", note="cold")])
    header = {"schema.id.serializer": confluent.header_schema_id_serializer}
    ((bare, headers),) = by_confluent(schema_registry.url, "in", LATER, [order("jam")], **header)
    values = [first[0][0], second[0][0], bare, None, b"\0\0\0\0\x63x", second[0][0][:9]]
    assert len(headers) == 1
    own = [[], [], [{"key": headers[0][0], "value": headers[0][1]}], [], [], []]
    send(
        threaded_broker.bootstrap_servers,
        "in",
        value=values,
        headers=pa.array(own, HEADERS),
    )
    given = options(
        threaded_broker, schema_registry, subscribe="in", includeRawValue="true", mode="permissive"
    )
    requests = len(schema_registry.calls)
    schema_registry.fail(503)  # the request is repeated
    frame = load(session, given)
    assert frame.schema["value"].dataType.simpleString() == TYPE[:-1] + ",note:string>"
    rows = frame.orderBy("offset").collect()
    assert [row["rawValue"] for row in rows] == values
    found = [row["value"] and row["value"].asDict() for row in rows]
    assert found[0]["count"] == 1 << 40 and found[0]["note"] == "-"
    assert found[0]["clock"] == 1000 and found[0]["tags"] == {"a": [1, 2], "b": []}
    assert found[0]["price"] == decimal.Decimal("7.50") and found[0]["at"].microsecond == 678000
    assert [each["note"] for each in found[1:3]] == ["cold", "-"]
    assert found[3:] == [None] * 3
    # The driver has asked once for the schema to read with, tasks once for each other one.
    versions = [call for call in schema_registry.calls[requests:] if "versions" in str(call)]
    assert len(versions) == 2
    pinned = load(session, {**given, "value.schema.version": "1", "mode": "dropmalformed"})
    assert pinned.schema["value"].dataType.simpleString() == TYPE
    assert pinned.count() == 4
    with pytest.raises(Exception, match=r"in-0, offset 4: the value can't be read by version 2"):
        load(session, {name: text for name, text in given.items() if name != "mode"}).collect()


def test_spark_writes_and_confluent_reads(
    session: SparkSession,
    threaded_broker: ThreadedCluster,
    schema_registry: Any,
    tmp_path: Path,
) -> None:
    made = by_confluent(schema_registry.url, "in", ORDER, [order("tea"), order("milk", count=3)])
    by_confluent(schema_registry.url, "out", LATER, [order("x", note="")])  # registers it
    send(threaded_broker.bootstrap_servers, "in", value=[each for each, _ in made] + [None])
    stream = (
        session.readStream.format("aioprod")
        .options(**options(threaded_broker, schema_registry, subscribe="in"))
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        stream.select(
            F.when(
                F.col("value").isNotNull(), F.col("value").withField("note", F.lit("copied"))
            ).alias("value")
        )
        .writeStream.format("aioprod")
        .options(**options(threaded_broker, schema_registry, topic="out"))
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    with confluent.SchemaRegistryClient({"url": schema_registry.url}) as client:
        judge = confluent.AvroDeserializer(client)
        context = confluent.SerializationContext("out", confluent.MessageField.VALUE)
        found = [judge(each, context) for each in stored(threaded_broker, "out")]
    assert found == [order("tea", note="copied"), order("milk", count=3, note="copied"), None]


def struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


SMALL = {
    "type": "record",
    "name": "T",
    "fields": [{"name": "n", "type": "int"}, {"name": "t", "type": "string"}],
}


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            struct(n=IntegerType(), t=IntegerType()),
            "t: a column of int32 can't be written as string",
        ),
        (struct(n=IntegerType(), other=IntegerType()), "record T has no field 'other'"),
        (struct(n=IntegerType()), "t: string has no default"),
        (StringType(), "a column of string can't be written as record T"),
    ],
)
def test_columns_that_do_not_fit_are_errors_of_the_driver(
    schema_registry: Any, column: DataType, message: str
) -> None:
    by_confluent(schema_registry.url, "fit", SMALL, [{"n": 1, "t": ""}])
    sink = parse_sink_options({**GIVEN, URL: schema_registry.url, "topic": "fit"})
    with pytest.raises(ConfigError, match="the column value does not fit version 1 .*" + message):
        with_schema(sink, StructType([StructField("value", column)]))


def test_a_subject_that_does_not_exist_or_has_another_format(schema_registry: Any) -> None:
    by_confluent(schema_registry.url, "fit", SMALL, [{"n": 1, "t": ""}])
    given = {"subscribe": "fit", **GIVEN, URL: schema_registry.url}
    with pytest.raises(ConfigError, match=r"option value\.subject=no: .*not found"):
        KafkaDataSource({**given, "value.subject": "no"}).schema()
    with pytest.raises(ConfigError, match=r"value\.format=protobuf: .* fit-value is AVRO"):
        KafkaDataSource({**given, "value.format": "protobuf"}).schema()


def test_a_value_that_does_not_fit_fails_the_task(schema_registry: Any) -> None:
    by_confluent(schema_registry.url, "fit", SMALL, [{"n": 1, "t": ""}])
    parsed = parse_sink_options({**GIVEN, URL: schema_registry.url, "topic": "fit"})
    columns = struct(value=struct(t=StringType(), n=LongType()))
    value = with_schema(parsed, columns).registered
    assert value is not None
    kind = pa.struct([("t", pa.string()), ("n", pa.int64())])

    def batches() -> Iterator[pa.RecordBatch]:
        for number in (1, 1 << 40):
            yield pa.record_batch({"value": pa.array([{"t": "x", "n": number}, None], kind)})

    rows = encoded(value, batches())
    assert [each and each[5:] for each in next(rows)["value"].to_pylist()] == [b"\2\2x", None]
    with pytest.raises(SinkError, match=r"rows 2 to 3 of this task: .* n: .* does not fit int"):
        next(rows)


def test_json_schema_and_protobuf(
    session: SparkSession, threaded_broker: ThreadedCluster, schema_registry: Any
) -> None:
    text = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}
    with confluent.SchemaRegistryClient({"url": schema_registry.url}) as client:
        made = confluent.JSONSerializer(json.dumps(text), client)(
            {"a": 1}, confluent.SerializationContext("json", confluent.MessageField.VALUE)
        )
        user = User(name="Ann", home={"street": "Main"}, at=NOW)
        message = confluent.ProtobufSerializer(User, client, {"use.deprecated.format": False})(
            user, confluent.SerializationContext("proto", confluent.MessageField.VALUE)
        )
    for topic, form, value, expected in (
        ("json", "json-schema", made, [1, None]),
        ("proto", "protobuf", message, ["Ann", ("Main",), NOW.replace(tzinfo=None)]),
    ):
        send(threaded_broker.bootstrap_servers, topic, value=[value, None])
        given = options(threaded_broker, schema_registry, subscribe=topic, value_format=form)
        frame = load(session, given)
        rows = frame.orderBy("offset").select("value").collect()
        assert rows[1][0] is None
        shown = [tuple(each) if isinstance(each, tuple) else each for each in rows[0][0]]
        assert [str(each) for each in shown][: len(expected) - (form == "protobuf")] == [
            str(each) for each in expected
        ][: len(expected) - (form == "protobuf")]
        sink = options(threaded_broker, schema_registry, topic=topic, value_format=form)
        frame.select("value").write.format("aioprod").options(**sink).mode("append").save()
        copies = stored(threaded_broker, topic)
        assert copies[2:] in ([None, copies[2]], [copies[2], None])
        copy = next(each for each in copies[2:] if each is not None)
        if form == "protobuf":
            assert copy == value
        else:
            assert json.loads(copy[5:]) == {"a": 1} and copy[:5] == value[:5]


def decoded(
    registry: Any, values: list[bytes | None], read: Any = None, **given: str
) -> pa.RecordBatch:
    """Return the batch that a task writes for values; ``read`` is the schema that the query found
    at its start.
    """
    found = read or found_schema(registry, **given)
    count = len(values)
    rows = pa.record_batch(
        {
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["t"] * count),
            "partition": pa.array([2] * count, pa.int32()),
            "offset": pa.array(range(70, 70 + count), pa.int64()),
            "headers": pa.array([None] * count, HEADERS),
        }
    )

    async def decode() -> pa.RecordBatch:
        reader = await RegisteredRows.open(found)
        try:
            return await reader.decode(rows, keep_headers=False)
        finally:
            await reader.close()

    return asyncio.run(decode())


def found_schema(registry: Any, **given: str) -> Any:
    """The schema that ``load()`` finds."""
    names = {name.replace("_", "."): text for name, text in given.items()}
    parsed = parse_source_options(
        {"subscribe": "t", **GIVEN, **names, URL: registry.url}, streaming=False
    )
    assert parsed.registry is not None
    return fetch_schema(parsed.registry)


def small(*kinds: str) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(kinds)]
    return {"type": "record", "name": "T", "fields": fields}


def test_a_record_of_a_newer_version_is_read_by_the_querys_own(schema_registry: Any) -> None:
    first = by_confluent(schema_registry.url, "t", small("int"), [{"f0": 1}])
    read = found_schema(schema_registry)
    more = small("int")
    more["fields"].append({"name": "f1", "type": "string", "default": ""})
    newer = by_confluent(schema_registry.url, "t", more, [{"f0": 2, "f1": "x"}])
    found = decoded(schema_registry, [first[0][0], newer[0][0], None], read)
    assert found.column("value").to_pylist() == [{"f0": 1}, {"f0": 2}, None]


@pytest.mark.parametrize(
    "values",
    [[None, None], [b"junk", None], [b"\0\0\0\0\x63x"], []],
    ids=["nulls", "no id", "an unknown id", "no rows"],
)
def test_a_batch_without_a_known_schema_has_the_type_of_the_querys_own(
    schema_registry: Any, values: list[bytes | None]
) -> None:
    """Such as a partition with nothing but tombstones."""
    known = by_confluent(schema_registry.url, "t", ORDER, [order("tea")])
    found = decoded(schema_registry, values, mode="permissive").column("value")
    assert found.type == decoded(schema_registry, [known[0][0]]).column("value").type
    assert found.null_count == len(found) == len(values)


@pytest.mark.parametrize(
    ("newer", "record"),
    [(small("long"), {"f0": 1 << 40}), (small(), {})],
    ids=["wider type", "field removed"],
)
def test_a_newer_version_that_the_querys_own_cannot_read_fails_the_query(
    schema_registry: Any, newer: dict[str, Any], record: dict[str, Any]
) -> None:
    first = by_confluent(schema_registry.url, "t", small("int"), [{"f0": 1}])
    read = found_schema(schema_registry)
    later = by_confluent(schema_registry.url, "t", newer, [record])
    values = [first[0][0], later[0][0]]
    with pytest.raises(
        CorruptRecordError,
        match=(
            r"t-2, offset 71: the value can't be read by version 1 \(id \d+\) of the schema of "
            r"subject t-value: .*written by schema id \d+; if that is newer, start the query again"
            r": load\(\) asks for the latest version.*mode=permissive"
        ),
    ):
        decoded(schema_registry, values, read)
    # The next load() reads it.
    assert decoded(schema_registry, values[1:]).column("value").to_pylist() == [record]


@pytest.mark.parametrize("mode", ["permissive", "dropmalformed"])
def test_values_that_are_left_out_are_counted_and_logged(
    schema_registry: Any, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    good = by_confluent(schema_registry.url, "t", small("int"), [{"f0": 1}])
    values = [good[0][0], b"junk", b"\0\0\0\0\x63x", None]
    found = decoded(schema_registry, values, mode=mode).column("value").to_pylist()
    assert found == ([{"f0": 1}, None, None, None] if mode == "permissive" else [{"f0": 1}, None])
    assert f"mode={mode}: t-2, offset 71: the value can't be read by version 1" in caplog.text
    assert "2 of 4 values of this batch can't be read" in caplog.text
    with pytest.raises(CorruptRecordError, match="offset 71"):
        decoded(schema_registry, values)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({URL: ""}, "option schema.registry.url is required with value.format=avro"),
        ({"subscribe": "a,b"}, "option value.subject is required unless"),
        ({"value.schema": "a INT"}, "option value.schema is for value.format=json, not for avro"),
        ({"value.schema.version": "0"}, "option value.schema.version must be latest or a number"),
        ({"value.message": "M"}, "option value.message is for value.format=protobuf"),
        ({"schema.registry.username": "u"}, "username and schema.registry.password belong togeth"),
        ({"mode": "x"}, "option mode must be failfast or permissive or dropmalformed"),
        ({"value.format": "json", "value.schema": "a INT"}, "schema.registry.url requires value.f"),
        ({"value.format": "xml"}, "option value.format must be json or avro or"),
    ],
)
def test_options(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_source_options({"subscribe": "t", **GIVEN, **given}, streaming=False)


def test_options_of_writes() -> None:
    assert parse_sink_options({**GIVEN, "topic": "t"}).registry is not None
    with pytest.raises(ConfigError, match=r"option value\.subject is required"):
        parse_sink_options(GIVEN)
    with pytest.raises(ConfigError, match=r"option value\.format must be avro or json-schema"):
        parse_sink_options({**GIVEN, "topic": "t", "value.format": "json"})


def test_no_secret_shows() -> None:
    secrets = {"schema.registry.username": "u", "schema.registry.password": "hush"}
    parsed = parse_source_options({"subscribe": "t", **GIVEN, **secrets}, streaming=True)
    assert parsed.registry is not None and parsed.registry.settings["password"] == "hush"
    assert "hush" not in repr(parsed) + repr(parsed.registry)


def test_the_schema_travels_with_the_source(schema_registry: Any) -> None:
    by_confluent(schema_registry.url, "t", ORDER, [order("x")])
    source = KafkaDataSource({"subscribe": "t", **GIVEN, URL: schema_registry.url})
    schema = source.schema()
    requests = len(schema_registry.calls)
    copy = pickle.loads(pickle.dumps(source))
    assert copy.reader(schema)._options.registered.version == 1
    assert len(schema_registry.calls) == requests


def test_types() -> None:
    for given, expected in (
        (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")),
        (pa.timestamp("ms"), pa.timestamp("us")),
        (pa.time64("us"), pa.int64()),
        (pa.binary(3), pa.binary()),
        (pa.uint32(), pa.int64()),
        (pa.uint64(), pa.decimal128(20, 0)),
        (pa.list_(pa.struct([("a", pa.time32("ms"))])), pa.list_(pa.struct([("a", pa.int32())]))),
        (pa.map_(pa.string(), pa.binary(1)), pa.map_(pa.string(), pa.binary())),
    ):
        assert spark_shape(given) == expected
    for refused in (pa.null(), pa.decimal256(60, 0)):
        with pytest.raises(ConfigError, match="a type that Spark does not have"):
            spark_shape(refused)
