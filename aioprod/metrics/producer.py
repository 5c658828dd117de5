"""The metrics of a producer, updated for each batch, request and connection, not each record.

On one core of a small machine (CPython 3.11), ``batch_sent`` takes 0.7 us, all calls for a batch
together 1.2 us, and a snapshot 15 to 20 us.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeVar

from aioprod.metrics.windows import NodeSample, ProducerSample, SampleT, TopicSample, Windows

MAX_TOPICS = 10_000
"""Largest number of topics with metrics; beyond it, the least recently used are dropped."""
MAX_NODES = 1_000
"""Largest number of brokers with metrics."""
IDLE_S = 3_600.0
"""Seconds after which the metrics of an unused topic or broker are dropped."""

TransactionStep = Literal["init", "begin", "send-offsets", "commit", "abort"]


class ProducerMetrics:
    """Totals, and rates and averages over the last windows, named as in Kafka's producer.

    Times are seconds of a monotonic clock. The methods for events must be called in the event loop;
    snapshots may be read in any thread. Snapshots always have all keys; an average or maximum of no
    values is 0.0, not NaN.

    Args:
        window_ms: length of a window (``metrics.sample.window.ms``).
        samples: number of windows (``metrics.num.samples``).
        max_topics, max_nodes: largest numbers of topics and brokers with metrics; beyond them, the
            least recently used are dropped.
        idle_s: seconds after which the metrics of unused topics and brokers are dropped.
    """

    def __init__(
        self,
        window_ms: float = 30_000,
        samples: int = 2,
        *,
        max_topics: int = MAX_TOPICS,
        max_nodes: int = MAX_NODES,
        idle_s: float = IDLE_S,
    ) -> None:
        self._window_s = window_ms / 1000
        self._samples = samples
        self._max_topics = max_topics
        self._max_nodes = max_nodes
        self._idle_s = idle_s
        self._producer = Windows(ProducerSample, self._window_s, samples)
        self._topics: dict[str, Windows[TopicSample]] = {}
        self._nodes: dict[int, Windows[NodeSample]] = {}
        self._metadata_wait_s = 0.0
        self._flush_s = 0.0
        self._transaction_s: dict[TransactionStep, float] = {
            "init": 0.0,
            "begin": 0.0,
            "send-offsets": 0.0,
            "commit": 0.0,
            "abort": 0.0,
        }

    # -- events --

    def batch_sent(
        self,
        topic: str,
        records: int,
        batch_bytes: int,
        uncompressed_bytes: int,
        queue_time_s: float,
        now: float,
    ) -> None:
        """Record that a batch was added to a request, ``queue_time_s`` after it was opened."""
        ratio = batch_bytes / uncompressed_bytes if uncompressed_bytes else 1.0
        # Inlined here and in the other methods for each batch: a call would double the time to find
        # a sample.
        whole, of_one = self._producer, self._topics.get(topic)
        sample = whole.current if now < whole.ends_at else self._sample(now)
        sample.records_sent += records
        sample.batches += 1
        sample.batch_bytes += batch_bytes
        sample.uncompressed_bytes += uncompressed_bytes
        sample.ratios += ratio
        sample.queue_s += queue_time_s
        if batch_bytes > sample.batch_bytes_max:
            sample.batch_bytes_max = batch_bytes
        if queue_time_s > sample.queue_s_max:
            sample.queue_s_max = queue_time_s
        of_topic = (
            of_one.current
            if of_one is not None and now < of_one.ends_at
            else self._topic(topic, now)
        )
        of_topic.records_sent += records
        of_topic.batches += 1
        of_topic.batch_bytes += batch_bytes
        of_topic.ratios += ratio

    def batch_succeeded(self, topic: str, records: int, now: float) -> None:
        """Record that a batch was acknowledged, or with acks=0 written."""
        whole, of_one = self._producer, self._topics.get(topic)
        sample = whole.current if now < whole.ends_at else self._sample(now)
        sample.records_acknowledged += records
        of_topic = (
            of_one.current
            if of_one is not None and now < of_one.ends_at
            else self._topic(topic, now)
        )
        of_topic.records_acknowledged += records

    def batch_retried(self, topic: str, records: int, now: float) -> None:
        """Record that a batch was put back into its queue for a retry."""
        self._sample(now).records_retried += records
        self._topic(topic, now).records_retried += records

    def batch_failed(self, topic: str, records: int, now: float) -> None:
        """Record that a batch failed."""
        self._sample(now).records_failed += records
        self._topic(topic, now).records_failed += records

    def batch_split(self, now: float) -> None:
        """Record that a batch was split because it was too large for the broker."""
        self._sample(now).splits += 1

    def request_sent(self, node_id: int, records: int, request_bytes: int, now: float) -> None:
        """Record a Produce request."""
        whole, of_one = self._producer, self._nodes.get(node_id)
        sample = whole.current if now < whole.ends_at else self._sample(now)
        sample.requests += 1
        sample.request_records += records
        sample.request_bytes += request_bytes
        if request_bytes > sample.request_bytes_max:
            sample.request_bytes_max = request_bytes
        of_node = (
            of_one.current
            if of_one is not None and now < of_one.ends_at
            else self._node(node_id, now)
        )
        of_node.requests += 1
        of_node.request_bytes += request_bytes
        if request_bytes > of_node.request_bytes_max:
            of_node.request_bytes_max = request_bytes

    def request_done(self, node_id: int, latency_s: float, now: float) -> None:
        """Record the response to a Produce request."""
        whole, of_one = self._producer, self._nodes.get(node_id)
        sample = whole.current if now < whole.ends_at else self._sample(now)
        sample.answers += 1
        sample.latency_s += latency_s
        if latency_s > sample.latency_s_max:
            sample.latency_s_max = latency_s
        of_node = (
            of_one.current
            if of_one is not None and now < of_one.ends_at
            else self._node(node_id, now)
        )
        of_node.answers += 1
        of_node.latency_s += latency_s
        if latency_s > of_node.latency_s_max:
            of_node.latency_s_max = latency_s

    def throttled(self, node_id: int, milliseconds: int, now: float) -> None:
        """Record the ``throttle_time_ms`` of a response; the average includes zeros."""
        for sample in (self._sample(now), self._node(node_id, now)):
            sample.throttle_ms += milliseconds
            sample.throttle_ms_max = max(sample.throttle_ms_max, milliseconds)

    def buffer_waited(self, seconds: float, now: float) -> None:
        """Record that a send waited for buffer memory."""
        self._sample(now).buffer_wait_s += seconds

    def buffer_exhausted(self, now: float) -> None:
        """Record that a send failed because no buffer memory was free within ``max_block_ms``."""
        self._sample(now).buffer_exhausted += 1

    def connection_opened(self, now: float) -> None:
        """Record a new connection to a broker."""
        self._sample(now).opened += 1

    def connection_closed(self, now: float) -> None:
        """Record the end of a connection."""
        self._sample(now).closed += 1

    def metadata_waited(self, seconds: float) -> None:
        """Record that a send waited for metadata."""
        self._metadata_wait_s += seconds

    def flushed(self, seconds: float) -> None:
        """Record the duration of a flush."""
        self._flush_s += seconds

    def transaction_step(self, step: TransactionStep, seconds: float) -> None:
        """Record the duration of an operation of a transaction."""
        self._transaction_s[step] += seconds

    def _sample(self, now: float) -> ProducerSample:
        windows = self._producer
        if now < windows.ends_at:
            return windows.current
        _drop_idle(self._topics, now - self._idle_s)
        _drop_idle(self._nodes, now - self._idle_s)
        return windows.turn(now)

    def _topic(self, topic: str, now: float) -> TopicSample:
        windows = self._topics.get(topic)
        if windows is None:
            _make_room(self._topics, self._max_topics)
            windows = self._topics[topic] = Windows(TopicSample, self._window_s, self._samples)
        return windows.current if now < windows.ends_at else windows.turn(now)

    def _node(self, node_id: int, now: float) -> NodeSample:
        windows = self._nodes.get(node_id)
        if windows is None:
            _make_room(self._nodes, self._max_nodes)
            windows = self._nodes[node_id] = Windows(NodeSample, self._window_s, self._samples)
        return windows.current if now < windows.ends_at else windows.turn(now)

    # -- snapshots --

    def snapshot(self, now: float, gauges: Mapping[str, float] | None = None) -> dict[str, float]:
        """Return Kafka's group ``producer-metrics``.

        Args:
            now: the current time.
            gauges: current values of the producer to include.
        """
        total, recent, elapsed = self._producer.read(now)
        return {
            "record-send-total": float(total.records_sent),
            "record-send-rate": recent.records_sent / elapsed,
            "record-acknowledged-total": float(total.records_acknowledged),
            "record-acknowledged-rate": recent.records_acknowledged / elapsed,
            "record-retry-total": float(total.records_retried),
            "record-retry-rate": recent.records_retried / elapsed,
            "record-error-total": float(total.records_failed),
            "record-error-rate": recent.records_failed / elapsed,
            "record-size-avg": _mean(recent.uncompressed_bytes, recent.records_sent),
            "record-queue-time-avg": _mean(recent.queue_s * 1000, recent.batches),
            "record-queue-time-max": recent.queue_s_max * 1000,
            "batch-size-avg": _mean(recent.batch_bytes, recent.batches),
            "batch-size-max": float(recent.batch_bytes_max),
            "compression-rate-avg": _mean(recent.ratios, recent.batches),
            "batch-split-total": float(total.splits),
            "batch-split-rate": recent.splits / elapsed,
            "records-per-request-avg": _mean(recent.request_records, recent.requests),
            "request-total": float(total.requests),
            "request-rate": recent.requests / elapsed,
            "request-size-avg": _mean(recent.request_bytes, recent.requests),
            "request-size-max": float(recent.request_bytes_max),
            "outgoing-byte-total": float(total.request_bytes),
            "outgoing-byte-rate": recent.request_bytes / elapsed,
            "response-total": float(total.answers),
            "response-rate": recent.answers / elapsed,
            "request-latency-avg": _mean(recent.latency_s * 1000, recent.answers),
            "request-latency-max": recent.latency_s_max * 1000,
            "produce-throttle-time-avg": _mean(recent.throttle_ms, recent.answers),
            "produce-throttle-time-max": float(recent.throttle_ms_max),
            "bufferpool-wait-time-ns-total": total.buffer_wait_s * 1e9,
            "bufferpool-wait-ratio": recent.buffer_wait_s / elapsed,
            "buffer-exhausted-total": float(total.buffer_exhausted),
            "buffer-exhausted-rate": recent.buffer_exhausted / elapsed,
            "connection-creation-total": float(total.opened),
            "connection-creation-rate": recent.opened / elapsed,
            "connection-close-total": float(total.closed),
            "connection-close-rate": recent.closed / elapsed,
            "connection-count": float(total.opened - total.closed),
            "metadata-wait-time-ns-total": self._metadata_wait_s * 1e9,
            "flush-time-ns-total": self._flush_s * 1e9,
            **{
                f"txn-{step}-time-ns-total": seconds * 1e9
                for step, seconds in self._transaction_s.items()
            },
            **(gauges or {}),
        }

    def snapshot_by_topic(self, now: float) -> dict[str, dict[str, float]]:
        """Return Kafka's group ``producer-topic-metrics`` for each topic that was used in the last
        hour.
        """
        return dict(self.each_topic(now))

    def each_topic(self, now: float) -> Iterator[tuple[str, dict[str, float]]]:
        """Yield the items of :meth:`snapshot_by_topic` one by one, as many topics take long."""
        for topic, windows in self._topics.copy().items():
            if windows.ends_at > now - self._idle_s:
                yield topic, _of_topic(*windows.read(now))

    def snapshot_by_node(self, now: float) -> dict[int, dict[str, float]]:
        """Return Kafka's group ``producer-node-metrics`` by node id, for Produce requests only."""
        return {
            node: _of_node(*windows.read(now))
            for node, windows in self._nodes.copy().items()
            if windows.ends_at > now - self._idle_s
        }


def _mean(total: float, count: int) -> float:
    return total / count if count else 0.0


def _of_topic(total: TopicSample, recent: TopicSample, elapsed: float) -> dict[str, float]:
    return {
        "record-send-total": float(total.records_sent),
        "record-send-rate": recent.records_sent / elapsed,
        "record-acknowledged-total": float(total.records_acknowledged),
        "record-acknowledged-rate": recent.records_acknowledged / elapsed,
        "record-retry-total": float(total.records_retried),
        "record-retry-rate": recent.records_retried / elapsed,
        "record-error-total": float(total.records_failed),
        "record-error-rate": recent.records_failed / elapsed,
        "byte-total": float(total.batch_bytes),
        "byte-rate": recent.batch_bytes / elapsed,
        "compression-rate": _mean(recent.ratios, recent.batches),
    }


def _of_node(total: NodeSample, recent: NodeSample, elapsed: float) -> dict[str, float]:
    return {
        "request-total": float(total.requests),
        "request-rate": recent.requests / elapsed,
        "request-size-avg": _mean(recent.request_bytes, recent.requests),
        "request-size-max": float(recent.request_bytes_max),
        "outgoing-byte-total": float(total.request_bytes),
        "outgoing-byte-rate": recent.request_bytes / elapsed,
        "response-total": float(total.answers),
        "response-rate": recent.answers / elapsed,
        "request-latency-avg": _mean(recent.latency_s * 1000, recent.answers),
        "request-latency-max": recent.latency_s_max * 1000,
        "produce-throttle-time-avg": _mean(recent.throttle_ms, recent.answers),
        "produce-throttle-time-max": float(recent.throttle_ms_max),
    }


_Key = TypeVar("_Key", str, int)


def _drop_idle(kept: dict[_Key, Windows[SampleT]], before: float) -> None:
    for key in [key for key, windows in kept.items() if windows.ends_at <= before]:
        del kept[key]


def _make_room(kept: dict[_Key, Windows[SampleT]], limit: int) -> None:
    # Drops a tenth at a time, so that sorting is rare.
    if len(kept) >= limit:
        for key in sorted(kept, key=lambda key: kept[key].ends_at)[
            : len(kept) - limit + 1 + limit // 10
        ]:
            del kept[key]
