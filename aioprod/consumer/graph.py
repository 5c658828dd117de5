"""Builds the collaborators of a consumer, and passes them to one another."""

import random
from collections.abc import Callable
from typing import NamedTuple

from aioprod.cluster.client_ids import next_client_number
from aioprod.cluster.runtime import ClientKind, ClientRuntime
from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.background import Background, Reading
from aioprod.consumer.calls.commits import CommitCalls
from aioprod.consumer.calls.guard import CallGuard
from aioprod.consumer.calls.lookups import LookupCalls
from aioprod.consumer.calls.metrics import MetricCalls
from aioprod.consumer.calls.positions import PositionCalls
from aioprod.consumer.calls.records import RecordCalls
from aioprod.consumer.calls.subscription import SubscriptionCalls
from aioprod.consumer.calls.turns import PollTurns
from aioprod.consumer.commit_queue import CommitQueue
from aioprod.consumer.connections import Connections
from aioprod.consumer.fetch_buffer import FetchBuffer
from aioprod.consumer.fetch_results import FetchResults
from aioprod.consumer.fetcher import Fetcher
from aioprod.consumer.group.classic import ClassicMember
from aioprod.consumer.group.partitions import GroupPartitions
from aioprod.consumer.group.reconciling import ReconcilingMember
from aioprod.consumer.health import Health
from aioprod.consumer.lifecycle import Lifecycle
from aioprod.consumer.membership import Membership, NoGroup
from aioprod.consumer.metadata_updates import MetadataUpdates
from aioprod.consumer.no_partitions import NoPartitions
from aioprod.consumer.notifier import Notifier
from aioprod.consumer.positions import PositionFinder
from aioprod.consumer.problems import Problems
from aioprod.consumer.ready_records import ReadyRecords
from aioprod.consumer.record_conversion import RecordConverter
from aioprod.consumer.recreated_topics import RecreatedTopics
from aioprod.consumer.reporting import ConsumerReporter
from aioprod.consumer.run_state import RunState
from aioprod.consumer.scheduler import Scheduler
from aioprod.consumer.stall_reasons import StallReasons
from aioprod.consumer.stall_watch import StallWatch
from aioprod.consumer.subscription import SubscriptionState
from aioprod.consumer.telemetry import telemetry_source
from aioprod.errors import ConsumerClosedError, ConsumerStateError
from aioprod.interceptors import ConsumerInterceptorChain
from aioprod.metrics import ConsumerMetrics
from aioprod.metrics.telemetry_source import TelemetrySource


class Graph(NamedTuple):
    """The collaborators of a :class:`aioprod.Consumer`. None of them refers to the Consumer, so a
    Consumer that is dropped without ``close`` is released at once.
    """

    guard: CallGuard
    ready: ReadyRecords
    subscription: SubscriptionState
    health: Health
    lifecycle: Lifecycle
    records: RecordCalls
    subscribing: SubscriptionCalls
    positions: PositionCalls
    commits: CommitCalls
    lookups: LookupCalls
    metrics: MetricCalls


def build(config: ConsumerConfig, clock: Callable[[], float], rng: random.Random) -> Graph:
    """Build the collaborators of one consumer, each from those before it. Only the runtime, whose
    callbacks come after the start, refers to later ones.
    """
    metrics = ConsumerMetrics(config.metrics_sample_window_ms, config.metrics_num_samples)
    interceptors = ConsumerInterceptorChain(config.interceptors)
    converter = RecordConverter(config.key_deserializer, config.value_deserializer, interceptors)
    reporter = ConsumerReporter(config, metrics, interceptors)
    notifier = Notifier()
    scheduler = Scheduler(notifier)
    buffer = FetchBuffer(on_end=scheduler.read)
    problems = Problems(notifier.notify)
    ready = ReadyRecords(config, buffer, reporter, notifier, problems, converter)
    telemetry = telemetry_source(
        config, lambda: membership.group_metadata().member_id, lambda: metric_calls.observed()
    )
    runtime = _runtime(
        config, rng, reporter, ready, lambda: connections.requests.brokers_changed(), telemetry
    )
    run_state = RunState(runtime, clock, on_fault=ready.interrupt)
    guard = CallGuard(
        runtime.loop_binding, run_state, ready.take_back, config.default_api_timeout_ms
    )
    connections = Connections(config, runtime, reporter, on_change=scheduler.wake)
    subscription = SubscriptionState(scheduler.wake_all, ready.take_back_from, ready.drop)
    partitions, membership = _membership(config, subscription, runtime, guard, ready, reporter)
    finder = PositionFinder(
        config, connections, subscription, problems, membership, clock, scheduler
    )
    results = FetchResults(config, connections, subscription, buffer, problems, metrics, converter)
    fetcher = Fetcher(
        config, connections, subscription, buffer, problems, reporter, results, scheduler
    )
    metadata = connections.metadata
    reasons = StallReasons(config, subscription, buffer, problems, membership, metadata, ready)
    watch = StallWatch(config, reasons, reporter)
    recreated = RecreatedTopics(config, subscription, problems, partitions, ready, reporter)
    updates = MetadataUpdates(metadata, subscription, problems, membership, recreated, scheduler)
    commits = CommitQueue(membership, config.default_api_timeout_ms)
    watching = watch.step, NoPartitions(config, subscription, membership, metadata).step
    reading = Reading(connections, run_state, finder, fetcher, updates, scheduler, watching)
    background = Background(config, guard, ready, subscription, membership, commits, reading)
    metric_calls = MetricCalls(config, run_state, ready, subscription, buffer, metrics, watch)
    lifecycle = Lifecycle(runtime, run_state, guard, background, converter, reporter, metric_calls)
    turns = PollTurns(config, notifier, problems, reporter)
    return Graph(
        guard,
        ready,
        subscription,
        Health(run_state, membership, problems, watch),
        lifecycle,
        RecordCalls(config, guard, ready, turns, scheduler, membership, subscription, reporter),
        SubscriptionCalls(
            config, guard, run_state, subscription, membership, metadata, problems, metrics
        ),
        PositionCalls(guard, subscription, membership, problems, notifier),
        CommitCalls(guard, subscription, membership, commits),
        LookupCalls(config, guard, connections),
        metric_calls,
    )


def _runtime(
    config: ConsumerConfig,
    rng: random.Random,
    reporter: ConsumerReporter,
    ready: ReadyRecords,
    on_change: Callable[[], None],
    telemetry: TelemetrySource | None,
) -> ClientRuntime:
    """Make the connections and the metadata, with the errors of a consumer."""
    return ClientRuntime(
        config,
        rng,
        ClientKind("consumer", ConsumerClosedError, ConsumerStateError),
        create_topics=config.allow_auto_create_topics,
        on_change=on_change,
        on_connection=reporter.connection_changed,
        on_fork=ready.clear,
        telemetry=telemetry,
    )


def _membership(
    config: ConsumerConfig,
    subscription: SubscriptionState,
    runtime: ClientRuntime,
    guard: CallGuard,
    ready: ReadyRecords,
    reporter: ConsumerReporter,
) -> tuple[GroupPartitions, Membership]:
    """Make the group member that ``group_id`` and ``group_protocol`` require."""
    partitions = GroupPartitions(subscription, reporter, guard.listener_call)
    attend = ready.interrupt
    if config.group_id is None:
        return partitions, NoGroup(config, subscription, runtime.metadata, partitions, attend)
    member = ReconcilingMember if config.group_protocol == "consumer" else ClassicMember
    return partitions, member(
        config, subscription, runtime, partitions, attend, reporter.commit_done
    )


def client_id(group_id: str | None) -> str:
    """Return the default ``client_id``."""
    prefix = f"aioprod-consumer-{group_id}" if group_id else "aioprod-consumer"
    return f"{prefix}-{next_client_number('consumer')}"
