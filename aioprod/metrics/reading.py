"""The common metrics of consumers and share consumers. They are updated once per response and per
list of records, not per record.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from aioprod.metrics.windows import ConsumedTopicSample, FetchedNodeSample, ReadingSample, Windows

SampleT = TypeVar("SampleT", bound=ReadingSample)

IDLE_S = 3_600.0
"""Seconds after which the metrics of an unused broker are dropped."""


class ReadingMetrics(Generic[SampleT]):
    """Totals, and rates and averages over the last windows.

    Times are seconds of a monotonic clock. Snapshots always have all keys; an average or maximum of
    no values is 0.0, not NaN.

    Args:
        kind: the class of the counts of this kind of client.
        window_ms: length of a window (``metrics.sample.window.ms``).
        samples: number of windows (``metrics.num.samples``).
    """

    def __init__(self, kind: type[SampleT], window_ms: float, samples: int) -> None:
        self._window_s = window_ms / 1000
        self._samples = samples
        self._own = Windows(kind, self._window_s, samples)
        self._topics: dict[str, Windows[ConsumedTopicSample]] = {}
        self._nodes: dict[int, Windows[FetchedNodeSample]] = {}
        self._polled_at: float | None = None

    # -- events --

    def fetched(self, node_id: int, latency_s: float, now: float) -> None:
        """Record the response to a fetch."""
        for sample in (self._sample(now), self._node(node_id, now)):
            sample.fetches += 1
            sample.latency_s += latency_s
            if latency_s > sample.latency_s_max:
                sample.latency_s_max = latency_s

    def data_came(self, topic: str, size: int, now: float) -> None:
        """Record the bytes of a partition in a response."""
        self._sample(now).fetched_bytes += size
        self._topic(topic, now).fetched_bytes += size

    def records_returned(self, topic: str, records: int, now: float) -> None:
        """Record that records of a topic were returned to the application."""
        self._sample(now).records += records
        self._topic(topic, now).records += records

    def waited(self, seconds: float, now: float) -> None:
        """Record that a call waited for records."""
        sample = self._sample(now)
        sample.polls += 1
        sample.poll_wait_s += seconds

    def polled(self, now: float) -> float | None:
        """Record a poll of the application. Return the seconds since the previous poll, if any."""
        before, self._polled_at = self._polled_at, now
        if before is None:
            return None
        interval_s = now - before
        sample = self._sample(now)
        sample.intervals += 1
        sample.interval_s += interval_s
        if interval_s > sample.interval_s_max:
            sample.interval_s_max = interval_s
        return interval_s

    def connection_changed(self, opened: bool, now: float) -> None:
        """Record that a connection was opened or closed."""
        sample = self._sample(now)
        if opened:
            sample.opened += 1
        else:
            sample.closed += 1

    def keep_topics(self, topics: frozenset[str]) -> None:
        """Drop the metrics of all other topics."""
        for topic in self._topics.keys() - topics:
            del self._topics[topic]

    def _sample(self, now: float) -> SampleT:
        windows = self._own
        if now < windows.ends_at:
            return windows.current
        for node in [node for node, of in self._nodes.items() if of.ends_at <= now - IDLE_S]:
            del self._nodes[node]
        return windows.turn(now)

    def _node(self, node_id: int, now: float) -> FetchedNodeSample:
        windows = self._nodes.get(node_id)
        if windows is None:
            windows = self._nodes[node_id] = Windows(
                FetchedNodeSample, self._window_s, self._samples
            )
        return windows.current if now < windows.ends_at else windows.turn(now)

    def _topic(self, topic: str, now: float) -> ConsumedTopicSample:
        windows = self._topics.get(topic)
        if windows is None:
            windows = self._topics[topic] = Windows(
                ConsumedTopicSample, self._window_s, self._samples
            )
        return windows.current if now < windows.ends_at else windows.turn(now)

    # -- snapshots --

    def _common(
        self, total: ReadingSample, recent: ReadingSample, elapsed: float, now: float
    ) -> dict[str, float]:
        """Return the metrics that consumers and share consumers have in common."""
        return {
            "records-consumed-total": float(total.records),
            "records-consumed-rate": recent.records / elapsed,
            "bytes-consumed-total": float(total.fetched_bytes),
            "bytes-consumed-rate": recent.fetched_bytes / elapsed,
            "fetch-total": float(total.fetches),
            "fetch-rate": recent.fetches / elapsed,
            "fetch-size-avg": mean(recent.fetched_bytes, recent.fetches),
            "fetch-size-max": float(recent.fetched_bytes_max),
            "fetch-latency-avg": mean(recent.latency_s * 1000, recent.fetches),
            "fetch-latency-max": recent.latency_s_max * 1000,
            "poll-total": float(total.polls),
            "poll-wait-time-ns-total": total.poll_wait_s * 1e9,
            "time-between-poll-avg": mean(recent.interval_s * 1000, recent.intervals),
            "time-between-poll-max": recent.interval_s_max * 1000,
            "last-poll-seconds-ago": since(self._polled_at, now),
            "poll-idle-ratio-avg": min(mean(recent.poll_wait_s, recent.interval_s), 1.0),
            "rebalance-total": float(total.rebalances),
            "connection-creation-total": float(total.opened),
            "connection-creation-rate": recent.opened / elapsed,
            "connection-close-total": float(total.closed),
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

    def snapshot_by_node(self, now: float) -> dict[int, dict[str, float]]:
        """Return metrics of Kafka's group ``consumer-node-metrics`` by node id, for fetches only.

        Contains the brokers that were read from in the last hour.
        """
        found = {}
        for node, windows in self._nodes.copy().items():
            if windows.ends_at > now - IDLE_S:
                total, recent, elapsed = windows.read(now)
                found[node] = {
                    "response-total": float(total.fetches),
                    "response-rate": recent.fetches / elapsed,
                    "request-latency-avg": mean(recent.latency_s * 1000, recent.fetches),
                    "request-latency-max": recent.latency_s_max * 1000,
                }
        return found


def since(then: float | None, now: float) -> float:
    """Return the seconds since a time; -1 for None, as in Kafka."""
    return -1.0 if then is None else now - then


def mean(total: float, count: float) -> float:
    """Return an average; 0 of no values."""
    return total / count if count else 0.0
