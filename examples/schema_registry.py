"""Orders with a schema that changes: old and new programs read each other's records.

pip install "aioprod[schema-registry]"
python schema_registry.py http://localhost:8081 localhost:9092
python schema_registry.py  # with an embedded registry and broker

The second version of an order has a new field with a default. A reader with the second version gets
the default for old orders, and a reader with the first version does not see the field.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass

from aioprod import Consumer, Producer
from aioprod.schema_registry import (
    AvroDeserializer,
    AvroSerializer,
    Schema,
    SchemaRegistry,
    avro_schema,
)

TOPIC = "orders"


@dataclass
class Order:
    """The first version."""

    item: str
    count: int = 1


@dataclass
class OrderWithNote:
    """The second version, whose name in the schema is still "Order"."""

    item: str
    count: int = 1
    note: str | None = None


def second_version() -> Schema:
    """Return the schema of the second version, with the name of the first."""
    return Schema(avro_schema(OrderWithNote).text.replace("OrderWithNote", "Order"))


async def send(registry: SchemaRegistry, servers: str) -> None:
    """Send one order like an old program, and one like a new program."""
    old = AvroSerializer(registry, Order)
    async with Producer(servers, value_serializer=old) as producer:
        await producer.send_and_wait(TOPIC, Order("tea", 2), partition=0)
    new = AvroSerializer(registry, second_version())
    async with Producer(servers, value_serializer=new) as producer:
        await producer.send_and_wait(TOPIC, OrderWithNote("milk", 1, "cold"), partition=0)


async def read(registry: SchemaRegistry, servers: str, as_class: type) -> list[object]:
    """Read both orders as one version."""
    schema = avro_schema(Order) if as_class is Order else second_version()
    async with Consumer(
        TOPIC,
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        value_deserializer=AvroDeserializer(registry, schema, model=as_class),
    ) as consumer:
        return [(await consumer.getone(timeout_ms=10_000)).value for _ in range(2)]


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
        await send(registry, servers)
        for version in (Order, OrderWithNote):
            for order in await read(registry, servers, version):
                print(order)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
