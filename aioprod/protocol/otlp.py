"""Encodes the OpenTelemetry metrics that clients push to brokers (KIP-714): ``MetricsData`` of
``opentelemetry.proto.metrics.v1`` in Protobuf.

Supports sums and gauges of doubles with text labels.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from aioprod.varints import encode_uvarint

Labels = tuple[tuple[str, str], ...]

_DELTA, _CUMULATIVE = 1, 2  # AggregationTemporality
_VARINT, _LENGTH = 0, 2  # wire types of Protobuf
# The fields of a NumberDataPoint. Its numbers have a fixed length, and their tags one byte each.
_SUM_POINT = struct.Struct("<BQBQBd")
_GAUGE_POINT = struct.Struct("<BQBd")
_START, _TIME, _AS_DOUBLE = 0x11, 0x19, 0x21


class Point(NamedTuple):
    """A value of a metric.

    Attributes:
        name: the metric's name, such as ``org.apache.kafka.producer.record.send.total``.
        value: the value.
        labels: pairs of name and value.
        start_ns: start of the interval of a sum, in nanoseconds since 1970; None for a gauge.
    """

    name: str
    value: float
    labels: Labels
    start_ns: int | None


class MetricsEncoder:
    """Encodes points; consecutive points of the same metric are grouped.

    Args:
        resource: labels of the client.
        scope: name and version of the library.
        time_ns: the time of all points, in nanoseconds since 1970.
        delta: True if sums count since the last push instead of the client's start.
    """

    def __init__(
        self, resource: Mapping[str, str], scope: tuple[str, str], time_ns: int, *, delta: bool
    ) -> None:
        self._resource = _field(1, b"".join(_field(1, _pair(*each)) for each in resource.items()))
        self._scope = _field(1, _field(1, scope[0].encode()) + _field(2, scope[1].encode()))
        self._time_ns = time_ns
        # aggregation_temporality, and is_monotonic
        self._of_sum = bytes((2 << 3 | _VARINT, _DELTA if delta else _CUMULATIVE, 3 << 3, 1))
        self._metrics: list[bytes] = []
        self._points: list[bytes] = []
        self._of: tuple[str, bool] | None = None
        self._labels: dict[Labels, bytes] = {}
        self.size: int = len(self._resource) + len(self._scope)

    def add(self, point: Point) -> None:
        """Add a point. ``size`` grows by about its encoded size."""
        is_sum = point.start_ns is not None
        of = point.name, is_sum
        if of != self._of:
            self._end_metric()
            self._of = of
            self.size += len(point.name) + 16
        if point.start_ns is not None:
            numbers = _SUM_POINT.pack(
                _START, point.start_ns, _TIME, self._time_ns, _AS_DOUBLE, point.value
            )
        else:
            numbers = _GAUGE_POINT.pack(_TIME, self._time_ns, _AS_DOUBLE, point.value)
        labels = self._labels.get(point.labels)
        if labels is None:
            labels = b"".join(_field(7, _pair(*each)) for each in point.labels)
            self._labels[point.labels] = labels
        data = _field(1, numbers + labels)
        self._points.append(data)
        self.size += len(data)

    def encoded(self) -> bytes:
        """Return the MetricsData with all points."""
        self._end_metric()
        scope_metrics = _field(2, self._scope + b"".join(self._metrics))
        return _field(1, self._resource + scope_metrics)

    def _end_metric(self) -> None:
        if self._of is None:
            return
        name, is_sum = self._of
        points = b"".join(self._points)
        data = _field(7, points + self._of_sum) if is_sum else _field(5, points)
        self._metrics.append(_field(2, _field(1, name.encode()) + data))
        self._points.clear()
        self._of = None


def _field(number: int, content: bytes) -> bytes:
    """Encode a field of text, bytes or a message."""
    return bytes((number << 3 | _LENGTH,)) + encode_uvarint(len(content)) + content


def _pair(key: str, value: str) -> bytes:
    return _field(1, key.encode()) + _field(2, _field(1, value.encode()))
