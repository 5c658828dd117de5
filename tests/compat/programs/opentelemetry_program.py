"""OpenTelemetry's instrumentation of aiokafka: the spans of sending and receiving. Prints them.

Arguments: the client ("aiokafka" or "aioprod"), and the bootstrap servers.
"""

# mypy: ignore-errors
from __future__ import annotations

import asyncio
import json
import sys

if sys.argv[1] == "aioprod":
    import aioprod.compat.aiokafka

    aioprod.compat.aiokafka.install()

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from opentelemetry.instrumentation.aiokafka import AIOKafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

SERVERS = sys.argv[2]


def shown(span):
    attributes = {
        name: value
        for name, value in span.attributes.items()
        if "bootstrap" not in name and "server" not in name
    }
    return [span.name, span.kind.name, sorted(attributes.items(), key=str)]


async def main():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    AIOKafkaInstrumentor().instrument(tracer_provider=provider)
    async with AIOKafkaProducer(bootstrap_servers=SERVERS, client_id="c") as producer:
        await producer.send_and_wait("orders", b"a", key=b"k", partition=0)
        await producer.send_and_wait("orders", b"b", key=b"k2")
    async with AIOKafkaConsumer(
        "orders",
        bootstrap_servers=SERVERS,
        group_id="g",
        client_id="c",
        auto_offset_reset="earliest",
    ) as consumer:
        first = await consumer.getone()
        many = await consumer.getmany(timeout_ms=5_000)
    headers = sorted(name for name, _ in first.headers)
    count = sum(map(len, many.values()))
    spans = [shown(span) for span in exporter.get_finished_spans()]
    print(json.dumps([headers, count, spans], default=repr))


asyncio.run(main())
