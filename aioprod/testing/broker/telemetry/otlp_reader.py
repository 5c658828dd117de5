"""Reads the metrics of a push: ``MetricsData`` of OpenTelemetry in Protobuf."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from aioprod.errors import CorruptRecordError
from aioprod.public_module import set_module
from aioprod.varints import read_uvarint

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5  # wire types of Protobuf
_DELTA = 1  # AggregationTemporality
_GAUGE, _SUM = 5, 7  # fields of a Metric
_AS_DOUBLE, _AS_INT = 4, 6  # fields of a NumberDataPoint

_Fields = dict[int, list[int | bytes]]


@set_module("aioprod.testing")
class PushedMetric(NamedTuple):
    """A value that a client has pushed (KIP-714).

    Attributes:
        name: the metric, such as ``org.apache.kafka.producer.record.send.total``.
        value: the value.
        labels: the labels, such as ``{"topic": "orders"}``.
        is_sum: True for a sum, False for a gauge.
        is_delta: True if a sum counts only since ``start_ns``, False if since the client's start.
        start_ns, time_ns: the beginning of a sum, and the time of the value, in nanoseconds since
            1970.
    """

    name: str
    value: float
    labels: dict[str, str]
    is_sum: bool
    is_delta: bool
    start_ns: int
    time_ns: int


def read_metrics(data: bytes) -> tuple[dict[str, str], list[PushedMetric]]:
    """Return the labels of the client and the values of its metrics.

    Raises:
        ValueError: if the data is invalid.
    """
    labels: dict[str, str] = {}
    metrics: list[PushedMetric] = []
    try:
        for resource_metrics in _messages(_fields(data), 1):
            for resource in _messages(resource_metrics, 1):
                labels |= _labels(resource, 1)
            for scope_metrics in _messages(resource_metrics, 2):
                for metric in _messages(scope_metrics, 2):
                    metrics += _values(metric)
    except (LookupError, CorruptRecordError, struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"not a MetricsData: {error!r}") from error
    return labels, metrics


def _values(metric: _Fields) -> Iterator[PushedMetric]:
    name = _text(metric, 1)
    for kind in (_GAUGE, _SUM):
        for data in _messages(metric, kind):
            is_delta = data[2][-1] == _DELTA if kind == _SUM else False
            for point in _messages(data, 1):
                yield PushedMetric(
                    name,
                    _number(point),
                    _labels(point, 7),
                    kind == _SUM,
                    is_delta,
                    _integer(point, 2),
                    _integer(point, 3),
                )


def _number(point: _Fields) -> float:
    if _AS_DOUBLE in point:
        value: float = struct.unpack("<d", _content(point[_AS_DOUBLE][-1]))[0]
        return value
    return float(struct.unpack("<q", _content(point[_AS_INT][-1]))[0])


def _integer(fields: _Fields, number: int) -> int:
    return int.from_bytes(_content(fields[number][-1]), "little") if number in fields else 0


def _labels(fields: _Fields, number: int) -> dict[str, str]:
    return {
        _text(pair, 1): _text(next(_messages(pair, 2), {}), 1) for pair in _messages(fields, number)
    }


def _text(fields: _Fields, number: int) -> str:
    return _content(fields[number][-1]).decode() if number in fields else ""


def _messages(fields: _Fields, number: int) -> Iterator[_Fields]:
    for content in fields.get(number, ()):
        yield _fields(_content(content))


def _content(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("expected bytes, not a number")
    return value


def _fields(data: bytes) -> _Fields:
    """Return the values of each field of a message."""
    found: _Fields = defaultdict(list)
    position = 0
    while position < len(data):
        tag, position = read_uvarint(data, position, 64)
        wire_type = tag & 7
        if wire_type == _VARINT:
            value, position = read_uvarint(data, position, 64)
            found[tag >> 3].append(value)
            continue
        if wire_type == _LENGTH:
            length, position = read_uvarint(data, position, 64)
        elif wire_type in (_FIXED64, _FIXED32):
            length = 8 if wire_type == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire_type}")
        if position + length > len(data):
            raise ValueError("the data ends within a field")
        found[tag >> 3].append(data[position : position + length])
        position += length
    return dict(found)
