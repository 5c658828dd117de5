"""Reads and writes with a registry's schema in each format, and counts with ``transformWithState``,
on the PySpark that runs it; prints what was seen as JSON. Needs the extras ``spark`` and
``schema-registry``.
"""

from __future__ import annotations

import asyncio
import base64
import json
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pandas as pd
from anyio.from_thread import start_blocking_portal
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from aioprod.schema_registry import Schema, SchemaRegistry
from aioprod.schema_registry.schemas import SchemaType
from aioprod.spark import spark_session_builder
from aioprod.testing import EmbeddedCluster, ThreadedCluster
from aioprod.testing.registry import EmbeddedSchemaRegistry

STREAM_TIMEOUT_S = 120
ROWS = 60
PARTITIONS = 3
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def _described() -> str:
    """Return the descriptor of a message, as registries serve it in the form ``serialized``."""
    number, text = (
        FieldDescriptorProto(
            name=name, number=place, type=kind, label=FieldDescriptorProto.LABEL_OPTIONAL
        )
        for place, (name, kind) in enumerate(
            [("id", FieldDescriptorProto.TYPE_INT32), ("item", FieldDescriptorProto.TYPE_STRING)], 1
        )
    )
    sale = DescriptorProto(name="Sale", field=[number, text])
    file = FileDescriptorProto(name="sale.proto", syntax="proto3", message_type=[sale])
    return base64.b64encode(file.SerializeToString()).decode()


FIELDS = {"id": "integer", "item": "string"}
SCHEMAS: Final[Mapping[str, tuple[SchemaType, str]]] = {
    "avro": (
        "AVRO",
        json.dumps(
            {
                "type": "record",
                "name": "Sale",
                "fields": [{"name": "id", "type": "int"}, {"name": "item", "type": "string"}],
            }
        ),
    ),
    "json-schema": (
        "JSON",
        json.dumps(
            {
                "type": "object",
                "properties": {name: {"type": kind} for name, kind in FIELDS.items()},
            }
        ),
    ),
    "protobuf": ("PROTOBUF", _described()),
}


class Count(StatefulProcessor):
    """Counts the rows of a key, over all micro-batches."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._count = handle.getValueState("count", "n BIGINT")

    def handleInputRows(
        self, key: Any, rows: Iterator[Any], timer_values: TimerValues
    ) -> Iterator[pd.DataFrame]:
        """Return the new count."""
        (before,) = self._count.get() or (0,)
        count = before + sum(len(each) for each in rows)
        self._count.update((count,))
        yield pd.DataFrame({"key": [str(key[0])], "value": [str(count)]})

    def close(self) -> None:
        """Close nothing."""


def run_query(frame: Any, given: dict[str, str]) -> None:
    """Write a stream until there is no more."""
    query = frame.writeStream.format("aioprod").options(**given).trigger(availableNow=True).start()
    try:
        if not query.awaitTermination(STREAM_TIMEOUT_S):
            raise TimeoutError("the query did not end")
    finally:
        query.stop()


async def register_schemas(url: str, form: str) -> None:
    kind, text = SCHEMAS[form]
    async with SchemaRegistry(url) as registry:
        for topic in (f"{form}-in", f"{form}-out"):
            await registry.register(f"{topic}-value", Schema(text, kind))


def copy(
    session: SparkSession, broker: ThreadedCluster, url: str, form: str, directory: str
) -> list[Any]:
    """Write values by a schema as a batch, copy them in a stream, and return what a batch reads of
    the copies, and whether they have the same bytes.
    """
    asyncio.run(register_schemas(url, form))
    given = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "value.format": form,
        "schema.registry.url": url,
    }
    for topic in (f"{form}-in", f"{form}-out"):
        broker.create_topic(topic, PARTITIONS)
    value = F.struct(F.col("id").cast("int").alias("id"), F.lit("tea").alias("item"))
    rows = session.range(ROWS).select(F.col("id").cast("string").alias("key"), value.alias("value"))
    rows.write.format("aioprod").options(**given, topic=f"{form}-in").mode("append").save()
    records = session.readStream.format("aioprod").options(**given, subscribe=f"{form}-in")
    copied = records.option("startingOffsets", "earliest").load().select("key", "value")
    sink = {**given, "topic": f"{form}-out", "checkpointLocation": f"{directory}/{form}"}
    run_query(copied, sink)
    found = session.read.format("aioprod").options(**given, subscribe=f"{form}-out").load()
    read = found.select("value.id", "value.item").orderBy("id").collect()
    sent, stored = (
        sorted((record.key, record.value) for record in broker.records(f"{form}-{end}"))
        for end in ("in", "out")
    )
    # The schemas of the two subjects are the same, and so is their id.
    return [len(read), [list(read[0]), list(read[-1])], sent == stored]


def count(session: SparkSession, broker: ThreadedCluster, directory: str) -> dict[str, int]:
    """Count records by partition with a state, in two runs; return the newest counts."""
    broker.create_topic("counts", 1)
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    for _ in range(2):
        records = session.readStream.format("aioprod").options(**given, subscribe="avro-in")
        counted = (
            records.option("startingOffsets", "earliest")
            .load()
            .selectExpr("partition")
            .groupBy("partition")
            .transformWithStateInPandas(Count(), "key STRING, value STRING", "append", "none")
        )
        run_query(counted, {**given, "topic": "counts", "checkpointLocation": f"{directory}/count"})
        rows = session.range(ROWS).selectExpr("CAST(id AS STRING) AS key", "'x' AS value")
        rows.write.format("aioprod").options(**given, topic="avro-in").mode("append").save()
    newest = broker.records("counts", committed_only=True)
    return {(each.key or b"").decode(): int(each.value or b"") for each in newest}


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        EmbeddedCluster.in_thread() as broker,
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(EmbeddedSchemaRegistry()) as registry,
    ):
        session = (
            spark_session_builder("local[2]")
            .config("spark.local.dir", f"{directory}/local")
            .config("spark.sql.warehouse.dir", f"{directory}/warehouse")
            .config("spark.sql.streaming.stateStore.providerClass", STATE_STORE)
            .config("spark.sql.shuffle.partitions", "2")
            .getOrCreate()
        )
        seen: dict[str, Any] = {
            form: copy(session, broker, registry.url, form, directory) for form in SCHEMAS
        }
        seen["counts"] = sum(count(session, broker, directory).values())
        session.stop()
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
