"""Collects the metrics of all clients of a kind that are registered with a registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

SECONDS = (
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


class Samples(NamedTuple):
    """The values of one group of metrics.

    Attributes:
        group: Kafka's name of the group, such as ``producer-topic-metrics``.
        labels: labels of these values, in addition to those of the client.
        values: the values by Kafka's names.
    """

    group: str
    labels: Mapping[str, str]
    values: Mapping[str, float]


Read = Callable[[], Iterable[Samples]]


class HistogramKind(NamedTuple):
    """A histogram with one value per event.

    Attributes:
        name: without the prefix.
        meaning: the meaning of its values.
        buckets: the upper bounds.
        labels: besides those of the client.
    """

    name: str
    meaning: str
    buckets: Sequence[float] = SECONDS
    labels: tuple[str, ...] = ()


class ClientKind(NamedTuple):
    """The common metrics of all clients of a kind.

    Attributes:
        prefix: prefix of all names.
        labels: labels of each client; the first one is made unique.
        histograms: its histograms.
        example: all groups that a client may have, with any values: so a scrape may ask for names.
    """

    prefix: str
    labels: tuple[str, ...]
    histograms: tuple[HistogramKind, ...]
    example: Read


class Clients(Collector):
    """All clients of a kind in a registry: a metric must come with the samples of all of them."""

    def __init__(self, kind: ClientKind) -> None:
        self._kind = kind
        self._clients: dict[tuple[str, ...], Read] = {}
        self.histograms: dict[str, Histogram] = {
            each.name: Histogram(
                f"{kind.prefix}_{each.name}",
                each.meaning,
                [*kind.labels, *each.labels],
                buckets=each.buckets,
                registry=None,
            )
            for each in kind.histograms
        }

    def __bool__(self) -> bool:
        return bool(self._clients)

    def add(self, labels: tuple[str, ...], read: Read) -> tuple[str, ...]:
        """Add a client; return its labels; the first one is made unique."""
        first, number = labels[0], 1
        taken = {each[0] for each in self._clients}
        while first in taken:
            number += 1
            first = f"{labels[0]}-{number}"
        labels = (first, *labels[1:])
        self._clients[labels] = read
        return labels

    def remove(self, labels: tuple[str, ...]) -> None:
        """Remove a client."""
        del self._clients[labels]

    def collect(self) -> Iterable[Metric]:
        # A scrape may come from another thread.
        return self._families(self._clients.copy())

    def describe(self) -> Iterable[Metric]:
        unnamed = ("",) * len(self._kind.labels)
        return self._families({**self._clients, unnamed: self._kind.example})

    def _families(self, clients: Mapping[tuple[str, ...], Read]) -> Iterable[Metric]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for labels, read in clients.items():
            for samples in read():
                self._add(families, labels, samples)
        yield from families.values()
        for histogram in self.histograms.values():
            yield from histogram.collect()

    def _add(
        self,
        families: dict[str, CounterMetricFamily | GaugeMetricFamily],
        labels: tuple[str, ...],
        samples: Samples,
    ) -> None:
        prefix = samples.group.replace("-", "_").removesuffix("metrics")
        for name, value in samples.values.items():
            full_name = f"kafka_{prefix}{name.replace('-', '_')}"
            family = families.get(full_name)
            if family is None:
                kind = CounterMetricFamily if name.endswith("-total") else GaugeMetricFamily
                family = families[full_name] = kind(
                    full_name,
                    f"{name} of the group {samples.group}",
                    labels=[*self._kind.labels, *samples.labels],
                )
            family.add_metric([*labels, *samples.labels.values()], value)


_BY_REGISTRY: WeakKeyDictionary[CollectorRegistry, dict[str, Clients]] = WeakKeyDictionary()


class Registration:
    """One client in a registry, from its start until it closes.

    Args:
        registry: the registry.
        kind: the kind of client.
    """

    def __init__(self, registry: CollectorRegistry, kind: ClientKind) -> None:
        self._registry = registry
        self._kind = kind
        self._clients: Clients | None = None
        self._labels: tuple[str, ...] = ()
        self._children: dict[tuple[str, ...], Histogram] = {}

    def start(self, labels: tuple[str, ...], read: Read) -> None:
        """Register the client. ``read`` must not refer to the registry, or would keep it alive.

        Raises:
            ValueError: if another client was registered, or the registry has one of the names.
        """
        if self._clients is not None:
            raise ValueError("an observer of Prometheus observes one client: make one for each")
        kinds = _BY_REGISTRY.get(self._registry, {})
        clients = kinds.get(self._kind.prefix) or Clients(self._kind)
        self._labels = clients.add(labels, read)
        for each in self._kind.histograms:
            if not each.labels:
                self._child(clients, each.name)
        if self._kind.prefix not in kinds:
            self._registry.register(clients)  # raises if one of the names is registered already
            _BY_REGISTRY.setdefault(self._registry, {})[self._kind.prefix] = clients
        self._clients = clients

    def observe(self, histogram: str, value: float, *labels: str) -> None:
        """Add a value to a histogram; nothing happens while the client is not registered."""
        if self._clients is not None:
            child = self._children.get((histogram, *labels))
            if child is None:
                child = self._child(self._clients, histogram, *labels)
            child.observe(value)

    def close(self) -> None:
        """Remove the client and its series."""
        clients, self._clients = self._clients, None
        if clients is None:
            return
        clients.remove(self._labels)
        for name, *labels in self._children:
            clients.histograms[name].remove(*self._labels, *labels)
        self._children.clear()
        if not clients:
            kinds = _BY_REGISTRY[self._registry]
            del kinds[self._kind.prefix]
            if not kinds:
                del _BY_REGISTRY[self._registry]
            self._registry.unregister(clients)

    def _child(self, clients: Clients, histogram: str, *labels: str) -> Histogram:
        child = clients.histograms[histogram].labels(*self._labels, *labels)
        self._children[histogram, *labels] = child
        return child
