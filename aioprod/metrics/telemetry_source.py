"""The metrics of a client, for pushes to brokers (KIP-714). Every client imports this; the metrics'
names are in :mod:`aioprod.metrics.telemetry`, which is imported for the first push.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioprod.metrics.telemetry import MetricValue, Selection


class TelemetrySource:
    """The metrics of a client.

    Attributes:
        labels: returns labels that identify the client.
        metrics: returns the selected metrics, the most important first.
    """

    __slots__ = ("labels", "metrics")

    def __init__(
        self,
        labels: Callable[[], Mapping[str, str]],
        metrics: Callable[[Selection], Iterable[MetricValue]],
    ) -> None:
        self.labels: Callable[[], Mapping[str, str]] = labels
        self.metrics: Callable[[Selection], Iterable[MetricValue]] = metrics
