"""The metrics of a consumer, updated once per response and per list of records, not per record."""

from __future__ import annotations

from collections.abc import Mapping

from aioprod.metrics.windows import ConsumedTopicSample, ConsumerSample, Windows


class ConsumerMetrics:
    """Totals, and rates and averages over the last windows, named as in Kafka's
    ``consumer-fetch-manager-metrics``.

    Times are seconds of a monotonic clock. Snapshots always have all keys; an average or maximum of
    no values is 0.0, not NaN.

    Args:
        window_ms: length of a window (``metrics.sample.window.ms``).
        samples: number of windows (``metrics.num.samples``).
    """

    def __init__(self, window_ms: float = 30_000, samples: int = 2) -> None:
        self._window_s = window_ms / 1000
        self._samples = samples
        self._consumer = Windows(ConsumerSample, self._window_s, samples)
        self._topics: dict[str, Windows[ConsumedTopicSample]] = {}

    # -- events --

    def fetched(self, latency_s: float, now: float) -> None:
        """Record the response to a Fetch."""
        sample = self._sample(now)
        sample.fetches += 1
        sample.latency_s += latency_s
        sample.latency_s_max = max(sample.latency_s_max, latency_s)

    def data_came(self, topic: str, size: int, now: float) -> None:
        """Record the bytes of a partition in a response."""
        sample = self._sample(now)
        sample.fetched_bytes += size
        sample.fetched_bytes_max = max(sample.fetched_bytes_max, size)
        self._topic(topic, now).fetched_bytes += size

    def handed_out(self, topic: str, records: int, now: float) -> None:
        """Record that the application got records of a topic."""
        self._sample(now).records += records
        self._topic(topic, now).records += records

    def waited(self, seconds: float, now: float) -> None:
        """Record that a call waited for records."""
        sample = self._sample(now)
        sample.polls += 1
        sample.poll_wait_s += seconds

    def keep_topics(self, topics: frozenset[str]) -> None:
        """Drop the metrics of all other topics."""
        for topic in self._topics.keys() - topics:
            del self._topics[topic]

    def _sample(self, now: float) -> ConsumerSample:
        windows = self._consumer
        return windows.current if now < windows.ends_at else windows.turn(now)

    def _topic(self, topic: str, now: float) -> ConsumedTopicSample:
        windows = self._topics.get(topic)
        if windows is None:
            windows = self._topics[topic] = Windows(
                ConsumedTopicSample, self._window_s, self._samples
            )
        return windows.current if now < windows.ends_at else windows.turn(now)

    # -- snapshots --

    def snapshot(self, now: float, gauges: Mapping[str, float]) -> dict[str, float]:
        """Return all metrics.

        Args:
            now: the current time.
            gauges: current values of the consumer to include.
        """
        total, recent, elapsed = self._consumer.read(now)
        return {
            "records-consumed-total": float(total.records),
            "records-consumed-rate": recent.records / elapsed,
            "bytes-consumed-total": float(total.fetched_bytes),
            "bytes-consumed-rate": recent.fetched_bytes / elapsed,
            "fetch-total": float(total.fetches),
            "fetch-rate": recent.fetches / elapsed,
            "fetch-size-avg": _mean(recent.fetched_bytes, recent.fetches),
            "fetch-size-max": float(recent.fetched_bytes_max),
            "fetch-latency-avg": _mean(recent.latency_s * 1000, recent.fetches),
            "fetch-latency-max": recent.latency_s_max * 1000,
            "records-per-request-avg": _mean(recent.records, recent.fetches),
            "poll-total": float(total.polls),
            "poll-wait-time-ns-total": total.poll_wait_s * 1e9,
            **gauges,
        }

    def snapshot_by_topic(self, now: float) -> dict[str, dict[str, float]]:
        """Return the metrics of each topic."""
        found = {}
        for topic, windows in self._topics.copy().items():
            total, recent, elapsed = windows.read(now)
            found[topic] = {
                "records-consumed-total": float(total.records),
                "records-consumed-rate": recent.records / elapsed,
                "bytes-consumed-total": float(total.fetched_bytes),
                "bytes-consumed-rate": recent.fetched_bytes / elapsed,
            }
        return found


def _mean(total: float, count: int) -> float:
    return total / count if count else 0.0
