"""OpenTelemetry of share consumers: what a producer sends is received in its trace, and what they
do is measured, by the messaging conventions.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.trace import SpanKind

from aioprod import AcknowledgeType, ShareConsumer
from aioprod.integrations.opentelemetry import (
    OpenTelemetryShareConsumerObserver,
    OpenTelemetryShareConsumerSpans,
)
from aioprod.testing import EmbeddedCluster
from tests.consumer.share.share_groups import take
from tests.integrations.metrics_of_clients import read_from_the_start
from tests.integrations.test_opentelemetry import Spans, attributes, points, spans
from tests.integrations.test_opentelemetry_consumers import (
    id_of,
    links_of,
    named,
    only,
    parent_of,
    send,
    value,
)

__all__ = ["spans"]  # the fixture

pytestmark = pytest.mark.virtual_time


async def sharing(broker: EmbeddedCluster, **settings: Any) -> ShareConsumer:
    await read_from_the_start(broker, "mailers")
    given: dict[str, Any] = {"group_id": "mailers", "client_id": "sharer", "topics": ["orders"]}
    return ShareConsumer(broker.bootstrap_servers, **{**given, **settings})


async def test_received_records_are_linked_with_their_senders(
    broker: EmbeddedCluster, spans: Spans
) -> None:
    await send(broker, spans, b"1", b"2")
    tracing = OpenTelemetryShareConsumerSpans(spans.provider)
    async with await sharing(broker, observers=[tracing]) as consumer:
        records = await take(consumer, 2)
        with tracing.process(records[0]):
            assert trace.get_current_span().is_recording()
        with tracing.process(records):
            pass
        with pytest.raises(ValueError, match="of the application"), tracing.process(records[1]):
            raise ValueError("of the application")
    senders = [id_of(span) for span in named(spans, "send orders")]
    received = only(spans, "poll orders")
    assert received.kind is SpanKind.CLIENT
    assert links_of(received) == senders
    assert attributes(received) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "poll",
        "messaging.operation.type": "receive",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.batch.message_count": 2,
        "messaging.client.id": "sharer",
        "messaging.consumer.group.name": "mailers",
    }
    one, batch, failed = named(spans, "process orders")
    assert parent_of(one) == senders[0]
    assert attributes(one)["aioprod.delivery_count"] == 1
    assert (parent_of(batch), links_of(batch)) == (None, senders)
    assert "aioprod.delivery_count" not in attributes(batch)
    assert parent_of(failed) == senders[1]
    assert attributes(failed)["error.type"] == "ValueError"


async def test_a_poll_span_begins_when_the_application_polls(
    broker: EmbeddedCluster, spans: Spans
) -> None:
    await send(broker, spans, b"1")
    tracing = OpenTelemetryShareConsumerSpans(spans.provider)
    async with await sharing(broker, observers=[tracing]) as consumer:
        await take(consumer, 1)
        waiting = asyncio.create_task(take(consumer, 1))
        await asyncio.sleep(0)
        await send(broker, spans, b"2")
        await waiting
    first, second = named(spans, "poll orders")
    assert first.end_time is not None
    assert second.start_time is not None and second.end_time is not None
    assert first.end_time <= second.start_time <= second.end_time


async def test_what_a_share_consumer_does_is_measured(
    broker: EmbeddedCluster, spans: Spans
) -> None:
    await send(broker, spans, b"1", b"2", b"3")
    reader = InMemoryMetricReader()
    observer = OpenTelemetryShareConsumerObserver(MeterProvider([reader]), partitions=True)
    settings = {"share_acknowledgement_mode": "explicit", "observers": [observer]}
    async with await sharing(broker, **settings) as consumer:
        kinds = AcknowledgeType.ACCEPT, AcknowledgeType.REJECT, AcknowledgeType.RENEW
        records = await take(consumer, 3)
        for record, kind in zip(records, kinds, strict=True):
            consumer.acknowledge(record, kind)
        await consumer.commit()
        await asyncio.sleep(60)  # longer than the lock
        consumer.acknowledge(records[2])
        await consumer.commit()
        seen = points(reader)
    (consumed,) = seen["messaging.client.consumed.messages {message}"]
    place = {
        "messaging.system": "kafka",
        "messaging.consumer.group.name": "mailers",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
    }
    receive = {"messaging.operation.name": "poll", "messaging.operation.type": "receive"}
    assert (value(consumed), consumed.attributes) == (3, {**place, **receive})
    until_idle = {"messaging.operation.name": "acknowledge", "messaging.operation.type": "settle"}
    acknowledged: list[tuple[Any, ...]] = []
    for point in seen["aioprod.acknowledgements {message}"]:
        of = dict(point.attributes or {})
        outcome = of.pop("aioprod.acknowledge_type"), of.pop("error.type", None)
        assert of == {**place, **until_idle}
        acknowledged.append((*outcome, value(point)))
    assert sorted(acknowledged, key=str) == [
        ("accept", "INVALID_RECORD_STATE", 1),
        ("accept", None, 1),
        ("reject", None, 1),
        ("renew", None, 1),
    ]
    operations = set()
    for point in seen["messaging.client.operation.duration s"]:
        of = dict(point.attributes or {})
        operations.add(of["messaging.operation.name"])
        assert of["server.address"] == "127.0.0.1" and of["server.port"]
    assert operations == {"poll", "acknowledge"}
