"""OpenTelemetry: a record's span from send to outcome, its context in the headers, and metrics per
batch by the messaging conventions.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    HistogramDataPoint,
    InMemoryMetricReader,
    NumberDataPoint,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from aioprod import (
    BrokerError,
    BufferExhaustedError,
    DeliveryTimeoutError,
    ErrorCode,
    KafkaError,
    Producer,
    ProducerClosedError,
    RecordTooLargeError,
    SerializationError,
)
from aioprod.integrations.opentelemetry import OpenTelemetryInterceptor, OpenTelemetryObserver
from aioprod.interceptors import InterceptorChain, ProducerInterceptor
from aioprod.metrics import BatchDone, BatchSent, ObservedProducer
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, fail, hold
from aioprod.types import Header, Headers, ProducerRecord, RecordMetadata, TopicPartition
from tests.waiting import until


class HasHeaders(Protocol):
    @property
    def headers(self) -> Headers: ...


STORED = RecordMetadata("orders", 3, 42, 1_000)
LOST = RecordMetadata("orders", 3, -1, -1)


class Spans:
    """A tracer provider, and the spans that it exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def ended(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    @property
    def only(self) -> ReadableSpan:
        (span,) = self.ended
        return span


@pytest.fixture
def spans() -> Iterator[Spans]:
    made = Spans()
    yield made
    made.provider.shutdown()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def header(record: HasHeaders, name: str) -> bytes:
    (value,) = [value for key, value in record.headers if key == name]
    assert value is not None
    return value


# -- spans -----------------------------------------------------------------------------------------


def test_a_span_has_the_names_of_the_conventions(spans: Spans) -> None:
    interceptor = OpenTelemetryInterceptor(spans.provider)
    interceptor.configure({"client_id": "shop"})
    record = interceptor.on_send(ProducerRecord("orders", b"12345", "key-1"))
    assert not spans.ended
    interceptor.on_delivery(record, STORED, None)
    assert spans.only.name == "send orders"
    assert spans.only.kind is SpanKind.PRODUCER
    assert spans.only.status.status_code is StatusCode.UNSET
    assert attributes(spans.only) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "3",
        "messaging.kafka.message.key": "key-1",
        "messaging.kafka.offset": 42,
        "messaging.message.body.size": 5,
        "messaging.client.id": "shop",
    }


def test_a_tombstone_is_one_and_bytes_of_a_key_are_not_shown(spans: Spans) -> None:
    interceptor = OpenTelemetryInterceptor(spans.provider)
    interceptor.on_delivery(
        interceptor.on_send(ProducerRecord("orders", None, b"\xff\x00")), STORED, None
    )
    assert attributes(spans.only)["messaging.kafka.message.tombstone"] is True
    assert "messaging.kafka.message.key" not in attributes(spans.only)
    assert "messaging.message.body.size" not in attributes(spans.only)


def test_the_context_travels_in_the_headers(spans: Spans) -> None:
    interceptor = OpenTelemetryInterceptor(spans.provider)
    tracer = spans.provider.get_tracer("test")
    with tracer.start_as_current_span("checkout") as parent:
        record = interceptor.on_send(
            ProducerRecord("orders", b"x", headers=[("mine", b"1"), ("mine", b"2")])
        )
    assert list(record.headers)[:2] == [("mine", b"1"), ("mine", b"2")]
    carrier = {
        name: value.decode()
        for name, value in record.headers
        if value is not None and name == "traceparent"
    }
    received = trace.get_current_span(
        TraceContextTextMapPropagator().extract(carrier)
    ).get_span_context()
    interceptor.on_delivery(record, STORED, None)
    sent = next(span for span in spans.ended if span.name == "send orders")
    assert sent.parent is not None and sent.context is not None
    assert sent.parent.span_id == parent.get_span_context().span_id
    assert (received.trace_id, received.span_id) == (
        parent.get_span_context().trace_id,
        sent.context.span_id,
    )


def test_a_record_that_is_passed_on_gets_a_new_traceparent(spans: Spans) -> None:
    interceptor = OpenTelemetryInterceptor(spans.provider)
    first = interceptor.on_send(ProducerRecord("orders", b"x"))
    second = interceptor.on_send(first)
    assert header(first, "traceparent") != header(second, "traceparent")
    interceptor.on_delivery(second, STORED, None)
    interceptor.on_delivery(first, STORED, None)
    assert len(spans.ended) == 2


def test_a_failed_record_ends_its_span_with_the_error(spans: Spans) -> None:
    interceptor = OpenTelemetryInterceptor(spans.provider)
    record = interceptor.on_send(ProducerRecord("orders", b"x"))
    interceptor.on_delivery(
        record, LOST, BrokerError(ErrorCode.MESSAGE_TOO_LARGE, "1 record to orders-3")
    )
    assert spans.only.status.status_code is StatusCode.ERROR
    assert "orders-3" in str(spans.only.status.description)
    assert attributes(spans.only)["error.type"] == "MESSAGE_TOO_LARGE"
    assert "messaging.kafka.offset" not in attributes(spans.only)
    assert spans.only.events[0].name == "exception"


def test_a_send_that_fails_ends_its_span(spans: Spans) -> None:
    interceptor = OpenTelemetryInterceptor(spans.provider)
    unsent = interceptor.on_send(ProducerRecord("orders", b"x"))
    interceptor.on_send_error(unsent, None, BufferExhaustedError("no memory"))
    assert attributes(spans.only)["error.type"] == "BufferExhaustedError"
    assert "messaging.destination.partition.id" not in attributes(spans.only)
    refused = interceptor.on_send(ProducerRecord("orders", b"x"))
    interceptor.on_send_error(refused, TopicPartition("orders", 1), ValueError("too large"))
    assert attributes(spans.ended[1])["messaging.destination.partition.id"] == "1"
    assert interceptor.open_spans == 0


def test_closing_ends_what_has_no_outcome(spans: Spans) -> None:
    interceptor = OpenTelemetryInterceptor(spans.provider)
    for _ in range(3):
        interceptor.on_send(ProducerRecord("orders", b"x"))
    interceptor.close()
    assert [span.status.status_code for span in spans.ended] == [StatusCode.ERROR] * 3
    assert interceptor.open_spans == 0


def test_the_number_of_open_spans_is_bounded_and_logged_once(
    spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    interceptor = OpenTelemetryInterceptor(spans.provider, max_open_spans=10)
    records = [interceptor.on_send(ProducerRecord("orders", b"x")) for _ in range(25)]
    assert interceptor.open_spans == 10
    assert len(spans.ended) == 15
    for record in records:
        interceptor.on_delivery(record, STORED, None)
    assert len(spans.ended) == 25, "each ends once"
    assert len(caplog.records) == 1


class Renaming(ProducerInterceptor):
    """Replaces the record and its headers, as the user's own interceptors may."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(value=b"other", headers=[*record.headers, ("added", b"1")])


def test_a_span_is_found_again_when_others_replace_the_record(spans: Spans) -> None:
    chain = InterceptorChain([OpenTelemetryInterceptor(spans.provider), Renaming()])
    chain.on_delivery(chain.on_send(ProducerRecord("orders", b"x")), STORED, None)
    assert attributes(spans.only)["messaging.kafka.offset"] == 42


def test_without_a_propagator_a_record_is_known_by_itself(spans: Spans) -> None:
    interceptor = OpenTelemetryInterceptor(spans.provider, propagator=CompositePropagator([]))
    records = [interceptor.on_send(ProducerRecord("orders", b"x")) for _ in range(2)]
    assert [list(record.headers) for record in records] == [[], []]
    for record in records:
        interceptor.on_delivery(record, STORED, None)
    assert len(spans.ended) == 2


def test_baggage_and_a_parent_that_is_not_sampled_are_passed_on() -> None:
    provider = TracerProvider(sampler=ALWAYS_OFF)
    interceptor = OpenTelemetryInterceptor(
        provider,
        propagator=CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()]),
    )
    token = context.attach(baggage.set_baggage("user", "jo"))
    try:
        record = interceptor.on_send(ProducerRecord("orders", b"x"))
    finally:
        context.detach(token)
    assert header(record, "baggage") == b"user=jo"
    assert int(header(record, "traceparent")[-2:], 16) & 1 == 0, "not sampled"
    assert interceptor.open_spans == 0


class BrokenPropagator(TraceContextTextMapPropagator):
    def inject(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("a fault of the propagator's")


def test_a_propagator_that_fails_leaves_no_span_open(spans: Spans) -> None:
    chain = InterceptorChain(
        [OpenTelemetryInterceptor(spans.provider, propagator=BrokenPropagator())]
    )
    given = ProducerRecord("orders", b"x")
    assert chain.on_send(given) is given
    assert len(spans.ended) == 1


def test_the_api_alone_is_enough() -> None:
    """Without an SDK nothing is recorded, nothing is kept and the record stays as it is."""
    script = """
import sys
from aioprod.integrations.opentelemetry import OpenTelemetryInterceptor, OpenTelemetryObserver
from aioprod.metrics import BatchDone
from aioprod.types import ProducerRecord, RecordMetadata
interceptor = OpenTelemetryInterceptor()
given = ProducerRecord("t", b"x", headers=(("a", b"1"),))
record = interceptor.on_send(given)
assert record is given and interceptor.open_spans == 0
interceptor.on_delivery(record, RecordMetadata("t", 0, 1, 1), None)
OpenTelemetryObserver().on_batch_done(BatchDone("t", 0, 1, 1, 1, 0.1, 0.1, None))
assert not any(name.startswith("opentelemetry.sdk") for name in sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


# -- metrics ---------------------------------------------------------------------------------------


def points(reader: InMemoryMetricReader) -> dict[str, list[HistogramDataPoint | NumberDataPoint]]:
    data = reader.get_metrics_data()
    assert data is not None
    found: dict[str, list[HistogramDataPoint | NumberDataPoint]] = {}
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    assert isinstance(point, HistogramDataPoint | NumberDataPoint)
                    found.setdefault(f"{metric.name} {metric.unit}", []).append(point)
    return found


def done(error: Exception | None = None, attempts: int = 1, partition: int = 3) -> BatchDone:
    return BatchDone("orders", partition, 10, 500, attempts, 0.004, 0.25, error)


def by_error(
    of: list[HistogramDataPoint | NumberDataPoint],
) -> Mapping[object, HistogramDataPoint | NumberDataPoint]:
    return {(point.attributes or {}).get("error.type"): point for point in of}


def test_batches_make_the_metrics_of_the_conventions() -> None:
    reader = InMemoryMetricReader()
    observer = OpenTelemetryObserver(MeterProvider([reader]))
    observer.on_connection(7, "[::1]:9094", True, None)
    observer.on_batch_sent(BatchSent("orders", 3, 7, 10, 500, 1_000, 1, 0.004))
    observer.on_batch_done(done())
    observer.on_batch_done(done())
    observer.on_batch_done(done(DeliveryTimeoutError("late")))
    observer.on_batch_done(done(DeliveryTimeoutError("never sent"), attempts=0))
    seen = points(reader)
    assert set(seen) == {
        "messaging.client.operation.duration s",
        "messaging.client.sent.messages {message}",
    }
    durations = by_error(seen["messaging.client.operation.duration s"])
    sent = by_error(seen["messaging.client.sent.messages {message}"])
    good, failed = durations[None], durations["DeliveryTimeoutError"]
    assert isinstance(good, HistogramDataPoint) and isinstance(failed, HistogramDataPoint)
    assert (good.count, good.sum, failed.count) == (2, 0.5, 2)
    assert good.explicit_bounds[0] == 0.005
    assert [
        point.value
        for point in (sent[None], sent["DeliveryTimeoutError"])
        if isinstance(point, NumberDataPoint)
    ] == [20, 10]
    assert good.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "server.address": "::1",
        "server.port": 9094,
    }


def test_partitions_have_series_of_their_own_where_that_is_asked_for() -> None:
    reader = InMemoryMetricReader()
    observer = OpenTelemetryObserver(MeterProvider([reader]), partitions=True)
    observer.on_batch_done(done(partition=0))
    observer.on_batch_done(done(partition=1))
    sent = points(reader)["messaging.client.sent.messages {message}"]
    assert sorted(
        str((point.attributes or {})["messaging.destination.partition.id"]) for point in sent
    ) == ["0", "1"]


def test_a_span_knows_the_broker_and_the_client_where_an_observer_does(spans: Spans) -> None:
    observer = OpenTelemetryObserver(MeterProvider([InMemoryMetricReader()]))
    interceptor = OpenTelemetryInterceptor(spans.provider, observer=observer)
    observer.on_start(ObservedProducer("shop", dict, dict, dict))
    observer.on_connection(7, "kafka-7:9092", True, None)
    observer.on_connection(8, "kafka-8:9092", False, ConnectionError())
    record = interceptor.on_send(ProducerRecord("orders", b"x"))
    observer.on_batch_sent(BatchSent("orders", 3, 7, 10, 500, 1_000, 1, 0.004))
    interceptor.on_delivery(record, STORED, None)
    seen = attributes(spans.only)
    assert (seen["server.address"], seen["server.port"], seen["messaging.client.id"]) == (
        "kafka-7",
        9092,
        "shop",
    )


def test_what_is_known_of_partitions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioprod.integrations.opentelemetry.producer.MAX_PARTITIONS", 10)
    observer = OpenTelemetryObserver(MeterProvider([InMemoryMetricReader()]))
    observer.on_connection(7, "kafka-7:9092", True, None)
    for partition in range(100):
        observer.on_batch_sent(BatchSent("orders", partition, 7, 1, 1, 1, 1, 0.0))
        assert len(observer._leaders) <= 10
        assert observer.server("orders", partition)


def test_headers_of_the_caller_are_not_changed(spans: Spans) -> None:
    interceptor = OpenTelemetryInterceptor(spans.provider)
    own: list[Header] = [("a", b"1")]
    given = ProducerRecord("orders", b"x", headers=own)
    interceptor.on_delivery(interceptor.on_send(given), STORED, None)
    assert (own, given.headers) == ([("a", b"1")], own)


def test_headers_that_are_none_leave_no_span_open(spans: Spans) -> None:
    chain = InterceptorChain([OpenTelemetryInterceptor(spans.provider)])
    wrong: Any = [("baggage", bytearray(b"a=1"))], [1, 2], None
    for headers in wrong:
        given = ProducerRecord("orders", b"x", headers=headers)
        assert chain.on_send(given) is given
    assert len(spans.ended) == 3


# -- with a producer -------------------------------------------------------------------------------


async def test_every_record_of_a_producer_has_its_span_and_the_broker_its_context(
    spans: Spans, broker: EmbeddedCluster
) -> None:
    observer = OpenTelemetryObserver(MeterProvider([InMemoryMetricReader()]))
    interceptor = OpenTelemetryInterceptor(spans.provider, observer=observer)
    async with Producer(
        broker.bootstrap_servers, interceptors=[interceptor], observers=[observer], client_id="shop"
    ) as producer:
        with spans.provider.get_tracer("test").start_as_current_span("checkout"):
            deliveries = [await producer.send("orders", b"%d" % number) for number in range(20)]
        for delivery in deliveries:
            await delivery
    sent = {
        attributes(span)["messaging.kafka.offset"]: span
        for span in spans.ended
        if span.name == "send orders"
    }
    (parent,) = [span for span in spans.ended if span.name == "checkout"]
    stored = broker.records("orders")
    assert len(sent) == len(stored) == 20
    for offset, record in enumerate(stored):
        span = sent[offset]
        assert span.context is not None and span.parent is not None and parent.context is not None
        assert span.parent.span_id == parent.context.span_id
        assert header(record, "traceparent").startswith(
            f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-".encode()
        )
        assert attributes(span)["messaging.client.id"] == "shop"
        assert (
            f"{attributes(span)['server.address']}:{attributes(span)['server.port']}"
            == broker.bootstrap_servers
        )


@pytest.mark.virtual_time
async def test_no_span_outlives_its_record_whatever_becomes_of_that(
    spans: Spans, broker: EmbeddedCluster
) -> None:
    interceptor = OpenTelemetryInterceptor(spans.provider)
    settings: dict[str, Any] = {
        "linger_ms": 0,
        "buffer_memory": 1_100,
        "batch_size": 1_000,
        "max_block_ms": 100,
        "interceptors": [interceptor],
    }
    async with Producer(broker.bootstrap_servers, **settings) as producer:
        await producer.send_and_wait("orders", b"good")
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.INVALID_RECORD))
        with pytest.raises(KafkaError):
            await producer.send_and_wait("orders", b"refused by the broker")
        with pytest.raises(RecordTooLargeError):
            await producer.send_and_wait("orders", b"x" * 2_000)
        with pytest.raises(SerializationError):
            await producer.send("orders", object())
        assert interceptor.open_spans == 0
        never = asyncio.Event()
        broker.on(ApiKey.PRODUCE, hold(never))
        kept = await producer.send("orders", b"x" * 800)
        assert interceptor.open_spans == 1
        with pytest.raises(BufferExhaustedError):
            await producer.send("orders", b"x" * 800)
        waiting = asyncio.create_task(producer.send("orders", b"x" * 800))
        await until(lambda: producer.metrics()["waiting-threads"] == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert interceptor.open_spans == 1
        await producer.close(timeout_ms=0)
        assert kept.exception() is not None
    with pytest.raises(ProducerClosedError):
        await producer.send("orders", b"x")
    assert interceptor.open_spans == 0
    assert len(spans.ended) == 8
    assert [span.status.status_code for span in spans.ended].count(StatusCode.ERROR) == 7
