"""The metrics of a share consumer."""

from __future__ import annotations

from collections.abc import Mapping

from aioprod.config.share_consumer import ShareConsumerConfig
from aioprod.consumer.run_state import RunState
from aioprod.consumer.share.assignment import ShareAssignment
from aioprod.consumer.share.buffer import ShareBuffer
from aioprod.consumer.share.in_hand import RecordsInHand
from aioprod.consumer.stall_watch import StallWatch
from aioprod.metrics import ObservedConsumer, ShareConsumerMetrics
from aioprod.types import TopicPartition


class ShareFigures:
    """Returns metrics; any task may call it at any time."""

    def __init__(
        self,
        config: ShareConsumerConfig,
        run_state: RunState,
        assignment: ShareAssignment,
        buffer: ShareBuffer,
        in_hand: RecordsInHand,
        metrics: ShareConsumerMetrics,
        watch: StallWatch,
    ) -> None:
        self._config = config
        self._run_state = run_state
        self._assignment = assignment
        self._buffer = buffer
        self._in_hand = in_hand
        self._metrics = metrics
        self._watch = watch

    def metrics(self) -> Mapping[str, float]:
        """See :meth:`aioprod.ShareConsumer.metrics`."""
        gauges = {
            "assigned-partitions": float(len(self._assignment.partitions)),
            "records-buffered": float(self._buffer.by_partition().total()),
            "records-in-hand": float(len(self._in_hand)),
            "stalled-partitions": float(self._watch.stalled_partitions),
        }
        return self._metrics.snapshot(self._run_state.now(), gauges)

    def metrics_by_topic(self) -> Mapping[str, Mapping[str, float]]:
        """See :meth:`aioprod.ShareConsumer.metrics_by_topic`."""
        return self._metrics.snapshot_by_topic(self._run_state.now())

    def metrics_by_partition(self) -> Mapping[TopicPartition, Mapping[str, float]]:
        """See :meth:`aioprod.ShareConsumer.metrics_by_partition`."""
        buffered = self._buffer.by_partition()
        return {
            tp: {
                "records-buffered": float(buffered[tp]),
                "stalled": float(self._watch.is_stalled(tp)),
            }
            for tp in sorted(self._assignment.partitions)
        }

    def observed(self) -> ObservedConsumer:
        """Return the metrics for observers."""
        return ObservedConsumer(
            self._config.client_id,
            self._config.group_id,
            self.metrics,
            self.metrics_by_topic,
            self.metrics_by_partition,
            lambda: self._metrics.snapshot_by_node(self._run_state.now()),
        )
