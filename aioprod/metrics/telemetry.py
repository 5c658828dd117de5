"""The metrics that clients push to brokers (KIP-714), with the names of Java's clients, and the
part of each sum that a broker has acknowledged.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aioprod.metrics.consumer_observers import ObservedConsumer

Labels = tuple[tuple[str, str], ...]
_Groups = Mapping[str, frozenset[str]]

_ROOT = "org.apache.kafka."
_ALL = "*"
_SUM = ".total"

MAX_KNOWN = 200_000
"""Largest number of sums whose acknowledged values are stored; clients have fewer."""

# Metrics without an equivalent in the Java producer: not pushed, as KIP-714 defines the names.
_NOT_KAFKAS = frozenset(
    (
        "producer.record.acknowledged.total",
        "producer.record.acknowledged.rate",
        "producer.topic.record.acknowledged.total",
        "producer.topic.record.acknowledged.rate",
        "producer.node.produce.throttle.time.avg",
        "producer.node.produce.throttle.time.max",
    )
)
# The groups of the Java consumer, each with its metrics.
_CONSUMER_GROUPS = {
    "consumer": frozenset(
        (
            "connection-creation-total",
            "connection-creation-rate",
            "connection-close-total",
            "time-between-poll-avg",
            "time-between-poll-max",
            "last-poll-seconds-ago",
            "poll-idle-ratio-avg",
        )
    ),
    "consumer.coordinator": frozenset(
        (
            "assigned-partitions",
            "commit-total",
            "commit-rate",
            "commit-latency-avg",
            "commit-latency-max",
            "rebalance-total",
            "failed-rebalance-total",
            "rebalance-latency-total",
            "rebalance-latency-avg",
            "rebalance-latency-max",
            "last-rebalance-seconds-ago",
        )
    ),
    "consumer.fetch.manager": frozenset(
        (
            "records-consumed-total",
            "records-consumed-rate",
            "bytes-consumed-total",
            "bytes-consumed-rate",
            "records-lag-max",
            "records-lag",
            "records-lead",
            "fetch-total",
            "fetch-rate",
            "fetch-size-avg",
            "fetch-size-max",
            "fetch-latency-avg",
            "fetch-latency-max",
            "records-per-request-avg",
        )
    ),
}


# The groups of the Java share consumer.
_SHARE_CONSUMER_GROUPS = {
    "consumer": frozenset(
        ("connection-creation-total", "connection-creation-rate", "connection-close-total")
    ),
    "consumer.share": frozenset(
        (
            "time-between-poll-avg",
            "time-between-poll-max",
            "last-poll-seconds-ago",
            "poll-idle-ratio-avg",
        )
    ),
    "consumer.share.coordinator": frozenset(
        (
            "rebalance-total",
            "rebalance-rate-per-hour",
            "heartbeat-total",
            "heartbeat-rate",
            "heartbeat-response-time-max",
            "last-heartbeat-seconds-ago",
        )
    ),
    "consumer.share.fetch.manager": frozenset(
        (
            "records-consumed-total",
            "records-consumed-rate",
            "bytes-consumed-total",
            "bytes-consumed-rate",
            "records-per-request-avg",
            "records-per-request-max",
            "fetch-total",
            "fetch-rate",
            "fetch-size-avg",
            "fetch-size-max",
            "fetch-latency-avg",
            "fetch-latency-max",
            "fetch-throttle-time-avg",
            "fetch-throttle-time-max",
            "acknowledgements-send-total",
            "acknowledgements-send-rate",
            "acknowledgements-error-total",
            "acknowledgements-error-rate",
        )
    ),
}


class MetricValue(NamedTuple):
    """A metric at one moment.

    Attributes:
        name: as in KIP-714, such as ``org.apache.kafka.producer.record.send.total``.
        value: the value; for a sum, the total since the client was created.
        labels: pairs of name and value.
    """

    name: str
    value: float
    labels: Labels = ()

    @property
    def is_sum(self) -> bool:
        """True if the value only grows."""
        return self.name.endswith(_SUM)


class Selection(NamedTuple):
    """The metrics that a subscription asks for.

    Attributes:
        prefixes: a metric is selected if its name begins with one of them. ``"*"`` (sent by
            brokers) and ``""`` (defined in the KIP) select all.
    """

    prefixes: tuple[str, ...]

    def has(self, name: str) -> bool:
        """Return whether a metric is selected."""
        return _ALL in self.prefixes or name.startswith(self.prefixes)

    def may_have(self, group: str) -> bool:
        """Return whether some metrics whose names begin with ``group`` may be selected."""
        return self.has(group) or any(prefix.startswith(group) for prefix in self.prefixes)


def producer_telemetry(
    wanted: Selection,
    own: Callable[[], Mapping[str, float]],
    by_node: Callable[[], Mapping[int, Mapping[str, float]]],
    by_topic: Callable[[], Iterable[tuple[str, Mapping[str, float]]]],
) -> Iterator[MetricValue]:
    """Yield the selected metrics of a producer: global ones, by broker, by topic. Those of a topic
    are computed when they are reached.
    """
    group, node_group, topic_group = (f"{_ROOT}producer.{kind}" for kind in ("", "node.", "topic."))
    if wanted.may_have(group):
        yield from _selected(group, own(), wanted)
    if wanted.may_have(node_group):
        for node, values in by_node().items():
            yield from _selected(node_group, values, wanted, _of_node(node))
    if wanted.may_have(topic_group):
        for topic, values in by_topic():
            yield from _selected(topic_group, values, wanted, (("topic", topic),))


def consumer_telemetry(consumer: "ObservedConsumer", wanted: Selection) -> Iterator[MetricValue]:
    """Return the selected metrics of a consumer: global ones, by broker, topic and partition."""
    yield from _of_reader(consumer, _CONSUMER_GROUPS, wanted)
    if wanted.may_have(f"{_ROOT}consumer.fetch.manager."):
        for topic, values in consumer.metrics_by_topic().items():
            yield from _grouped(_CONSUMER_GROUPS, values, wanted, (("topic", topic),))
        for tp, values in consumer.metrics_by_partition().items():
            labels = (("topic", tp.topic), ("partition", str(tp.partition)))
            yield from _grouped(_CONSUMER_GROUPS, values, wanted, labels)


def share_consumer_telemetry(
    consumer: "ObservedConsumer", wanted: Selection
) -> Iterator[MetricValue]:
    """Return the selected metrics of a share consumer: global ones, and by broker. That of Java has
    no metrics by topic.
    """
    yield from _of_reader(consumer, _SHARE_CONSUMER_GROUPS, wanted)


def _of_reader(
    consumer: "ObservedConsumer", groups: _Groups, wanted: Selection
) -> Iterator[MetricValue]:
    if not wanted.may_have(f"{_ROOT}consumer."):
        return
    yield from _grouped(groups, consumer.metrics(), wanted)
    by_node = f"{_ROOT}consumer.node."
    if wanted.may_have(by_node):
        for node, values in consumer.metrics_by_node().items():
            yield from _selected(by_node, values, wanted, _of_node(node))


def admin_telemetry(values: Mapping[str, float], wanted: Selection) -> Iterator[MetricValue]:
    """Return the selected metrics of an admin client, given its values by Kafka's names."""
    yield from _selected(f"{_ROOT}admin.client.", values, wanted)


def _of_node(node: int) -> Labels:
    return (("node_id", f"node-{node}"),)  # as Java writes it


def _selected(
    group: str, values: Mapping[str, float], wanted: Selection, labels: Labels = ()
) -> Iterator[MetricValue]:
    for key, value in values.items():
        name = group + key.replace("-", ".")
        if name.removeprefix(_ROOT) not in _NOT_KAFKAS and wanted.has(name):
            yield MetricValue(name, value, labels)


def _grouped(
    groups: _Groups, values: Mapping[str, float], wanted: Selection, labels: Labels = ()
) -> Iterator[MetricValue]:
    for group, keys in groups.items():
        for key, value in values.items():
            name = f"{_ROOT}{group}.{key.replace('-', '.')}"
            if key in keys and wanted.has(name):
                yield MetricValue(name, value, labels)


_Key = tuple[str, Labels]


class Ledger:
    """Stores the part of each sum that a broker has acknowledged, so that the next push includes
    what a failed push contained.

    Args:
        began_ns: when the client was created, in nanoseconds since 1970.
    """

    def __init__(self, began_ns: int) -> None:
        self._began_ns = began_ns
        # The acknowledged values, with the times at which they were measured.
        self._known: dict[_Key, tuple[float, int]] = {}

    def count(self, metric: MetricValue, *, delta: bool) -> tuple[float, int | None]:
        """Return the value to report for a metric, and the start of its interval in nanoseconds
        since 1970, which is None if the metric is not a sum.

        Args:
            delta: for a sum, report the increase since the last acknowledged push, instead of the
                total since the client was created.
        """
        if not metric.is_sum:
            return metric.value, None
        value, at_ns = self._known.get((metric.name, metric.labels), (0.0, self._began_ns))
        if metric.value < value:
            # The metrics of an idle topic or broker were dropped, and start at 0 again.
            return metric.value, at_ns
        if delta:
            return metric.value - value, at_ns
        return metric.value, self._began_ns

    def acknowledged(self, metrics: Iterable[MetricValue], time_ns: int) -> None:
        """Record that a broker has acknowledged these metrics, measured at this time."""
        self._known.update(
            {
                (name, labels): (value, time_ns)
                for name, value, labels in metrics
                if name.endswith(_SUM)
            }
        )

    def keep(self, present: Iterable[MetricValue], wanted: Selection) -> None:
        """Forget the selected sums that the client no longer has; ``present`` contains those that
        it has.
        """
        keys = {(name, labels) for name, _, labels in present if name.endswith(_SUM)}
        if len(keys) < len(self._known):
            self._known = {
                key: known
                for key, known in self._known.items()
                if key in keys or not wanted.has(key[0])
            }

    def trim(self) -> None:
        """Keep the ``MAX_KNOWN`` sums that were acknowledged last."""
        if len(self._known) > MAX_KNOWN:
            latest = sorted(self._known, key=lambda key: self._known[key][1])[-MAX_KNOWN:]
            self._known = {key: self._known[key] for key in latest}
