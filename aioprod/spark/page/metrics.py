"""The page's numbers as Prometheus metrics. Requires the extra ``prometheus``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from aioprod.spark.page.history import ProgressHistory, QueryTotals, State

_PREFIX = "aioprod_pipeline_"

# Name, description, value. Totals are those of the current run, other values those of the newest
# micro-batch. None omits the sample.
_COUNTERS: tuple[tuple[str, str, Callable[[QueryTotals], float | None]], ...] = (
    ("batches_total", "Micro-batches", lambda query: query.batches),
    ("rows_total", "Records read", lambda query: query.rows),
    ("late_rows_total", "Rows dropped as later than the watermark", lambda query: query.late_rows),
    ("dead_letters_total", "Records that are not events", lambda query: query.dead_letters),
    ("bytes_total", "Size of the values read", lambda query: query.bytes_read),
)
_GAUGES: tuple[tuple[str, str, Callable[[QueryTotals], float | None]], ...] = (
    ("batch_rows", "Records of the newest micro-batch", lambda query: query.newest.rows),
    (
        "rows_per_second",
        "Rows of the newest micro-batch divided by its time",
        lambda query: query.newest.rows_per_second,
    ),
    (
        "batch_seconds",
        "Time of the newest micro-batch, planning and commits included",
        lambda query: query.newest.batch_ms / 1000,
    ),
    ("state_rows", "Rows in the state of all operators", lambda query: query.newest.state_rows),
    ("state_bytes", "Memory that the state uses", lambda query: query.newest.state_bytes),
    (
        "bytes_per_second",
        "Size of the values of the newest micro-batch divided by its time",
        lambda query: query.newest.bytes_per_second,
    ),
    (
        "partition_skew",
        "Records of the partition with the most in the newest micro-batch, divided by the mean",
        lambda query: query.newest.skew,
    ),
    (
        "watermark_delay_seconds",
        "Time from the watermark to the end of the newest micro-batch",
        lambda query: query.newest.watermark_delay_s,
    ),
    (
        "event_age_seconds",
        "Age of the newest event at the end of the newest micro-batch",
        lambda query: query.newest.event_age_s,
    ),
    (
        "last_report_timestamp_seconds",
        "When the newest micro-batch was reported, in seconds since 1970",
        lambda query: query.reported_at,
    ),
)


class PipelineCollector(Collector):
    """Reads the numbers at each scrape, in any thread."""

    def __init__(self, history: ProgressHistory) -> None:
        self._history = history

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics."""
        queries, present = self._history.totals(), self._history.state
        state = GaugeMetricFamily(
            f"{_PREFIX}state", "1 for the state of the run, 0 for the others", labels=["state"]
        )
        for name in get_args(State):
            state.add_metric([name], float(name == present))
        yield state
        for kind, rows in ((CounterMetricFamily, _COUNTERS), (GaugeMetricFamily, _GAUGES)):
            for name, meaning, read in rows:
                family = kind(f"{_PREFIX}{name}", meaning, labels=["query"])
                for query, totals in queries.items():
                    value = read(totals)
                    if value is not None:
                        family.add_metric([query], value)
                yield family
        yield _silences(self._history.silences())
        yield _phases(queries)
        yield _lags(queries)
        yield _task_skews(self._history.longest_stages(queries))


def _silences(silences: dict[str, float]) -> Metric:
    family = GaugeMetricFamily(
        f"{_PREFIX}silent_seconds",
        "Time since the last report of a running query: its start, a micro-batch, or idle",
        labels=["query"],
    )
    for query, silent in sorted(silences.items()):
        family.add_metric([query], silent)
    return family


def _phases(queries: dict[str, QueryTotals]) -> Metric:
    phases = GaugeMetricFamily(
        f"{_PREFIX}phase_seconds",
        "Time of a phase of the newest micro-batch, by Spark's names",
        labels=["query", "phase"],
    )
    for query, totals in queries.items():
        for phase, milliseconds in totals.newest.phases_ms.items():
            phases.add_metric([query, phase], milliseconds / 1000)
    return phases


def _lags(queries: dict[str, QueryTotals]) -> Metric:
    lags = GaugeMetricFamily(
        f"{_PREFIX}lag",
        "Records in the partition beyond the newest micro-batch",
        labels=["query", "topic", "partition"],
    )
    for query, totals in queries.items():
        for topic, partitions in (totals.newest.lag_by_partition or {}).items():
            for partition, lag in partitions.items():
                lags.add_metric([query, topic, partition], lag)
    return lags


def _task_skews(stages: Mapping[str, Mapping[str, Any] | None]) -> Metric:
    skews = GaugeMetricFamily(
        f"{_PREFIX}task_skew",
        "Time of the longest task in the longest stage of the newest micro-batch, divided by the "
        "mean",
        labels=["query"],
    )
    for query, stage in stages.items():
        if stage is not None and stage["longest"] and stage["mean_ms"]:
            skews.add_metric([query], stage["longest"][0]["ms"] / stage["mean_ms"])
    return skews


def scrape(history: ProgressHistory, accept: str) -> tuple[bytes, str]:
    """Return the metrics and their content type, in the format that the header ``Accept``
    requests.
    """
    registry = CollectorRegistry()
    registry.register(PipelineCollector(history))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type
