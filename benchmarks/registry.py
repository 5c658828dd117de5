"""The CPU time to write and read Avro with schemas of a registry, compared with fastavro and
confluent-kafka. Without a broker; the schemas are known.
"""

from __future__ import annotations

import asyncio
import datetime
import io
import json
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import fastavro
import pyarrow as pa  # type: ignore[import-untyped]

from aioprod.preparation import NotPrepared
from aioprod.schema_registry import AvroDeserializer, AvroSerializer, SchemaRegistry, avro_schema
from aioprod.testing.registry import EmbeddedSchemaRegistry
from benchmarks.results import Metric, Results
from benchmarks.rounds import options, report

TITLE = "Avro with a Schema Registry"
OURS, FASTAVRO, CONFLUENT = "aioprod", "fastavro", "confluent-kafka"
CPU = Metric("CPU us per record", lambda numbers: float(numbers["cpu_us"]))
ROUNDS = 9
RECORDS = 2_000
TOPIC = "orders"

Work = Callable[[], object]


@dataclass
class Order:
    item: str
    count: int
    price: float
    at: datetime.datetime | None
    tags: list[str]
    note: str | None = None
    paid: bool = True


def orders(count: int) -> list[Order]:
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    return [
        Order(
            f"item {number % 100}",
            number,
            number / 4,
            start + datetime.timedelta(milliseconds=number),
            ["a", "b"],
            f"note {number}" if number % 2 else None,
        )
        for number in range(count)
    ]


def later(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a later version of a schema."""
    return {**schema, "fields": [*schema["fields"], {"name": "x", "type": "int", "default": 3}]}


def each(call: Callable[[Any], object], values: Iterable[Any]) -> Work:
    def work() -> None:
        for value in values:
            call(value)

    return work


async def ready(call: Callable[[], Any]) -> Any:
    """Call until all schemas are known."""
    while True:
        try:
            return call()
        except NotPrepared as needed:
            await needed.prepare()


async def ours(registry: SchemaRegistry, models: list[Order]) -> dict[str, tuple[str, Work]]:
    """Return the work that aioprod does, by the names of what it is compared with."""
    rows = [asdict(model) for model in models]
    schema = json.loads(avro_schema(Order).text)
    serializer = AvroSerializer(registry, Order)
    data = [(await serializer.serialize(TOPIC, row))[0] for row in rows]
    readers: dict[str, Any] = {
        "read dicts": AvroDeserializer(registry),
        "read dicts of a later schema": AvroDeserializer(registry, later(schema)),
        "read dataclasses": AvroDeserializer(registry, Order),
    }
    table = pa.array(rows).cast(pa.struct(pa.array(rows).type))
    column = pa.array(data, pa.binary())
    reader = readers["read dicts"]
    for found in readers.values():
        await found.deserialize(TOPIC, data[0])
    encode = await ready(lambda: serializer.column_encoder(TOPIC))
    await ready(lambda: reader.deserialize_column(TOPIC, None, column))

    def read(name: str) -> Work:
        call = readers[name]
        return each(lambda value: call(TOPIC, (), value), data)

    write = each(lambda value: serializer(TOPIC, (), value), rows)
    return {
        "write dicts": ("write dicts", write),
        "write dataclasses": (
            "write dicts",
            each(lambda value: serializer(TOPIC, (), value), models),
        ),
        "write a column": ("write dicts", lambda: encode(table)),
        "read dicts": ("read dicts", read("read dicts")),
        "read dicts of a later schema": (
            "read dicts of a later schema",
            read("read dicts of a later schema"),
        ),
        "read dataclasses": ("read dicts", read("read dataclasses")),
        "read a column": (
            "read dicts",
            lambda: reader.deserialize_column(TOPIC, None, column),
        ),
    }


def of_fastavro(models: list[Order]) -> dict[str, Work]:
    rows = [asdict(model) for model in models]
    content = json.loads(avro_schema(Order).text)
    schema, newer = (fastavro.parse_schema(each) for each in (content, later(content)))

    def write(row: Any) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, row)
        return out.getvalue()

    data = [write(row) for row in rows]
    return {
        "write dicts": each(write, rows),
        "read dicts": each(
            lambda value: fastavro.schemaless_reader(io.BytesIO(value), schema, None), data
        ),
        "read dicts of a later schema": each(
            lambda value: fastavro.schemaless_reader(io.BytesIO(value), schema, newer), data
        ),
    }


def of_confluent(models: list[Order]) -> dict[str, Work]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from confluent_kafka.schema_registry import SchemaRegistryClient
        from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
        from confluent_kafka.serialization import MessageField, SerializationContext

    rows = [asdict(model) for model in models]
    client = SchemaRegistryClient.new_client({"url": "mock://registry"})
    text = avro_schema(Order).text
    serializer = AvroSerializer(client, text)
    context = SerializationContext(TOPIC, MessageField.VALUE)
    data = [serializer(row, context) for row in rows]
    reader = AvroDeserializer(client)
    newer = AvroDeserializer(client, json.dumps(later(json.loads(text))))
    return {
        "write dicts": each(lambda row: serializer(row, context), rows),
        "read dicts": each(lambda value: reader(value, context), data),
        "read dicts of a later schema": each(lambda value: newer(value, context), data),
    }


def spent(works: dict[str, Work], rounds: int) -> dict[str, list[float]]:
    """Return the CPU microseconds per record of each, in turns."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            start = time.process_time_ns()
            work()
            found[name].append((time.process_time_ns() - start) / RECORDS / 1e3)
    return found


async def measure(rounds: int) -> Results:
    """Measure all ways to write and read, with what the others have for it."""
    models = orders(RECORDS)
    async with EmbeddedSchemaRegistry() as server, SchemaRegistry(server.url) as registry:
        mine = await ours(registry, models)
    others = {FASTAVRO: of_fastavro(models), CONFLUENT: of_confluent(models)}
    works = {f"{OURS}: {name}": work for name, (_, work) in mine.items()}
    for client, its in others.items():
        works |= {f"{client}: {name}": work for name, work in its.items()}
    found = spent(works, rounds)
    results = Results(TITLE, (CPU,), baseline=CONFLUENT)
    for name, (compared, _) in mine.items():
        for client, case in ((OURS, name), *((client, compared) for client in others)):
            for cpu_us in found[f"{client}: {case}"]:
                results.add(name, client, {"cpu_us": cpu_us})
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=(OURS,), repetitions=ROUNDS, embedded=True)
    chosen = parser.parse_args(arguments)
    report(asyncio.run(measure(chosen.repetitions)), chosen)


if __name__ == "__main__":
    main()
