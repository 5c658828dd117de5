"""Spans of records that a share consumer receives, and its metrics."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

from opentelemetry import metrics
from opentelemetry.metrics import MeterProvider
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Span, TracerProvider

from aioprod import ShareRecord
from aioprod.integrations.opentelemetry.conventions import Attributes, error_type, operation
from aioprod.integrations.opentelemetry.reading import RECEIVE, ReadingMeasurements
from aioprod.integrations.opentelemetry.received import ReceivedSpans, client_attributes
from aioprod.metrics import (
    AcknowledgementsDone,
    ObservedConsumer,
    RecordsDelivered,
    RequestDone,
    ShareConsumerObserver,
)

_ACKNOWLEDGE = operation("acknowledge", "settle")
_FETCH = "ShareFetch"


class OpenTelemetryShareConsumerObserver(ShareConsumerObserver):
    """``messaging.client.operation.duration`` (seconds: of fetches, as ``poll``, and of
    acknowledgements that are sent alone, as ``acknowledge``),
    ``messaging.client.consumed.messages``, and ``aioprod.acknowledgements``, with the attributes
    ``aioprod.acknowledge_type`` and ``error.type``.

    Make a separate one for each share consumer.

    Args:
        meter_provider: receives the metrics; the global one by default.
        partitions: give each partition its own series of consumed messages and acknowledgements
            (``messaging.destination.partition.id``).
    """

    def __init__(
        self, meter_provider: MeterProvider | None = None, *, partitions: bool = False
    ) -> None:
        meter = metrics.get_meter("aioprod", meter_provider=meter_provider)
        self._measured = ReadingMeasurements(meter, partitions=partitions)
        self._acknowledged = meter.create_counter(
            "aioprod.acknowledgements",
            unit="{message}",
            description="Number of messages whose acknowledgement was confirmed or has failed.",
        )
        self._partitions = partitions

    def on_start(self, consumer: ObservedConsumer) -> None:
        self._measured.started(consumer)

    def on_connection(
        self, node_id: int, address: str, opened: bool, error: Exception | None
    ) -> None:
        self._measured.connection_changed(node_id, address, opened)

    def on_request(self, event: RequestDone) -> None:
        self._measured.request_done(event, RECEIVE if event.api == _FETCH else _ACKNOWLEDGE)

    def on_records(self, event: RecordsDelivered) -> None:
        self._measured.records_came(event.topic, event.partition, len(event.records))

    def on_acknowledged(self, event: AcknowledgementsDone) -> None:
        common: Attributes = {
            **_ACKNOWLEDGE,
            **self._measured.group(),
            "messaging.destination.name": event.topic,
        }
        if self._partitions:
            common["messaging.destination.partition.id"] = str(event.partition)
        if event.error is not None:
            common["error.type"] = error_type(event.error)
        for kind, number in event.numbers.items():
            self._acknowledged.add(
                number, {**common, "aioprod.acknowledge_type": kind.name.lower()}
            )


class OpenTelemetryShareConsumerSpans(ShareConsumerObserver):
    """Makes a span ``poll <topic>`` for each list of records of a partition that the application
    gets, with links to the spans of their senders (``traceparent`` in the headers).

    Code that handles records uses :meth:`process` for its own span. Make a separate one for each
    share consumer.

    Args:
        tracer_provider: receives the spans; the global one by default.
        propagator: reads the headers; the global one by default.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        *,
        propagator: TextMapPropagator | None = None,
    ) -> None:
        self._spans = ReceivedSpans(tracer_provider, propagator)
        self._client: Attributes = {}
        self._polled_ns: int | None = None

    def on_start(self, consumer: ObservedConsumer) -> None:
        self._client = client_attributes(consumer.client_id, consumer.group_id)

    def on_poll(self, interval_s: float) -> None:
        self._polled_ns = time.time_ns()

    def on_records(self, event: RecordsDelivered) -> None:
        self._spans.receive(event.records, self._client, self._polled_ns)

    def process(self, given: ShareRecord | Sequence[ShareRecord]) -> AbstractContextManager[Span]:
        """Return a context manager for the code that handles a record or a list of records: a span
        ``process <topic>``, which is the current one inside it.

        The span of a record is a child of its sender's span, and has ``aioprod.delivery_count``.
        That of a list is a child of the current span, if any, and linked with the spans of all
        senders.
        """
        return self._spans.process_given(given, self._client)
