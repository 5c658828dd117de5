"""The metrics of a consumer."""

from __future__ import annotations

from collections.abc import Mapping

from aioprod.metrics.reading import ReadingMetrics, mean, since
from aioprod.metrics.windows import ConsumerSample


class ConsumerMetrics(ReadingMetrics[ConsumerSample]):
    """Metrics named as in Kafka's groups ``consumer-metrics``, ``consumer-fetch-manager-metrics``
    and ``consumer-coordinator-metrics``.

    Args:
        window_ms: length of a window (``metrics.sample.window.ms``).
        samples: number of windows (``metrics.num.samples``).
    """

    def __init__(self, window_ms: float = 30_000, samples: int = 2) -> None:
        super().__init__(ConsumerSample, window_ms, samples)
        self._rebalanced_at: float | None = None

    # -- events --

    def data_came(self, topic: str, size: int, now: float) -> None:
        """Record the bytes of a partition in a response."""
        super().data_came(topic, size, now)
        sample = self._sample(now)
        sample.fetched_bytes_max = max(sample.fetched_bytes_max, size)

    def commit_done(self, latency_s: float, failed: bool, now: float) -> None:
        """Record a completed commit. Only successful commits count for the latency metrics."""
        sample = self._sample(now)
        if failed:
            sample.commits_failed += 1
            return
        sample.commits += 1
        sample.commit_s += latency_s
        sample.commit_s_max = max(sample.commit_s_max, latency_s)

    def rebalanced(self, latency_s: float, failed: bool, now: float) -> None:
        """Record the end of a rebalance."""
        sample = self._sample(now)
        if failed:
            sample.rebalances_failed += 1
            return
        self._rebalanced_at = now
        sample.rebalances += 1
        sample.rebalance_s += latency_s
        sample.rebalance_s_max = max(sample.rebalance_s_max, latency_s)

    def partitions_lost(self, partitions: int, now: float) -> None:
        """Record lost partitions, which other members may have got before they were revoked."""
        self._sample(now).partitions_lost += partitions

    # -- snapshots --

    def snapshot(self, now: float, gauges: Mapping[str, float]) -> dict[str, float]:
        """Return all metrics.

        Args:
            now: the current time.
            gauges: current values of the consumer to include.
        """
        total, recent, elapsed = self._own.read(now)
        return {
            **self._common(total, recent, elapsed, now),
            "records-per-request-avg": mean(recent.records, recent.fetches),
            "commit-total": float(total.commits),
            "commit-rate": recent.commits / elapsed,
            "commit-error-total": float(total.commits_failed),
            "commit-latency-avg": mean(recent.commit_s * 1000, recent.commits),
            "commit-latency-max": recent.commit_s_max * 1000,
            "failed-rebalance-total": float(total.rebalances_failed),
            "rebalance-latency-total": total.rebalance_s * 1000,
            "rebalance-latency-avg": mean(recent.rebalance_s * 1000, recent.rebalances),
            "rebalance-latency-max": recent.rebalance_s_max * 1000,
            "last-rebalance-seconds-ago": since(self._rebalanced_at, now),
            "partitions-lost-total": float(total.partitions_lost),
            **gauges,
        }
