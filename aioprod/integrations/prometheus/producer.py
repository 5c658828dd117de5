"""Prometheus metrics of producers."""

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
from aioprod.metrics import (
    BatchDone,
    ObservedProducer,
    ProducerMetrics,
    ProducerObserver,
    RequestDone,
)

_BYTES = tuple(float(2**power) for power in range(8, 21, 2))


class PrometheusObserver(ProducerObserver):
    """Registers its producer at its start and removes it when it closes. Make a separate one for
    each producer.

    Names are Kafka's with the prefix ``kafka_producer_`` (``kafka_producer_topic_``,
    ``kafka_producer_node_`` for the groups by topic and node) and underscores for dashes:
    ``record-send-total`` is ``kafka_producer_record_send_total``. Labels are ``client_id``,
    ``topic``, ``node_id``; if two producers of a registry have the same client id, the second gets
    ``<client id>-2``. Histograms are ``kafka_producer_delivery_seconds`` and
    ``kafka_producer_batch_bytes`` (a value per batch), and ``kafka_producer_request_seconds``.

    Args:
        registry: the registry; the library's global one by default.
        topics: add metrics by topic.
        nodes: add metrics by broker.
    """

    def __init__(
        self, registry: CollectorRegistry = REGISTRY, *, topics: bool = True, nodes: bool = True
    ) -> None:
        self._registration = Registration(registry, _KIND)
        self._topics = topics
        self._nodes = nodes

    def on_start(self, producer: ObservedProducer) -> None:
        self._registration.start(
            (producer.client_id,), partial(_samples, producer, self._topics, self._nodes)
        )

    def on_batch_done(self, event: BatchDone) -> None:
        self._registration.observe("delivery_seconds", event.latency_s)
        self._registration.observe("batch_bytes", event.batch_bytes)

    def on_request(self, event: RequestDone) -> None:
        self._registration.observe("request_seconds", event.latency_s)

    def close(self) -> None:
        self._registration.close()


def _samples(producer: ObservedProducer, topics: bool, nodes: bool) -> Iterable[Samples]:
    yield Samples("producer-metrics", {}, producer.metrics())
    for topic, of_topic in producer.metrics_by_topic().items() if topics else ():
        yield Samples("producer-topic-metrics", {"topic": topic}, of_topic)
    for node, of_node in producer.metrics_by_node().items() if nodes else ():
        yield Samples("producer-node-metrics", {"node_id": str(node)}, of_node)


def _example() -> Iterable[Samples]:
    example = ProducerMetrics()
    example.batch_succeeded("", 0, 0.0)
    example.request_done(0, 0.0, 0.0)
    yield Samples("producer-metrics", {}, example.snapshot(0.0))
    yield Samples("producer-topic-metrics", {"topic": ""}, example.snapshot_by_topic(0.0)[""])
    yield Samples("producer-node-metrics", {"node_id": ""}, example.snapshot_by_node(0.0)[0])


_KIND = ClientKind(
    "kafka_producer",
    ("client_id",),
    (
        HistogramKind("delivery_seconds", "From opening a batch to its outcome"),
        HistogramKind("batch_bytes", "Size of batches as sent", _BYTES),
        HistogramKind("request_seconds", "From writing a request to its reply or timeout"),
    ),
    _example,
)
