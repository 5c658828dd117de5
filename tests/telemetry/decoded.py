"""Pushed metrics, as OpenTelemetry's own classes read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    AGGREGATION_TEMPORALITY_DELTA,
    MetricsData,
)

Labels = frozenset[tuple[str, str]]


class Value(NamedTuple):
    """A value of a metric. The temporality is "delta" or "cumulative"; "" for a gauge."""

    name: str
    labels: Labels
    value: float
    temporality: str
    start_ns: int
    time_ns: int


class Push(NamedTuple):
    """The labels of the client, and the values."""

    labels: dict[str, str]
    values: list[Value]

    def value(self, name: str, **labels: str) -> float:
        """Return the one value with these labels."""
        (found,) = [
            each.value
            for each in self.values
            if (each.name, each.labels) == (name, frozenset(labels.items()))
        ]
        return found


def decode(data: bytes) -> Push:
    labels: dict[str, str] = {}
    values: list[Value] = []
    for resource in MetricsData.FromString(data).resource_metrics:
        labels |= dict(_labels(resource.resource.attributes))
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                assert kind in ("sum", "gauge"), (metric.name, kind)
                points, temporality = metric.gauge.data_points, ""
                if kind == "sum":
                    assert metric.sum.is_monotonic, metric.name
                    points = metric.sum.data_points
                    temporality = {
                        AGGREGATION_TEMPORALITY_DELTA: "delta",
                        AGGREGATION_TEMPORALITY_CUMULATIVE: "cumulative",
                    }[metric.sum.aggregation_temporality]
                for point in points:
                    value = (
                        point.as_double
                        if point.WhichOneof("value") == "as_double"
                        else float(point.as_int)
                    )
                    values.append(
                        Value(
                            metric.name,
                            frozenset(_labels(point.attributes)),
                            value,
                            temporality,
                            point.start_time_unix_nano,
                            point.time_unix_nano,
                        )
                    )
    return Push(labels, values)


def _labels(attributes: Iterable[KeyValue]) -> Iterator[tuple[str, str]]:
    for each in attributes:
        assert each.value.WhichOneof("value") == "string_value"
        yield each.key, each.value.string_value


def sums(pushes: Iterable[Push]) -> Counter[tuple[str, Labels]]:
    """Add up the deltas, which must follow one another without a gap or an overlap."""
    total: Counter[tuple[str, Labels]] = Counter()
    ended: dict[tuple[str, Labels], int] = {}
    for push in pushes:
        for each in push.values:
            if each.temporality:
                assert each.temporality == "delta", each
                assert each.start_ns <= each.time_ns
                key = each.name, each.labels
                assert ended.get(key, each.start_ns) == each.start_ns, key
                ended[key] = each.time_ns
                total[key] += each.value  # type: ignore[assignment]
    return total
