"""Builds the collaborators of a share consumer, starts and closes them, and reads their metrics."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping

from aioprod.arguments import check_limit_ms
from aioprod.cluster.runtime import ClientKind, ClientLifecycle, ClientRuntime
from aioprod.cluster.snapshot import ClusterSnapshot
from aioprod.config.share_consumer import ShareConsumerConfig
from aioprod.consumer.calls.guard import CallGuard
from aioprod.consumer.calls.turns import PollTurns
from aioprod.consumer.health import Health
from aioprod.consumer.lifecycle import CLOSE_TIMEOUT_MS
from aioprod.consumer.notifier import Notifier
from aioprod.consumer.problems import Problems
from aioprod.consumer.run_state import RunState
from aioprod.consumer.scheduler import Scheduler
from aioprod.consumer.share.assignment import ShareAssignment
from aioprod.consumer.share.buffer import ShareBuffer
from aioprod.consumer.share.calls import AcknowledgementCalls, RecordCalls, TopicCalls
from aioprod.consumer.share.fetcher import ShareFetcher
from aioprod.consumer.share.member import ShareMember, new_member_id
from aioprod.consumer.share.outcomes import AcknowledgementCallback, Outcomes
from aioprod.consumer.share.reporting import ShareReporter
from aioprod.consumer.share.requests import ShareRequests
from aioprod.consumer.share.stall_reasons import ShareStallReasons
from aioprod.consumer.share.unacknowledged import UnacknowledgedRecords
from aioprod.consumer.stall_watch import StallWatch
from aioprod.consumer.telemetry import telemetry_source
from aioprod.errors import ConsumerClosedError, ConsumerStateError, KafkaError
from aioprod.metrics import ObservedConsumer, ShareConsumerMetrics
from aioprod.metrics.telemetry_source import TelemetrySource
from aioprod.types import TopicPartition


class ShareCore(ClientLifecycle):
    """The collaborators of a :class:`aioprod.ShareConsumer`. None refers to the ShareConsumer, so
    that it is garbage-collected, with a warning, when the application drops it.

    Args:
        config: the settings.
        rng: source of all random choices.
        callback: the application's callback for outcomes of acknowledgements, if any.

    Attributes:
        runtime: the connections, metadata and state of the consumer.
        guard: the calls in progress.
        assignment: the topics and partitions that are read.
        fetcher: the sessions with brokers.
        topics, records, acknowledgements: the calls of the application.
        health: the state for health checks.
    """

    runtime: ClientRuntime
    guard: CallGuard
    assignment: ShareAssignment
    fetcher: ShareFetcher

    def __init__(
        self,
        config: ShareConsumerConfig,
        rng: random.Random,
        callback: AcknowledgementCallback | None,
    ) -> None:
        """Make all collaborators, each from earlier ones."""
        # Metrics, and what wakes the waiting call.
        self._config = config
        windows = config.metrics_sample_window_ms, config.metrics_num_samples
        self._metrics = ShareConsumerMetrics(*windows)
        self._reporter = reporter = ShareReporter(config, self._metrics, now=self._now)
        notifier = Notifier()
        problems = Problems(notifier.notify)

        # The cluster, and the state of the consumer.
        telemetry = telemetry_source(config, lambda: self._member_id, self.observed)
        self.runtime = runtime = _runtime(config, rng, reporter, telemetry)
        self._member_id = member_id = new_member_id(runtime)
        self._run_state = RunState(runtime, time.time, on_fault=notifier.notify)
        default_timeout_ms = config.default_api_timeout_ms
        self.guard = guard = CallGuard(
            runtime.loop_binding, self._run_state, lambda: None, default_timeout_ms
        )

        # Records, from brokers to their acknowledgement.
        self.assignment = assignment = ShareAssignment(runtime.metadata, problems, reporter)
        self._buffer = buffer = ShareBuffer(config, assignment, reporter)
        self._unacknowledged = kept = UnacknowledgedRecords(config)
        outcomes = Outcomes(callback, reporter, with_renewals=not config.max_lock_renewal_ms)
        self._requests = requests = ShareRequests(
            config, runtime, member_id, reporter, self._has_locks, buffer.forget
        )
        self.fetcher = fetcher = ShareFetcher(
            config, requests, assignment, buffer, kept, outcomes, reporter, notifier
        )

        # The group, stalls, and the state for health checks.
        on_news, on_idle = notifier.notify, buffer.release
        self._member = member = ShareMember(
            config, runtime, member_id, reporter, assignment, fetcher.assign, on_news, on_idle
        )
        reasons = ShareStallReasons(config, member, fetcher, assignment, buffer, outcomes)
        self._watch = StallWatch(config, reasons, reporter)
        self._scheduler = Scheduler(notifier)
        self.health: Health = Health(self._run_state, member, problems, self._watch)

        # The calls of the application.
        turns = PollTurns(config, notifier, problems, reporter)
        self.topics: TopicCalls = TopicCalls(guard, runtime, member, assignment, fetcher)
        self.records: RecordCalls = RecordCalls(
            config, guard, member, assignment, fetcher, buffer, kept, turns
        )
        self.acknowledgements: AcknowledgementCalls = AcknowledgementCalls(
            config, guard, fetcher, kept, outcomes, problems, notifier
        )

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """See :meth:`aioprod.ShareConsumer.start`."""
        await self.runtime.start(self)

    async def close(self, timeout_ms: float | None) -> None:
        """See :meth:`aioprod.ShareConsumer.close`."""
        check_limit_ms(timeout_ms)
        self.runtime.check_may_close()
        await self.runtime.close(self, CLOSE_TIMEOUT_MS if timeout_ms is None else timeout_ms)

    async def connect(self) -> None:
        """Get the metadata of the subscribed topics."""
        self._run_state.begin_start()
        self._reporter.started(self.observed())
        topics = sorted(self.assignment.topics)
        try:
            await self.runtime.metadata.first(topics, "default_api_timeout_ms")
        except BaseException:
            self._run_state.stop()
            raise

    def begin(self) -> None:
        """Refresh the metadata; the first call for records joins the group."""
        self._run_state.end_start()
        self.runtime.metadata.start(self._metadata_changed, self._run_state.fail)
        self._metadata_changed(self.runtime.metadata.snapshot)
        self._scheduler.start((self._watch.step,), self._run_state.fail)

    async def finish(self, deadline: float) -> None:
        """End the call of another task, send the last acknowledgements, and leave the group."""
        await self.guard.end_call()
        await asyncio.gather(self.fetcher.close(), self._member.leave())

    def stop(self, error: KafkaError) -> None:
        """Fail the acknowledgements without an outcome."""
        self.fetcher.end(error)

    async def release(self) -> None:
        """End all tasks and requests."""
        self._scheduler.stop()
        await self._member.close()
        self._requests.close()

    def close_plugins(self) -> None:
        """Close deserializers and observers."""
        self._buffer.close_deserializers()
        self._reporter.close()

    def closed(self) -> None:
        """Enter STOPPED."""
        self._run_state.stop()

    def _metadata_changed(self, snapshot: ClusterSnapshot) -> None:
        self.assignment.check_topics(snapshot)
        self.fetcher.metadata_changed()

    def _has_locks(self, node_id: int) -> bool:
        return self.fetcher.has_locks(node_id)

    def _now(self) -> float:
        return self.runtime.now()

    # -- metrics: any task may read them at any time -----------------------------------------------

    def metrics(self) -> Mapping[str, float]:
        """See :meth:`aioprod.ShareConsumer.metrics`."""
        gauges = {
            "assigned-partitions": float(len(self.assignment.partitions)),
            "records-buffered": float(self._buffer.by_partition().total()),
            "records-in-hand": float(len(self._unacknowledged)),
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
            for tp in sorted(self.assignment.partitions)
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


def _runtime(
    config: ShareConsumerConfig,
    rng: random.Random,
    reporter: ShareReporter,
    telemetry: TelemetrySource | None,
) -> ClientRuntime:
    """Make the connections and the metadata, with the errors of a consumer."""
    return ClientRuntime(
        config,
        rng,
        ClientKind("share consumer", ConsumerClosedError, ConsumerStateError),
        on_connection=reporter.connection_changed,
        telemetry=telemetry,
    )
