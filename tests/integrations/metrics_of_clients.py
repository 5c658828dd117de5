"""A producer, a consumer, a share consumer and processors with all Prometheus observers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from prometheus_client import CollectorRegistry

from aioprod import Admin, Consumer, Producer, ProducerRecord, ShareConsumer
from aioprod.admin import ConfigResource
from aioprod.integrations.prometheus import (
    PrometheusConsumerObserver,
    PrometheusObserver,
    PrometheusProcessorObserver,
    PrometheusShareConsumerObserver,
)
from aioprod.processing import Processor, Record, RetryPolicy
from aioprod.testing import EmbeddedCluster
from tests.waiting import until

Raw = Record[bytes | None, bytes | None]
RECORDS = 6


async def handle(record: Raw) -> ProducerRecord:
    """Fail once for each record, and always for ``poison``."""
    if record.attempt == 1 or record.value == b"poison":
        raise ValueError("not yet")
    return ProducerRecord("out", record.value, record.key)


def of_processor(broker: EmbeddedCluster, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": "billing",
        "client_id": "worker",
        "retry": RetryPolicy(attempts=2, backoff_ms=1),
        "dead_letter_topic": "dead",
        "commit_interval_ms": 20,
        **more,
    }


async def read_from_the_start(broker: EmbeddedCluster, share_group: str) -> None:
    """Let a share group begin with the first record of its topics."""
    async with Admin(broker.bootstrap_servers) as admin:
        earliest = {"share.auto.offset.reset": "earliest"}
        await admin.incremental_alter_configs({ConfigResource.group(share_group): earliest})


@asynccontextmanager
async def at_work(
    broker: EmbeddedCluster, registry: CollectorRegistry
) -> AsyncIterator[Processor[bytes | None, bytes | None]]:
    """All clients have handled ``RECORDS`` records, one of them a poison pill."""
    for topic in ("orders", "out", "dead"):
        broker.create_topic(topic, 1)
    producer = Producer(
        broker.bootstrap_servers, client_id="shop", observers=[PrometheusObserver(registry)]
    )
    consumer = Consumer(
        "out",
        bootstrap_servers=broker.bootstrap_servers,
        group_id="audit",
        client_id="reader",
        auto_offset_reset="earliest",
        observers=[PrometheusConsumerObserver(registry)],
    )
    sharer = ShareConsumer(
        broker.bootstrap_servers,
        group_id="mailers",
        client_id="sharer",
        topics=["out"],
        observers=[PrometheusShareConsumerObserver(registry)],
    )
    settings = of_processor(broker, observers=[PrometheusProcessorObserver(registry)])
    processor = Processor(handle, "orders", **settings)
    await read_from_the_start(broker, "mailers")
    async with producer, processor, consumer, sharer:
        for number in range(RECORDS - 1):
            await producer.send("orders", b"%d" % number, key=b"%d" % number)
        await producer.send("orders", b"poison")
        for _ in range(RECORDS - 1):
            await consumer.getone(timeout_ms=60_000)
        await consumer.commit()
        shared = 0
        while shared < RECORDS - 1:
            shared += len(await sharer.getmany(timeout_ms=60_000))
        await sharer.commit()
        await until(lambda: broker.records("dead"))
        await until(lambda: processor.metrics()["records-lag-max"] == 0)
        yield processor
