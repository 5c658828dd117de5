"""Prometheus metrics of consumers."""

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
    CommitDone,
    ConsumerMetrics,
    ConsumerObserver,
    ObservedConsumer,
    RebalanceDone,
    RequestDone,
)


class PrometheusConsumerObserver(ConsumerObserver):
    """Registers its consumer at its start and removes it when it closes. Make a separate one for
    each consumer.

    Names are Kafka's with the prefix ``kafka_consumer_`` (``kafka_consumer_topic_`` and
    ``kafka_consumer_partition_`` for the metrics by topic and partition) and underscores for
    dashes: ``records-lag`` of a partition is ``kafka_consumer_partition_records_lag``. Labels are
    ``client_id``, ``group_id``, ``topic``, ``partition``. Histograms are
    ``kafka_consumer_poll_interval_seconds``, ``kafka_consumer_commit_seconds`` (with the label
    ``outcome``), ``kafka_consumer_rebalance_seconds`` and ``kafka_consumer_request_seconds``
    (fetches).

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
            partial(reader_samples, "consumer", consumer, self._topics, self._partitions),
        )

    def on_request(self, event: RequestDone) -> None:
        self._registration.observe("request_seconds", event.latency_s)

    def on_poll(self, interval_s: float) -> None:
        self._registration.observe("poll_interval_seconds", interval_s)

    def on_commit(self, event: CommitDone) -> None:
        outcome = "success" if event.error is None else "error"
        self._registration.observe("commit_seconds", event.latency_s, outcome)

    def on_rebalance(self, event: RebalanceDone) -> None:
        self._registration.observe("rebalance_seconds", event.latency_s)

    def close(self) -> None:
        self._registration.close()


def reader_samples(
    kind: str, consumer: ObservedConsumer, topics: bool, partitions: bool
) -> Iterable[Samples]:
    """Yield the metrics of a consumer or share consumer.

    Args:
        kind: begins the names of the groups.
        topics, partitions: whether to add those by topic, and by partition.
    """
    yield Samples(f"{kind}-metrics", {}, consumer.metrics())
    for topic, of_topic in consumer.metrics_by_topic().items() if topics else ():
        yield Samples(f"{kind}-topic-metrics", {"topic": topic}, of_topic)
    for tp, of_partition in consumer.metrics_by_partition().items() if partitions else ():
        labels = {"topic": tp.topic, "partition": str(tp.partition)}
        yield Samples(f"{kind}-partition-metrics", labels, of_partition)


def _example() -> Iterable[Samples]:
    example = ConsumerMetrics()
    example.data_came("", 0, 0.0)
    gauges = ("records-lag-max", "buffered-bytes", "assigned-partitions", "stalled-partitions")
    yield Samples("consumer-metrics", {}, example.snapshot(0.0, dict.fromkeys(gauges, 0.0)))
    yield Samples("consumer-topic-metrics", {"topic": ""}, example.snapshot_by_topic(0.0)[""])
    names = ("paused", "stalled", "records-lag", "records-lead")
    labels = {"topic": "", "partition": ""}
    yield Samples("consumer-partition-metrics", labels, dict.fromkeys(names, 0.0))


_KIND = ClientKind(
    "kafka_consumer",
    ("client_id", "group_id"),
    (
        HistogramKind("request_seconds", "From sending a fetch to its reply or timeout"),
        HistogramKind("poll_interval_seconds", "Between two polls of the application"),
        HistogramKind("commit_seconds", "From a commit to its outcome", labels=("outcome",)),
        HistogramKind("rebalance_seconds", "From the beginning of a rebalance to its end"),
    ),
    _example,
)
