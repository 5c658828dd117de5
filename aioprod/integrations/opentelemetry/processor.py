"""Spans and metrics of handlers."""

from __future__ import annotations

from contextlib import AbstractContextManager

from opentelemetry import metrics
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Span, TracerProvider

from aioprod.integrations.opentelemetry.conventions import (
    DURATION_BOUNDARIES,
    Attributes,
    error_type,
    operation,
)
from aioprod.integrations.opentelemetry.received import ReceivedSpans, client_attributes
from aioprod.processing import (
    Handled,
    HandlerFailed,
    Handling,
    ObservedProcessor,
    ProcessorObserver,
)

_PROCESS = operation("process", "process")


class OpenTelemetryProcessorObserver(ProcessorObserver):
    """A span ``process <topic>`` around each call of the handler, and
    ``messaging.process.duration`` (seconds in the handler).

    The span of a handler of one record is a child of the sender's span (``traceparent`` in the
    record's headers), so a trace leads through topics. That of a handler of batches begins a trace
    and is linked with the spans of all senders. It is the current span in the handler, and ends
    when the outputs are acknowledged. A retry has its own span, with ``aioprod.attempt``.

    Make a separate one for each processor.

    Args:
        tracer_provider: receives the spans; the global one by default.
        meter_provider: receives the metrics; the global one by default.
        propagator: reads the headers; the global one by default.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        propagator: TextMapPropagator | None = None,
    ) -> None:
        self._spans = ReceivedSpans(tracer_provider, propagator)
        self._duration = metrics.get_meter(
            "aioprod", meter_provider=meter_provider
        ).create_histogram(
            "messaging.process.duration",
            unit="s",
            description="Duration of processing operation.",
            explicit_bucket_boundaries_advisory=DURATION_BOUNDARIES,
        )
        self._client: Attributes = {}
        self._group: Attributes = {}

    def on_start(self, processor: ObservedProcessor) -> None:
        self._client = client_attributes(processor.client_id, processor.group_id)
        self._group = client_attributes(None, processor.group_id)

    def handling(self, event: Handling) -> AbstractContextManager[Span]:
        more = dict(self._client)
        if event.attempt > 1:
            more["aioprod.attempt"] = event.attempt
        # The span that was current when the processor started has nothing to do with the record.
        return self._spans.process(
            event.records, is_batch=event.is_batch, more=more, ambient=Context()
        )

    def on_handled(self, event: Handled) -> None:
        self._record(event.topic, event.seconds, None)

    def on_handler_failed(self, event: HandlerFailed) -> None:
        self._record(event.topic, event.seconds, event.error)

    def _record(self, topic: str, seconds: float, error: BaseException | None) -> None:
        attributes = {**_PROCESS, **self._group, "messaging.destination.name": topic}
        if error is not None:
            attributes["error.type"] = error_type(error)
        self._duration.record(seconds, attributes)
