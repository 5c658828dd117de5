"""``lag``, ``highwater``, ``last_stable_offset`` and metrics."""

from __future__ import annotations

from collections.abc import Mapping

from aioprod.arguments import check_partition
from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.fetch_buffer import FetchBuffer
from aioprod.consumer.ready_records import ReadyRecords
from aioprod.consumer.run_state import RunState
from aioprod.consumer.stall_watch import StallWatch
from aioprod.consumer.subscription import PartitionState, SubscriptionState
from aioprod.metrics import ConsumerMetrics, ObservedConsumer
from aioprod.types import TopicPartition


class MetricCalls:
    """Returns lag, offsets and metrics; any task may call it at any time."""

    def __init__(
        self,
        config: ConsumerConfig,
        run_state: RunState,
        ready: ReadyRecords,
        subscription: SubscriptionState,
        buffer: FetchBuffer,
        metrics: ConsumerMetrics,
        watch: StallWatch,
    ) -> None:
        self._config = config
        self._run_state = run_state
        self._ready = ready
        self._subscription = subscription
        self._buffer = buffer
        self._metrics = metrics
        self._watch = watch
        self._read_committed = config.isolation_level == "read_committed"

    def lag(self, partition: TopicPartition) -> int | None:
        """See :meth:`aioprod.Consumer.lag`."""
        return self._lag(self._subscription[check_partition(partition)])

    def highwater(self, partition: TopicPartition) -> int | None:
        """See :meth:`aioprod.Consumer.highwater`."""
        known = self._subscription[check_partition(partition)].high_watermark
        return known if known >= 0 else None

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """See :meth:`aioprod.Consumer.last_stable_offset`."""
        known = self._subscription[check_partition(partition)].last_stable_offset
        return known if known >= 0 else None

    def metrics(self) -> Mapping[str, float]:
        """See :meth:`aioprod.Consumer.metrics`."""
        self._ready.take_back()
        return self._snapshot()

    def metrics_by_topic(self) -> Mapping[str, Mapping[str, float]]:
        """See :meth:`aioprod.Consumer.metrics_by_topic`."""
        self._ready.take_back()
        return self._snapshot_by_topic()

    def observed(self) -> ObservedConsumer:
        """Return the metrics for observers, which change nothing when they are read."""
        return ObservedConsumer(
            self._config.client_id,
            self._config.group_id,
            self._snapshot,
            self._snapshot_by_topic,
            self._snapshot_by_partition,
            self._snapshot_by_node,
        )

    def _snapshot(self) -> Mapping[str, float]:
        partitions = self._subscription.partitions.copy()
        lags = [lag for state in partitions.values() if (lag := self._lag(state)) is not None]
        gauges = {
            "records-lag-max": float(max(lags, default=0)),
            "buffered-bytes": float(self._buffer.size),
            "assigned-partitions": float(len(partitions)),
            "stalled-partitions": float(self._watch.stalled_partitions),
        }
        return self._metrics.snapshot(self._run_state.now(), gauges)

    def _snapshot_by_topic(self) -> Mapping[str, Mapping[str, float]]:
        return self._metrics.snapshot_by_topic(self._run_state.now())

    def _snapshot_by_node(self) -> Mapping[int, Mapping[str, float]]:
        return self._metrics.snapshot_by_node(self._run_state.now())

    def _snapshot_by_partition(self) -> Mapping[TopicPartition, Mapping[str, float]]:
        found = {}
        for tp, state in self._subscription.partitions.copy().items():
            metrics = {
                "paused": float(state.paused),
                "stalled": float(self._watch.is_stalled(tp)),
            }
            offset, lag = self._ready.offset_of(state), self._lag(state)
            if lag is not None:
                metrics["records-lag"] = float(lag)
            if offset is not None and state.log_start_offset >= 0:
                metrics["records-lead"] = float(max(offset - state.log_start_offset, 0))
            found[tp] = metrics
        return found

    def _lag(self, state: PartitionState) -> int | None:
        end = state.last_stable_offset if self._read_committed else state.high_watermark
        offset = self._ready.offset_of(state)
        return None if offset is None or end < 0 else max(end - offset, 0)
