"""Tables with a Schema Registry: write columns of a polars frame as Avro, read them as typed
columns, and query them with DuckDB.

pip install "aioprod[arrow,schema-registry]" polars duckdb
python arrow_orders.py http://localhost:8081 localhost:9092
python arrow_orders.py  # with an embedded registry and broker
"""

from __future__ import annotations

import asyncio
import datetime
import sys
from contextlib import AsyncExitStack

import duckdb
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]

from aioprod import Consumer, Producer
from aioprod.schema_registry import AvroDeserializer, AvroSerializer, SchemaRegistry

TOPIC = "orders"
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "item", "type": "string"},
        {"name": "count", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)


def orders() -> pl.DataFrame:
    """Return a frame with a column for each field. Fields that are null or have a default need no
    column.
    """
    return pl.DataFrame(
        {
            "item": ["tea", "milk", "tea"],
            "count": [2, 1, 3],
            "at": [NOON, NOON, NOON + datetime.timedelta(minutes=1)],
        }
    )


async def send(registry: SchemaRegistry, servers: str, frame: pl.DataFrame) -> None:
    """Send each row as a record: the columns become one column of structs."""
    table = frame.to_arrow()
    serializer = AvroSerializer(registry, SCHEMA)
    async with Producer(servers, value_serializer=serializer) as producer:
        rows = pa.table({"value": table.to_struct_array(), "key": table["item"]})
        await (await producer.send_arrow(TOPIC, rows)).wait()


async def read(registry: SchemaRegistry, servers: str, count: int) -> pa.Table:
    """Read records as a table with a column for each field."""
    found: list[pa.Table] = []
    async with Consumer(
        TOPIC,
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        value_deserializer=AvroDeserializer(registry, SCHEMA),
    ) as consumer:
        while sum(each.num_rows for each in found) < count:
            table = await consumer.getarrow()
            values = table["value"].combine_chunks()
            found.append(pa.Table.from_struct_array(values))
    return pa.concat_tables(found)


def sums(table: pa.Table) -> list[tuple[str, int]]:
    """Return the total count of each item."""
    found = duckdb.from_arrow(table).aggregate("item, sum(count)::BIGINT", "item").order("item")
    return found.fetchall()


async def main(arguments: list[str]) -> None:
    """Send and read with a registry and a broker, or with embedded ones."""
    async with AsyncExitStack() as stack:
        if arguments:
            url, servers = arguments
        else:
            from aioprod.testing import EmbeddedCluster
            from aioprod.testing.registry import EmbeddedSchemaRegistry

            url = (await stack.enter_async_context(EmbeddedSchemaRegistry())).url
            servers = (await stack.enter_async_context(EmbeddedCluster())).bootstrap_servers
        registry = await stack.enter_async_context(SchemaRegistry(url))
        frame = orders()
        await send(registry, servers, frame)
        for item, count in sums(await read(registry, servers, frame.height)):
            print(item, count)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
