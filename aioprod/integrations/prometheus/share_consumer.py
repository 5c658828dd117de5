"""Prometheus metrics of share consumers."""

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
from aioprod.integrations.prometheus.consumer import reader_samples
from aioprod.metrics import (
    ObservedConsumer,
    RequestDone,
    ShareConsumerMetrics,
    ShareConsumerObserver,
)


class PrometheusShareConsumerObserver(ShareConsumerObserver):
    """Registers its share consumer at its start and removes it when it closes. Make a separate one
    for each share consumer.

    Names are Kafka's with the prefix ``kafka_share_consumer_`` (``kafka_share_consumer_topic_`` and
    ``kafka_share_consumer_partition_`` for the metrics by topic and partition) and underscores for
    dashes: ``acknowledgements-send-total`` is ``kafka_share_consumer_acknowledgements_send_total``.
    Labels are ``client_id``, ``group_id``, ``topic``, ``partition``. Histograms are
    ``kafka_share_consumer_poll_interval_seconds`` and ``kafka_share_consumer_request_seconds``
    (with the label ``api``: ``ShareFetch`` or ``ShareAcknowledge``).

    Args:
        registry: the registry; the library's global one by default.
        topics: add metrics by topic.
        partitions: add metrics by partition.
    """

    def __init__(
        self,
        registry: CollectorRegistry = REGISTRY,
        *,
        topics: bool = True,
        partitions: bool = True,
    ) -> None:
        self._registration = Registration(registry, _KIND)
        self._topics = topics
        self._partitions = partitions

    def on_start(self, consumer: ObservedConsumer) -> None:
        self._registration.start(
            (consumer.client_id, consumer.group_id or ""),
            partial(reader_samples, "share-consumer", consumer, self._topics, self._partitions),
        )

    def on_request(self, event: RequestDone) -> None:
        self._registration.observe("request_seconds", event.latency_s, event.api)

    def on_poll(self, interval_s: float) -> None:
        self._registration.observe("poll_interval_seconds", interval_s)

    def close(self) -> None:
        self._registration.close()


def _example() -> Iterable[Samples]:
    example = ShareConsumerMetrics()
    example.data_came("", 0, 0.0)
    gauges = ("assigned-partitions", "stalled-partitions", "records-buffered", "records-in-hand")
    yield Samples("share-consumer-metrics", {}, example.snapshot(0.0, dict.fromkeys(gauges, 0.0)))
    by_topic = example.snapshot_by_topic(0.0)[""]
    yield Samples("share-consumer-topic-metrics", {"topic": ""}, by_topic)
    values = dict.fromkeys(("records-buffered", "stalled"), 0.0)
    yield Samples("share-consumer-partition-metrics", {"topic": "", "partition": ""}, values)


_KIND = ClientKind(
    "kafka_share_consumer",
    ("client_id", "group_id"),
    (
        HistogramKind(
            "request_seconds", "From sending a request to its reply or timeout", labels=("api",)
        ),
        HistogramKind("poll_interval_seconds", "Between two polls of the application"),
    ),
    _example,
)
