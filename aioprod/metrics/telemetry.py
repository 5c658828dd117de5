"""What clients push to brokers (KIP-714): their metrics under the names of Java's clients, and how
much of each sum the brokers have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from aioprod.metrics.consumer_observers import ObservedConsumer
from aioprod.metrics.producer_observers import ObservedProducer

Labels = tuple[tuple[str, str], ...]

_ROOT = "org.apache.kafka."
_ALL = "*"

# Metrics that Java's producer does not have: their names are not ours to give.
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
# The groups of Java's consumer, each with its metrics.
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


class Figure(NamedTuple):
    """A metric at one moment.

    Attributes:
        name: as in KIP-714, such as ``org.apache.kafka.producer.record.send.total``.
        value: the value; of a sum, since the client was created.
        labels: pairs of name and value.
    """

    name: str
    value: float
    labels: Labels = ()

    @property
    def is_sum(self) -> bool:
        """Whether the value only grows."""
        return self.name.endswith(".total")


class Selection(NamedTuple):
    """The metrics that a subscription asks for.

    Attributes:
        prefixes: a metric is selected if its name begins with one of them; ``"*"``, as brokers
            write it, and ``""``, as in the KIP, select all.
    """

    prefixes: tuple[str, ...]

    def has(self, name: str) -> bool:
        """Return whether a metric is selected."""
        return _ALL in self.prefixes or name.startswith(self.prefixes)

    def may_have(self, group: str) -> bool:
        """Return whether metrics whose names begin with ``group`` may be selected."""
        return self.has(group) or any(prefix.startswith(group) for prefix in self.prefixes)


class TelemetrySource(NamedTuple):
    """What a client has to push.

    Attributes:
        labels: returns what identifies the client to those who read the metrics.
        figures: returns the selected metrics; those that matter most come first.
    """

    labels: Callable[[], Mapping[str, str]]
    figures: Callable[[Selection], Iterable[Figure]]


def producer_figures(producer: ObservedProducer, wanted: Selection) -> Iterator[Figure]:
    """Return the selected metrics of a producer: its own, by broker, by topic."""
    group = f"{_ROOT}producer."
    if wanted.may_have(group):
        yield from _selected(group, producer.metrics(), wanted)
    by_node, by_topic = f"{group}node.", f"{group}topic."
    if wanted.may_have(by_node):
        for node, values in producer.metrics_by_node().items():
            yield from _selected(by_node, values, wanted, _of_node(node))
    if wanted.may_have(by_topic):
        for topic, values in producer.metrics_by_topic().items():
            yield from _selected(by_topic, values, wanted, (("topic", topic),))


def consumer_figures(consumer: ObservedConsumer, wanted: Selection) -> Iterator[Figure]:
    """Return the selected metrics of a consumer: its own, by broker, topic and partition."""
    if not wanted.may_have(f"{_ROOT}consumer."):
        return
    yield from _grouped(consumer.metrics(), wanted)
    by_node = f"{_ROOT}consumer.node."
    if wanted.may_have(by_node):
        for node, values in consumer.metrics_by_node().items():
            yield from _selected(by_node, values, wanted, _of_node(node))
    if wanted.may_have(f"{_ROOT}consumer.fetch.manager."):
        for topic, values in consumer.metrics_by_topic().items():
            yield from _grouped(values, wanted, (("topic", topic),))
        for tp, values in consumer.metrics_by_partition().items():
            labels = (("topic", tp.topic), ("partition", str(tp.partition)))
            yield from _grouped(values, wanted, labels)


def admin_figures(values: Mapping[str, float], wanted: Selection) -> Iterator[Figure]:
    """Return the selected metrics of an admin client, whose values are by Kafka's names."""
    yield from _selected(f"{_ROOT}admin.client.", values, wanted)


def _of_node(node: int) -> Labels:
    return (("node_id", f"node-{node}"),)  # as Java writes it


def _selected(
    group: str, values: Mapping[str, float], wanted: Selection, labels: Labels = ()
) -> Iterator[Figure]:
    for key, value in values.items():
        name = group + key.replace("-", ".")
        if name.removeprefix(_ROOT) not in _NOT_KAFKAS and wanted.has(name):
            yield Figure(name, value, labels)


def _grouped(
    values: Mapping[str, float], wanted: Selection, labels: Labels = ()
) -> Iterator[Figure]:
    for group, keys in _CONSUMER_GROUPS.items():
        for key, value in values.items():
            name = f"{_ROOT}{group}.{key.replace('-', '.')}"
            if key in keys and wanted.has(name):
                yield Figure(name, value, labels)


class Counted(NamedTuple):
    """A figure, and the part of it that a push reports.

    Attributes:
        figure: the figure.
        value: the value to report.
        start_ns: of a sum, since when the value counts, in nanoseconds since 1970; else None.
    """

    figure: Figure
    value: float
    start_ns: int | None


class _Known(NamedTuple):
    value: float
    at_ns: int


class Ledger:
    """Remembers how much of each sum a broker has acknowledged, so that a push that failed is part
    of the next one.

    Args:
        began_ns: when the client was created, in nanoseconds since 1970.
    """

    def __init__(self, began_ns: int) -> None:
        self._began = _Known(0.0, began_ns)
        self._known: dict[tuple[str, Labels], _Known] = {}

    def count(self, figures: Iterable[Figure], *, delta: bool) -> list[Counted]:
        """Return what to report of each figure.

        Args:
            delta: report of sums what was added since the last acknowledged push, instead of all
                since the beginning.
        """
        return [self._count(figure, delta) for figure in figures]

    def _count(self, figure: Figure, delta: bool) -> Counted:
        if not figure.is_sum:
            return Counted(figure, figure.value, None)
        known = self._known.get((figure.name, figure.labels), self._began)
        if figure.value < known.value:
            # The metrics of an idle topic or broker were dropped, and begin at 0 again.
            return Counted(figure, figure.value, known.at_ns)
        if delta:
            return Counted(figure, figure.value - known.value, known.at_ns)
        return Counted(figure, figure.value, self._began.at_ns)

    def acknowledged(self, figures: Iterable[Figure], time_ns: int) -> None:
        """Note that a broker has these figures, of this time."""
        for figure in figures:
            if figure.is_sum:
                self._known[figure.name, figure.labels] = _Known(figure.value, time_ns)

    def keep(self, present: Iterable[Figure], wanted: Selection) -> None:
        """Forget the selected sums that the client does not have any more."""
        keys = {(figure.name, figure.labels) for figure in present if figure.is_sum}
        if len(keys) < len(self._known):
            self._known = {
                key: known
                for key, known in self._known.items()
                if key in keys or not wanted.has(key[0])
            }
