"""Prometheus metrics of processors."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from prometheus_client import REGISTRY, CollectorRegistry

from aioprod.integrations.prometheus.collector import (
    ClientKind,
    HistogramKind,
    Registration,
    Samples,
)
from aioprod.processing import Handled, HandlerFailed, ObservedProcessor, ProcessorObserver


class PrometheusProcessorObserver(ProcessorObserver):
    """Registers its processor at its start and removes it when it ends. Make a separate one for
    each processor.

    Names are those of ``metrics()`` with the prefix ``kafka_processor_``
    (``kafka_processor_partition_`` for the metrics by partition) and underscores for dashes:
    ``records-handled-total`` is ``kafka_processor_records_handled_total``. Labels are ``client_id``
    (of the processor's consumer), ``group_id``, ``topic``, ``partition``. The histogram
    ``kafka_processor_handler_seconds`` has a value per call of the handler, with the labels
    ``topic`` and ``outcome`` (``success`` or ``error``).

    Args:
        registry: the registry; the library's global one by default.
        partitions: add metrics by partition.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY, *, partitions: bool = True) -> None:
        self._registration = Registration(registry, _KIND)
        self._partitions = partitions

    def on_start(self, processor: ObservedProcessor) -> None:
        self._registration.start(
            (processor.client_id, processor.group_id),
            partial(_samples, processor, self._partitions),
        )

    def on_handled(self, event: Handled) -> None:
        self._registration.observe("handler_seconds", event.seconds, event.topic, "success")

    def on_handler_failed(self, event: HandlerFailed) -> None:
        self._registration.observe("handler_seconds", event.seconds, event.topic, "error")

    def close(self) -> None:
        self._registration.close()


def _samples(processor: ObservedProcessor, partitions: bool) -> Iterable[Samples]:
    yield Samples("processor-metrics", {}, processor.metrics())
    for tp, of_partition in processor.metrics_by_partition().items() if partitions else ():
        labels = {"topic": tp.topic, "partition": str(tp.partition)}
        yield Samples("processor-partition-metrics", labels, of_partition)


def _example() -> Iterable[Samples]:
    yield Samples("processor-metrics", {}, dict.fromkeys((*_METRICS, *_OF_SHARE_GROUPS), 0.0))
    labels = {"topic": "", "partition": ""}
    yield Samples("processor-partition-metrics", labels, dict.fromkeys(_BY_PARTITION, 0.0))


_METRICS = (
    "records-handled-total",
    "records-retried-total",
    "records-dead-lettered-total",
    "handler-errors-total",
    "commits-total",
    "handler-time-seconds-total",
    "records-in-flight",
    "records-queued",
    "keys-in-flight",
    "longest-call-seconds",
    "records-lag-max",
    "assigned-partitions",
)
_OF_SHARE_GROUPS = (
    "records-accepted-total",
    "records-released-total",
    "records-rejected-total",
    "acknowledgement-errors-total",
    "records-pending",
)
_BY_PARTITION = ("records-in-flight", "records-pending", "records-lag")
_KIND = ClientKind(
    "kafka_processor",
    ("client_id", "group_id"),
    (
        HistogramKind(
            "handler_seconds", "Time in the handler, by call", labels=("topic", "outcome")
        ),
    ),
    _example,
)
