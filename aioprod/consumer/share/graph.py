"""Builds the collaborators of a share consumer, and passes them to one another."""

from __future__ import annotations

import random
import time
from typing import NamedTuple

from aioprod.cluster.runtime import ClientRuntime
from aioprod.config.share_consumer import ShareConsumerConfig
from aioprod.consumer.calls.guard import CallGuard
from aioprod.consumer.health import Health
from aioprod.consumer.notifier import Notifier
from aioprod.consumer.problems import Problems
from aioprod.consumer.record_conversion import RecordConverter
from aioprod.consumer.run_state import RunState
from aioprod.consumer.scheduler import Scheduler
from aioprod.consumer.share.assignment import ShareAssignment
from aioprod.consumer.share.buffer import ShareBuffer
from aioprod.consumer.share.calls import ShareCalls
from aioprod.consumer.share.fetcher import ShareFetcher
from aioprod.consumer.share.figures import ShareFigures
from aioprod.consumer.share.in_hand import RecordsInHand
from aioprod.consumer.share.lifecycle import ShareLifecycle
from aioprod.consumer.share.member import ShareMember, new_member_id
from aioprod.consumer.share.outcomes import AcknowledgementCallback, Outcomes
from aioprod.consumer.share.read_errors import ReadErrors
from aioprod.consumer.share.renewals import LockRenewal
from aioprod.consumer.share.reporting import ShareReporter
from aioprod.consumer.share.requests import ShareRequests
from aioprod.consumer.share.stall_reasons import ShareStallReasons
from aioprod.consumer.stall_watch import StallWatch
from aioprod.consumer.telemetry import telemetry_source
from aioprod.errors import ConsumerClosedError, ConsumerStateError
from aioprod.interceptors import ConsumerInterceptorChain
from aioprod.metrics import ShareConsumerMetrics
from aioprod.metrics.telemetry import TelemetrySource

_REMEDY = "it is released, and delivered again up to group.share.delivery.count.limit times"


class ShareGraph(NamedTuple):
    """The collaborators of a :class:`aioprod.ShareConsumer`. None of them refers to it, so a
    ShareConsumer that is dropped without ``close`` is released at once.
    """

    calls: ShareCalls
    guard: CallGuard
    fetcher: ShareFetcher
    member: ShareMember
    lifecycle: ShareLifecycle
    figures: ShareFigures
    health: Health


def build(
    config: ShareConsumerConfig, rng: random.Random, callback: AcknowledgementCallback | None
) -> ShareGraph:
    """Build the collaborators of one share consumer, each from those before it."""
    converter = _converter(config)
    metrics = ShareConsumerMetrics(config.metrics_sample_window_ms, config.metrics_num_samples)
    reporter = ShareReporter(config, metrics, now=lambda: runtime.now())
    notifier = Notifier()
    problems = Problems(notifier.notify)
    telemetry = telemetry_source(config, lambda: member_id, lambda: figures.observed())
    runtime = _runtime(config, rng, reporter, telemetry)
    run_state = RunState(runtime, time.time, on_fault=notifier.notify)
    guard = CallGuard(runtime.loop_binding, run_state, lambda: None, config.default_api_timeout_ms)
    member_id = new_member_id(runtime)
    buffer = ShareBuffer(config, runtime.metadata, converter, reporter)
    requests = ShareRequests(
        config, runtime, member_id, reporter, lambda node: fetcher.holds_locks(node), buffer.forget
    )
    outcomes = Outcomes(callback, reporter, tells_renewals=not config.max_lock_renewal_ms)
    in_hand = _in_hand(config)
    errors = ReadErrors(problems)
    assignment = ShareAssignment(runtime.metadata, errors, reporter)
    fetcher = ShareFetcher(
        config, runtime, requests, assignment, errors, buffer, in_hand, outcomes, reporter, notifier
    )
    member = ShareMember(
        config, runtime, member_id, reporter, fetcher.assign, notifier.notify, buffer.release
    )
    reasons = ShareStallReasons(config, member, fetcher, assignment, errors, buffer, outcomes)
    watch = StallWatch(config.stall_timeout_ms, reasons, reporter)
    figures = ShareFigures(config, run_state, assignment, buffer, in_hand, metrics, watch)
    lifecycle = ShareLifecycle(
        runtime,
        run_state,
        guard,
        member,
        fetcher,
        requests,
        converter,
        problems,
        reporter,
        figures,
        watch,
        Scheduler(notifier, on_fault=run_state.fail),
    )
    calls = ShareCalls(
        config,
        guard,
        runtime,
        member,
        fetcher,
        buffer,
        in_hand,
        outcomes,
        problems,
        notifier,
        reporter,
    )
    health = Health(run_state, member, problems, watch)
    return ShareGraph(calls, guard, fetcher, member, lifecycle, figures, health)


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
        kind="share consumer",
        closed_error=ConsumerClosedError,
        not_started_error=ConsumerStateError,
        on_connection=reporter.connection_changed,
        telemetry=telemetry,
    )


def _converter(config: ShareConsumerConfig) -> RecordConverter:
    no_interceptors = ConsumerInterceptorChain(())
    return RecordConverter(
        config.key_deserializer, config.value_deserializer, no_interceptors, _REMEDY
    )


def _in_hand(config: ShareConsumerConfig) -> RecordsInHand:
    renewed_s = config.max_lock_renewal_ms / 1000
    return RecordsInHand(
        explicit=config.share_acknowledgement_mode == "explicit",
        renewal=LockRenewal(renewed_s) if renewed_s else None,
    )
