"""What a consumer counts about itself: once per answer and per stretch of records, never once per
record.
"""

from __future__ import annotations

from collections.abc import Mapping

from aioprod.metrics.windows import ConsumedTopicSample, ConsumerSample, Windows


class ConsumerMetrics:
    """A consumer's counts, and rates over the last windows, under the names of Kafka's
    ``consumer-fetch-manager-metrics``.

    Time is passed in: seconds of a monotonic clock. Nothing is ever NaN: an average or maximum of
        nothing is 0.0, and all keys are always there.

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
        """A Fetch was answered."""
        sample = self._sample(now)
        sample.fetches += 1
        sample.latency_s += latency_s
        sample.latency_s_max = max(sample.latency_s_max, latency_s)

    def data_came(self, topic: str, size: int, now: float) -> None:
        """An answer brought so many bytes of one partition."""
        sample = self._sample(now)
        sample.fetched_bytes += size
        sample.fetched_bytes_max = max(sample.fetched_bytes_max, size)
        self._topic(topic, now).fetched_bytes += size

    def handed_out(self, topic: str, records: int, now: float) -> None:
        """The application got so many records of one topic."""
        self._sample(now).records += records
        self._topic(topic, now).records += records

    def waited(self, seconds: float, now: float) -> None:
        """A call waited for records."""
        sample = self._sample(now)
        sample.polls += 1
        sample.poll_wait_s += seconds

    def keep_topics(self, topics: frozenset[str]) -> None:
        """Forget the topics that are no longer read."""
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
        """All figures; ``gauges`` are values of this moment, which the consumer knows, and are
        taken over as they are.
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
        """The same by topic."""
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
