"""Spans of records that a consumer receives, and its metrics."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Span, TracerProvider

from aioprod import ConsumerInterceptor, ConsumerRecord
from aioprod.integrations.opentelemetry.conventions import Attributes, operation
from aioprod.integrations.opentelemetry.reading import RECEIVE, ReadingMeasurements
from aioprod.integrations.opentelemetry.received import ReceivedSpans, client_attributes
from aioprod.metrics import (
    CommitDone,
    ConsumerObserver,
    ObservedConsumer,
    RecordsReturned,
    RequestDone,
)

_COMMIT = operation("commit", "settle")


class OpenTelemetryConsumerObserver(ConsumerObserver):
    """``messaging.client.operation.duration`` (seconds: of fetches, as ``poll``, and of commits),
    ``messaging.client.consumed.messages``, and ``kafka.consumer.records_lag`` by partition.

    Make a separate one for each consumer.

    Args:
        meter_provider: receives the metrics; the global one by default.
        partitions: give each partition its own series of consumed messages
            (``messaging.destination.partition.id``). The lag always has one.
    """

    def __init__(
        self, meter_provider: MeterProvider | None = None, *, partitions: bool = False
    ) -> None:
        provider = meter_provider or metrics.get_meter_provider()
        meter = metrics.get_meter("aioprod", meter_provider=provider)
        self._measured = ReadingMeasurements(meter, partitions=partitions)
        self._observed = _observed_with(provider, meter)
        self._consumer: ObservedConsumer | None = None
        self.polled_ns: int | None = None

    @property
    def client(self) -> Attributes:
        """The attributes of client and group, once it has started."""
        return self._measured.client

    def on_start(self, consumer: ObservedConsumer) -> None:
        self._consumer = consumer
        self._measured.started(consumer)
        self._observed.add(self)

    def on_connection(
        self, node_id: int, address: str, opened: bool, error: Exception | None
    ) -> None:
        self._measured.connection_changed(node_id, address, opened)

    def on_poll(self, interval_s: float) -> None:
        self.polled_ns = time.time_ns()

    def on_request(self, event: RequestDone) -> None:
        self._measured.request_done(event, RECEIVE)

    def on_commit(self, event: CommitDone) -> None:
        attributes = {**_COMMIT, **self._measured.group()}
        self._measured.record(event.latency_s, attributes, event.error)

    def on_records(self, event: RecordsReturned) -> None:
        self._measured.records_came(*event)

    def close(self) -> None:
        self._observed.discard(self)

    def lags(self) -> Iterable[Observation]:
        """Return the lag of each partition."""
        assert self._consumer is not None
        for tp, values in self._consumer.metrics_by_partition().items():
            if "records-lag" in values:
                attributes: Attributes = {
                    "messaging.system": "kafka",
                    **self.client,
                    "messaging.destination.name": tp.topic,
                    "messaging.destination.partition.id": str(tp.partition),
                }
                yield Observation(values["records-lag"], attributes)


# An instrument can't be removed, so all consumers of a provider share the one of the lag.
_OBSERVED: WeakKeyDictionary[MeterProvider, WeakSet[OpenTelemetryConsumerObserver]] = (
    WeakKeyDictionary()
)


def _observed_with(provider: MeterProvider, meter: Meter) -> WeakSet[OpenTelemetryConsumerObserver]:
    observed = _OBSERVED.get(provider)
    if observed is None:
        observed = _OBSERVED[provider] = WeakSet()
        meter.create_observable_gauge(
            "kafka.consumer.records_lag",
            [partial(_all_lags, observed)],
            unit="{message}",
            description="Number of records between the position and the end of the partition.",
        )
    return observed


def _all_lags(
    observed: WeakSet[OpenTelemetryConsumerObserver], options: CallbackOptions
) -> Iterable[Observation]:
    for observer in list(observed):
        yield from observer.lags()


class OpenTelemetryConsumerInterceptor(ConsumerInterceptor):
    """Makes a span ``poll <topic>`` for each list of records of a partition that the application
    gets, with links to the spans of their senders (``traceparent`` in the headers).

    Code that handles records uses :meth:`process` for its own span. Put this interceptor last, so
    that it sees the records that the application gets.

    Args:
        tracer_provider: receives the spans; the global one by default.
        propagator: reads the headers; the global one by default.
        observer: adds client and group to spans, and the time at which the application polled;
            without it ``poll`` spans have no duration.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        *,
        propagator: TextMapPropagator | None = None,
        observer: OpenTelemetryConsumerObserver | None = None,
    ) -> None:
        self._spans = ReceivedSpans(tracer_provider, propagator)
        self._observer = observer
        self._client: Attributes = {}

    def configure(self, settings: Mapping[str, Any]) -> None:
        self._client = client_attributes(settings.get("client_id"), settings.get("group_id"))

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        if records:
            began_ns = self._observer.polled_ns if self._observer is not None else None
            self._spans.receive(records, self._attributes(), began_ns)
        return records

    def process(
        self, given: ConsumerRecord | Sequence[ConsumerRecord]
    ) -> AbstractContextManager[Span]:
        """Return a context manager for the code that handles a record or a list of records: a span
        ``process <topic>``, which is the current one inside it.

        The span of a record is a child of its sender's span. That of a list is a child of the
        current span, if any, and linked with the spans of all senders.
        """
        return self._spans.process_given(given, self._attributes())

    def _attributes(self) -> Attributes:
        return self._client or (self._observer.client if self._observer is not None else {})
