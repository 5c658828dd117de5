"""Prometheus: a producer's metrics, read at each scrape, and histograms with one value per batch or
request.

Requires the extra ``prometheus``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from aioprod.metrics import (
    BatchDone,
    ObservedProducer,
    ProducerMetrics,
    ProducerObserver,
    RequestDone,
)

_SECONDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
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
        self._registry = registry
        self._topics = topics
        self._nodes = nodes
        self._producers: _Producers | None = None
        self._label = ""

    def on_start(self, producer: ObservedProducer) -> None:
        if self._producers is not None:
            raise ValueError("a PrometheusObserver observes one producer: make one for each")
        producers = _BY_REGISTRY.get(self._registry)
        known = producers is not None
        if producers is None:
            producers = _Producers()
        self._label = producers.add(producer, self._topics, self._nodes)
        self._delivery = producers.delivery.labels(self._label)
        self._batch_bytes = producers.batch_bytes.labels(self._label)
        self._request = producers.request.labels(self._label)
        if not known:
            self._registry.register(producers)  # raises if one of the names is registered already
            _BY_REGISTRY[self._registry] = producers
        self._producers = producers

    def on_batch_done(self, event: BatchDone) -> None:
        if self._producers is not None:
            self._delivery.observe(event.latency_s)
            self._batch_bytes.observe(event.batch_bytes)

    def on_request(self, event: RequestDone) -> None:
        if self._producers is not None:
            self._request.observe(event.latency_s)

    def close(self) -> None:
        if self._producers is not None:
            self._producers.remove(self._label)
            if not self._producers:
                del _BY_REGISTRY[self._registry]
                self._registry.unregister(self._producers)
            self._producers = None


class _Producers(Collector):
    """All producers of a registry: a metric must come with the samples of all of them."""

    def __init__(self) -> None:
        self._observed: dict[str, tuple[ObservedProducer, bool, bool]] = {}
        self.delivery = _histogram(
            "delivery_seconds", "From opening a batch to its outcome", _SECONDS
        )
        self.batch_bytes = _histogram("batch_bytes", "Size of batches as sent", _BYTES)
        self.request = _histogram(
            "request_seconds", "From writing a request to its reply or timeout", _SECONDS
        )

    def __bool__(self) -> bool:
        return bool(self._observed)

    def add(self, producer: ObservedProducer, topics: bool, nodes: bool) -> str:
        label, number = producer.client_id, 1
        while label in self._observed:
            number += 1
            label = f"{producer.client_id}-{number}"
        self._observed[label] = (producer, topics, nodes)
        return label

    def remove(self, label: str) -> None:
        del self._observed[label]
        for histogram in (self.delivery, self.batch_bytes, self.request):
            histogram.remove(label)

    def collect(self) -> Iterable[Metric]:
        # A scrape may come from another thread.
        return self._families(self._observed.copy())

    def describe(self) -> Iterable[Metric]:
        # All possible names, so that a scrape may request only some of them.
        example = ProducerMetrics()
        example.batch_succeeded("", 0, 0.0)
        example.request_done(0, 0.0, 0.0)
        of_example = ObservedProducer(
            "",
            partial(example.snapshot, 0.0),
            partial(example.snapshot_by_topic, 0.0),
            partial(example.snapshot_by_node, 0.0),
        )
        return self._families({**self._observed, "": (of_example, True, True)})

    def _families(
        self, observed: Mapping[str, tuple[ObservedProducer, bool, bool]]
    ) -> Iterable[Metric]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for client_id, (producer, topics, nodes) in observed.items():
            _add(families, "producer-metrics", {}, client_id, producer.metrics())
            for topic, of_topic in producer.metrics_by_topic().items() if topics else ():
                _add(families, "producer-topic-metrics", {"topic": topic}, client_id, of_topic)
            for node, of_node in producer.metrics_by_node().items() if nodes else ():
                _add(families, "producer-node-metrics", {"node_id": str(node)}, client_id, of_node)
        yield from families.values()
        for histogram in (self.delivery, self.batch_bytes, self.request):
            yield from histogram.collect()


_BY_REGISTRY: WeakKeyDictionary[CollectorRegistry, _Producers] = WeakKeyDictionary()


def _histogram(name: str, documentation: str, buckets: Sequence[float]) -> Histogram:
    return Histogram(
        f"kafka_producer_{name}", documentation, ["client_id"], buckets=buckets, registry=None
    )


def _add(
    families: dict[str, CounterMetricFamily | GaugeMetricFamily],
    group: str,
    labels: Mapping[str, str],
    client_id: str,
    values: Mapping[str, float],
) -> None:
    prefix = group.replace("-", "_").removesuffix("metrics")
    for name, value in values.items():
        full_name = f"kafka_{prefix}{name.replace('-', '_')}"
        family = families.get(full_name)
        if family is None:
            kind = CounterMetricFamily if name.endswith("-total") else GaugeMetricFamily
            family = families[full_name] = kind(
                full_name, f"{name} of Kafka's group {group}", labels=["client_id", *labels]
            )
        family.add_metric([client_id, *labels.values()], value)
