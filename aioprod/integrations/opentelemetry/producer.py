"""Spans of records that are sent, and metrics of their batches."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

from aioprod.errors import KafkaError
from aioprod.integrations.opentelemetry.conventions import (
    HEADER_GETTER,
    HEADER_SETTER,
    body_attributes,
    duration_histogram,
    end_span,
    error_type,
    operation,
    server_attributes,
)
from aioprod.interceptors import ProducerInterceptor
from aioprod.logs import Logger, get_logger
from aioprod.metrics import BatchDone, BatchSent, ObservedProducer, ProducerObserver
from aioprod.types import Header, ProducerRecord, RecordMetadata, TopicPartition

log: Logger = get_logger(__name__)

MAX_OPEN_SPANS = 100_000
MAX_PARTITIONS = 10_000

_SEND = operation("send", "send")


def trace_headers() -> tuple[Header, ...]:
    """Return the headers that propagate the current context, such as ``traceparent``:
    ``Outbox(more_headers=trace_headers)``. The spans of a relay with
    :class:`OpenTelemetryInterceptor` are then children of the span in which the record was added.
    """
    headers: list[Header] = []
    propagate.inject(headers, setter=HEADER_SETTER)
    return tuple(headers)


class OpenTelemetryObserver(ProducerObserver):
    """``messaging.client.operation.duration`` (seconds, one value per batch: from opening it to its
    outcome) and ``messaging.client.sent.messages``.

    Make a separate one for each producer.

    Args:
        meter_provider: receives the metrics; the global one by default.
        partitions: give each partition its own series (``messaging.destination.partition.id``).
    """

    def __init__(
        self, meter_provider: MeterProvider | None = None, *, partitions: bool = False
    ) -> None:
        meter = metrics.get_meter("aioprod", meter_provider=meter_provider)
        self._duration = duration_histogram(meter)
        self._sent = meter.create_counter(
            "messaging.client.sent.messages",
            unit="{message}",
            description="Number of messages producer attempted to send to the broker.",
        )
        self._partitions = partitions
        self._addresses: dict[int, dict[str, str | int]] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self.client_id: str | None = None

    def on_start(self, producer: ObservedProducer) -> None:
        self.client_id = producer.client_id

    def on_connection(
        self, node_id: int, address: str, opened: bool, error: Exception | None
    ) -> None:
        if opened:
            self._addresses[node_id] = server_attributes(address)

    def on_batch_sent(self, event: BatchSent) -> None:
        if len(self._leaders) >= MAX_PARTITIONS:
            self._leaders.clear()
        self._leaders[event.topic, event.partition] = event.node_id

    def on_batch_done(self, event: BatchDone) -> None:
        attributes: dict[str, str | int] = {
            **_SEND,
            "messaging.destination.name": event.topic,
            **self.server(event.topic, event.partition),
        }
        if self._partitions:
            attributes["messaging.destination.partition.id"] = str(event.partition)
        if event.error is not None:
            attributes["error.type"] = error_type(event.error)
        self._duration.record(event.latency_s, attributes)
        if event.attempts:
            self._sent.add(event.records, attributes)

    def server(self, topic: str, partition: int) -> Mapping[str, str | int]:
        """Return ``server.address`` and ``server.port`` of the broker to which this partition was
        last sent; empty if unknown.
        """
        return self._addresses.get(self._leaders.get((topic, partition), -1), {})


class OpenTelemetryInterceptor(ProducerInterceptor):
    """Makes a span ``send <topic>`` for each record, from ``send`` to its outcome, and propagates
    it in the record's headers (``traceparent``).

    The span's parent is the current span of the caller of ``send``; without one, that in the
    record's headers, so a record that is passed on with its headers stays in its trace. Put this
    interceptor last, so that no other one removes the headers.

    Args:
        tracer_provider: receives the spans; the global one by default.
        propagator: writes the headers; the global one by default.
        observer: adds ``server.address`` and ``messaging.client.id`` to spans.
        max_open_spans: limit on records without an outcome; beyond it the oldest span is ended
            without one.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        *,
        propagator: TextMapPropagator | None = None,
        observer: OpenTelemetryObserver | None = None,
        max_open_spans: int = MAX_OPEN_SPANS,
    ) -> None:
        self._tracer = trace.get_tracer("aioprod", tracer_provider=tracer_provider)
        self._propagator = propagator or propagate.get_global_textmap()
        self._fields = frozenset(self._propagator.fields)
        self._observer = observer
        self._max_open_spans = max_open_spans
        self._client_id: str | None = None
        # By the headers that the propagator wrote, which stay in the record; if it wrote none, by
        # the record's identity.
        self._open: OrderedDict[object, tuple[Span, ProducerRecord]] = OrderedDict()
        self._overflowed = False

    @property
    def open_spans(self) -> int:
        """The number of records without an outcome."""
        return len(self._open)

    def configure(self, settings: Mapping[str, Any]) -> None:
        client_id = settings.get("client_id")
        self._client_id = client_id if isinstance(client_id, str) else None

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        span = self._tracer.start_span(
            f"send {record.topic}",
            self._parent(record),
            kind=SpanKind.PRODUCER,
            attributes=self._attributes(record),
        )
        try:
            headers = list(record.headers)
            self._propagator.inject(
                headers, context=trace.set_span_in_context(span), setter=HEADER_SETTER
            )
            if headers != list(record.headers):
                record = record._replace(headers=tuple(headers))
            if span.is_recording():
                self._remember(span, record)
        except BaseException:
            span.end()
            raise
        return record

    def on_delivery(
        self, record: ProducerRecord, metadata: RecordMetadata, error: KafkaError | None
    ) -> None:
        span = self._forget(record)
        if span is None:
            return
        span.set_attribute("messaging.destination.partition.id", str(metadata.partition))
        if metadata.offset >= 0:
            span.set_attribute("messaging.kafka.offset", metadata.offset)
        if self._observer is not None:
            span.set_attributes(self._observer.server(metadata.topic, metadata.partition))
        end_span(span, error)

    def on_send_error(
        self, record: ProducerRecord, topic_partition: TopicPartition | None, error: Exception
    ) -> None:
        span = self._forget(record)
        if span is None:
            return
        if topic_partition is not None:
            span.set_attribute("messaging.destination.partition.id", str(topic_partition.partition))
        end_span(span, error)

    def close(self) -> None:
        """End open spans: the producer reports no further outcomes."""
        while self._open:
            _, (span, _record) = self._open.popitem()
            span.set_status(
                Status(StatusCode.ERROR, "the producer was closed before the record had an outcome")
            )
            span.end()

    def _parent(self, record: ProducerRecord) -> Context | None:
        """Return the context in the record's headers; None for the current one."""
        if not record.headers or trace.get_current_span().get_span_context().is_valid:
            return None
        try:
            return self._propagator.extract(record.headers, getter=HEADER_GETTER)
        except (TypeError, ValueError):  # these are no headers: the span ends with that error
            return None

    def _attributes(self, record: ProducerRecord) -> dict[str, str | int | bool]:
        attributes: dict[str, str | int | bool] = {
            **_SEND,
            "messaging.destination.name": record.topic,
        }
        client_id = self._client_id or (
            self._observer.client_id if self._observer is not None else None
        )
        if client_id:
            attributes["messaging.client.id"] = client_id
        attributes |= body_attributes(record.key, record.value)
        return attributes

    def _key(self, record: ProducerRecord) -> object:
        return tuple(header for header in record.headers if header[0] in self._fields) or id(record)

    def _remember(self, span: Span, record: ProducerRecord) -> None:
        self._open[self._key(record)] = (span, record)
        if len(self._open) > self._max_open_spans:
            _, (oldest, _record) = self._open.popitem(last=False)
            oldest.end()
            if not self._overflowed:
                self._overflowed = True
                log.warning(
                    "more than %d records have no outcome yet: the oldest spans end without one",
                    self._max_open_spans,
                )

    def _forget(self, record: ProducerRecord) -> Span | None:
        found = self._open.pop(self._key(record), None)
        return found[0] if found is not None else None
