"""The metrics of a share consumer."""

from __future__ import annotations

from collections.abc import Mapping

from aioprod.metrics.reading import ReadingMetrics, mean, since
from aioprod.metrics.windows import ShareConsumerSample
from aioprod.types import AcknowledgeType

_S_PER_HOUR = 3_600.0


class ShareConsumerMetrics(ReadingMetrics[ShareConsumerSample]):
    """Metrics named as in Kafka's groups ``consumer-share-metrics``,
    ``consumer-share-fetch-manager-metrics`` and ``consumer-share-coordinator-metrics``, and those
    of connections in ``consumer-metrics``.

    Args:
        window_ms: length of a window (``metrics.sample.window.ms``).
        samples: number of windows (``metrics.num.samples``).
    """

    def __init__(self, window_ms: float = 30_000, samples: int = 2) -> None:
        super().__init__(ShareConsumerSample, window_ms, samples)
        self._beat_at: float | None = None

    # -- events --

    def response_came(self, size: int, records: int, throttle_ms: int, now: float) -> None:
        """Record the contents of a ShareFetch response, summed over its partitions.

        Args:
            size: size of the records in bytes.
            records: number of acquired records.
            throttle_ms: how long the broker asks the client to wait (KIP-219).
        """
        sample = self._sample(now)
        sample.fetched_bytes_max = max(sample.fetched_bytes_max, size)
        sample.fetched_records += records
        sample.fetched_records_max = max(sample.fetched_records_max, records)
        sample.throttle_ms += throttle_ms
        sample.throttle_ms_max = max(sample.throttle_ms_max, throttle_ms)

    def acknowledgements_sent(self, records: int, now: float) -> None:
        """Record the acknowledgements in a request; a retry counts again."""
        self._sample(now).acknowledgements += records

    def acknowledged(
        self, numbers: Mapping[AcknowledgeType, int], failed: bool, now: float
    ) -> None:
        """Record confirmed or failed acknowledgements, by type."""
        sample = self._sample(now)
        if failed:
            sample.acknowledgements_failed += sum(numbers.values())
            return
        sample.accepted += numbers.get(AcknowledgeType.ACCEPT, 0)
        sample.released += numbers.get(AcknowledgeType.RELEASE, 0)
        sample.rejected += numbers.get(AcknowledgeType.REJECT, 0)
        sample.renewed += numbers.get(AcknowledgeType.RENEW, 0)

    def heartbeat_sent(self, now: float) -> None:
        """Record a sent heartbeat."""
        self._beat_at = now

    def heartbeat_answered(self, latency_s: float, now: float) -> None:
        """Record the response to a heartbeat."""
        sample = self._sample(now)
        sample.heartbeats += 1
        sample.heartbeat_s_max = max(sample.heartbeat_s_max, latency_s)

    def rebalanced(self, now: float) -> None:
        """Record that the coordinator has assigned other partitions."""
        self._sample(now).rebalances += 1

    # -- snapshots --

    def snapshot(self, now: float, gauges: Mapping[str, float]) -> dict[str, float]:
        """Return all metrics.

        Args:
            now: the current time.
            gauges: current values of the share consumer to include.
        """
        total, recent, elapsed = self._own.read(now)
        return {
            **self._common(total, recent, elapsed, now),
            "records-per-request-avg": mean(recent.fetched_records, recent.fetches),
            "records-per-request-max": float(recent.fetched_records_max),
            "fetch-throttle-time-avg": mean(recent.throttle_ms, recent.fetches),
            "fetch-throttle-time-max": float(recent.throttle_ms_max),
            "acknowledgements-send-total": float(total.acknowledgements),
            "acknowledgements-send-rate": recent.acknowledgements / elapsed,
            "acknowledgements-error-total": float(total.acknowledgements_failed),
            "acknowledgements-error-rate": recent.acknowledgements_failed / elapsed,
            "acknowledgements-accept-total": float(total.accepted),
            "acknowledgements-release-total": float(total.released),
            "acknowledgements-reject-total": float(total.rejected),
            "acknowledgements-renew-total": float(total.renewed),
            "rebalance-rate-per-hour": recent.rebalances / elapsed * _S_PER_HOUR,
            "heartbeat-total": float(total.heartbeats),
            "heartbeat-rate": recent.heartbeats / elapsed,
            "heartbeat-response-time-max": recent.heartbeat_s_max * 1000,
            "last-heartbeat-seconds-ago": since(self._beat_at, now),
            **gauges,
        }
