"""OpenTelemetry from end to end: what a producer sends is received and processed in its trace, and
what consumers and processors do is measured, by the messaging conventions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from aioprod import Consumer, ConsumerRecord, ErrorCode, Producer, ProducerRecord
from aioprod.integrations.opentelemetry import (
    OpenTelemetryConsumerInterceptor,
    OpenTelemetryConsumerObserver,
    OpenTelemetryInterceptor,
    OpenTelemetryProcessorObserver,
)
from aioprod.processing import BatchProcessor, Processor, RetryPolicy
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, fail
from tests.integrations.metrics_of_clients import Raw, of_processor
from tests.integrations.test_opentelemetry import Spans, attributes, points, spans
from tests.waiting import until

__all__ = ["spans"]  # the fixture

pytestmark = pytest.mark.virtual_time


def named(spans: Spans, name: str) -> list[ReadableSpan]:
    return [span for span in spans.ended if span.name == name]


def only(spans: Spans, name: str) -> ReadableSpan:
    (span,) = named(spans, name)
    return span


def id_of(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def parent_of(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def links_of(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


async def send(broker: EmbeddedCluster, spans: Spans, *values: bytes) -> None:
    if "orders" not in broker.topics:
        for topic in ("orders", "out", "dead"):
            broker.create_topic(topic, 1)
    interceptors = [OpenTelemetryInterceptor(spans.provider)]
    async with Producer(broker.bootstrap_servers, interceptors=interceptors) as producer:
        for number, value in enumerate(values):
            await producer.send_and_wait("orders", value, key=b"k%d" % number)


def traced(broker: EmbeddedCluster, spans: Spans, **more: Any) -> dict[str, Any]:
    """The settings of a processor whose outputs are traced, too."""
    return of_processor(
        broker,
        observers=[OpenTelemetryProcessorObserver(spans.provider, MeterProvider())],
        producer={"interceptors": [OpenTelemetryInterceptor(spans.provider)]},
        **more,
    )


# -- processors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
async def test_one_trace_leads_from_the_producer_through_the_handler_to_its_output(
    broker: EmbeddedCluster, spans: Spans, guarantee: str
) -> None:
    async def handle(record: Raw) -> ProducerRecord:
        with tracer.start_as_current_span("work of the handler"):
            return ProducerRecord("out", record.value, headers=record.headers)

    tracer = spans.provider.get_tracer("test")
    await send(broker, spans, b"tea")
    with tracer.start_as_current_span("start of the application"):
        async with Processor(handle, "orders", **traced(broker, spans, guarantee=guarantee)):
            await until(lambda: broker.records("out", committed_only=True))
    sent, processed = only(spans, "send orders"), only(spans, "process orders")
    work, out = only(spans, "work of the handler"), only(spans, "send out")
    assert parent_of(processed) == id_of(sent)
    assert parent_of(work) == id_of(processed)
    # An output of a transaction is sent outside the handler: it goes on with the record's headers.
    assert parent_of(out) == id_of(sent if guarantee == "exactly_once" else processed)
    assert processed.kind is SpanKind.CONSUMER
    assert processed.status.status_code is StatusCode.UNSET
    assert attributes(processed) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
        "messaging.message.body.size": 3,
        "messaging.client.id": "worker",
        "messaging.consumer.group.name": "billing",
    }


async def test_a_retry_has_its_own_span_and_a_dead_letter_stays_in_the_trace(
    broker: EmbeddedCluster, spans: Spans
) -> None:
    async def handle(record: Raw) -> None:
        raise ValueError("never")

    await send(broker, spans, b"bad")
    async with Processor(handle, "orders", **traced(broker, spans)):
        await until(lambda: broker.records("dead"))
    sent = only(spans, "send orders")
    first, second = named(spans, "process orders")
    assert parent_of(first) == parent_of(second) == parent_of(only(spans, "send dead"))
    assert parent_of(first) == id_of(sent)
    assert "aioprod.attempt" not in attributes(first)
    assert attributes(second)["aioprod.attempt"] == 2
    for span in (first, second):
        assert attributes(span)["error.type"] == "ValueError"
        assert span.status.status_code is StatusCode.ERROR
        assert span.events[0].name == "exception"


async def test_a_batch_is_linked_with_all_senders(broker: EmbeddedCluster, spans: Spans) -> None:
    sizes: list[int] = []

    async def handle(records: Sequence[Raw]) -> None:
        sizes.append(len(records))

    await send(broker, spans, b"1", b"2", b"3")
    async with Producer(broker.bootstrap_servers) as producer:
        await producer.send_and_wait("orders", b"without a trace")
    async with BatchProcessor(handle, "orders", **traced(broker, spans)):
        await until(lambda: sum(sizes) == 4)
    processed = named(spans, "process orders")
    linked = [link for span in processed for link in links_of(span)]
    assert linked == [id_of(span) for span in named(spans, "send orders")]
    assert {parent_of(span) for span in processed} == {None}
    counts = [attributes(span)["messaging.batch.message_count"] for span in processed]
    assert counts == sizes


async def test_a_cancelled_handler_ends_its_span(broker: EmbeddedCluster, spans: Spans) -> None:
    called = asyncio.Event()

    async def hang(record: Raw) -> None:
        called.set()
        await asyncio.Event().wait()

    await send(broker, spans, b"x")
    async with Processor(hang, "orders", **traced(broker, spans, drain_timeout_ms=0)):
        await called.wait()
    assert attributes(only(spans, "process orders"))["error.type"] == "CancelledError"


async def test_handlers_do_not_see_the_spans_of_others(
    broker: EmbeddedCluster, spans: Spans
) -> None:
    seen: dict[bytes | None, int] = {}

    async def handle(record: Raw) -> None:
        for _ in range(5):
            await asyncio.sleep(0.01)
            span = trace.get_current_span().get_span_context().span_id
            assert seen.setdefault(record.value, span) == span

    await send(broker, spans, *(b"%d" % number for number in range(10)))
    async with Processor(handle, "orders", **traced(broker, spans, concurrency=4)):
        await until(lambda: len(named(spans, "process orders")) == 10)
    assert sorted(seen.values()) == sorted(id_of(s)[1] for s in named(spans, "process orders"))
    assert not trace.get_current_span().get_span_context().is_valid


async def test_calls_of_handlers_are_measured(broker: EmbeddedCluster, spans: Spans) -> None:
    async def handle(record: Raw) -> None:
        await asyncio.sleep(0)
        if record.attempt == 1:
            raise ValueError("not yet")

    reader = InMemoryMetricReader()
    observer = OpenTelemetryProcessorObserver(spans.provider, MeterProvider([reader]))
    await send(broker, spans, b"1", b"2")
    settings = of_processor(broker, observers=[observer], retry=RetryPolicy(2, backoff_ms=1))
    async with Processor(handle, "orders", **settings) as processor:
        await until(lambda: processor.metrics()["records-handled-total"] == 2)
    found = {}
    for point in points(reader)["messaging.process.duration s"]:
        assert isinstance(point, HistogramDataPoint)
        found[(point.attributes or {}).get("error.type")] = point
    assert {error: point.count for error, point in found.items()} == {"ValueError": 2, None: 2}
    assert found[None].attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.consumer.group.name": "billing",
    }


# -- consumers -------------------------------------------------------------------------------------


def consumer_of(broker: EmbeddedCluster, *interceptors: Any, **more: Any) -> Consumer:
    return Consumer(
        "orders",
        bootstrap_servers=broker.bootstrap_servers,
        group_id="audit",
        client_id="reader",
        auto_offset_reset="earliest",
        interceptors=interceptors,
        **more,
    )


async def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    while len(records) < count:
        records += await consumer.getmany(timeout_ms=60_000)
    return records


async def test_received_records_are_linked_with_their_senders(
    broker: EmbeddedCluster, spans: Spans
) -> None:
    await send(broker, spans, b"1", b"2")
    observer = OpenTelemetryConsumerObserver(MeterProvider())
    interceptor = OpenTelemetryConsumerInterceptor(spans.provider, observer=observer)
    async with consumer_of(broker, interceptor, observers=[observer]) as consumer:
        records = await read(consumer, 2)
        with interceptor.process(records[0]):
            assert trace.get_current_span().is_recording()
        with interceptor.process(records):
            pass
        with pytest.raises(ValueError, match="of the application"), interceptor.process(records[1]):
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
        "messaging.client.id": "reader",
        "messaging.consumer.group.name": "audit",
    }
    one, batch, failed = named(spans, "process orders")
    assert parent_of(one) == senders[0]
    assert (parent_of(batch), links_of(batch)) == (None, senders)
    assert parent_of(failed) == senders[1]
    assert attributes(failed)["error.type"] == "ValueError"


async def test_a_poll_span_begins_when_the_application_polls(
    broker: EmbeddedCluster, spans: Spans
) -> None:
    await send(broker, spans, b"1")
    observer = OpenTelemetryConsumerObserver(MeterProvider())
    interceptor = OpenTelemetryConsumerInterceptor(spans.provider, observer=observer)
    async with consumer_of(broker, interceptor, observers=[observer]) as consumer:
        await read(consumer, 1)
        waiting = asyncio.create_task(read(consumer, 1))
        await asyncio.sleep(0)
        await send(broker, spans, b"2")
        await waiting
    first, second = named(spans, "poll orders")
    for span in (first, second):
        assert span.start_time is not None and span.end_time is not None
        assert span.start_time <= span.end_time
    assert second.start_time is not None and first.end_time is not None
    assert second.start_time >= first.end_time


async def test_what_a_consumer_does_is_measured(broker: EmbeddedCluster, spans: Spans) -> None:
    await send(broker, spans, b"1", b"2", b"3")
    reader = InMemoryMetricReader()
    observer = OpenTelemetryConsumerObserver(MeterProvider([reader]), partitions=True)
    async with consumer_of(broker, observers=[observer], enable_auto_commit=False) as consumer:
        await consumer.getmany(1, timeout_ms=60_000)
        await consumer.commit()
        broker.on(ApiKey.OFFSET_COMMIT, fail(ErrorCode.GROUP_AUTHORIZATION_FAILED), times=1)
        with pytest.raises(Exception, match="GROUP_AUTHORIZATION_FAILED"):
            await consumer.commit()
        seen = points(reader)
    (consumed,) = seen["messaging.client.consumed.messages {message}"]
    (lag,) = seen["kafka.consumer.records_lag {message}"]
    assert (value(consumed), value(lag)) == (1, 2)
    of_partition = {
        "messaging.system": "kafka",
        "messaging.consumer.group.name": "audit",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
    }
    assert lag.attributes == {**of_partition, "messaging.client.id": "reader"}
    receive = {"messaging.operation.name": "poll", "messaging.operation.type": "receive"}
    assert consumed.attributes == {**of_partition, **receive}
    kinds = set()
    for point in seen["messaging.client.operation.duration s"]:
        of = dict(point.attributes or {})
        kinds.add((of["messaging.operation.name"], of.get("error.type")))
        if of["messaging.operation.name"] == "poll":
            assert of["server.address"] == "127.0.0.1" and of["server.port"]
    assert kinds == {("poll", None), ("commit", None), ("commit", "GROUP_AUTHORIZATION_FAILED")}
    assert "kafka.consumer.records_lag {message}" not in points(reader), "the consumer is closed"


def value(point: Any) -> float:
    number: float = point.value
    return number


async def test_consumers_of_one_provider_share_the_instrument_of_the_lag(
    broker: EmbeddedCluster, spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    await send(broker, spans, b"1", b"2", b"3")
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    observers = [OpenTelemetryConsumerObserver(provider) for _ in range(2)]
    first = consumer_of(broker, observers=observers[:1])
    second = consumer_of(broker, observers=observers[1:])
    async with first, second:
        tp = await assigned(first, second)
        await until(lambda: len(lags(reader)) == 1)
        assert tp == 1
    assert not [record for record in caplog.records if "opentelemetry" in record.name]


async def assigned(*consumers: Consumer) -> int:
    """The number of partitions that all have when the group is stable."""
    found: Callable[[], int] = lambda: sum(len(each.assignment()) for each in consumers)  # noqa: E731
    async with asyncio.timeout(600):
        while True:
            await asyncio.gather(*(each.getmany(timeout_ms=500) for each in consumers))
            if found() == 1 and all(each.state.status == "reading" for each in consumers):
                return found()


def lags(reader: InMemoryMetricReader) -> list[Any]:
    return list(points(reader).get("kafka.consumer.records_lag {message}", []))
