"""Builds the collaborators of a share consumer, and passes them to one another."""

from __future__ import annotations

import random
import time
from typing import NamedTuple

from aioprod.cluster.runtime import ClientRuntime
from aioprod.config.share_consumer import ShareConsumerConfig
from aioprod.consumer.calls.guard import CallGuard
from aioprod.consumer.notifier import Notifier
from aioprod.consumer.problems import Problems
from aioprod.consumer.record_conversion import RecordConverter
from aioprod.consumer.run_state import RunState
from aioprod.consumer.share.calls import ShareCalls
from aioprod.consumer.share.fetcher import ShareFetcher
from aioprod.consumer.share.in_hand import RecordsInHand
from aioprod.consumer.share.lifecycle import ShareLifecycle
from aioprod.consumer.share.member import ShareMember, new_member_id
from aioprod.consumer.share.outcomes import AcknowledgementCallback, Outcomes
from aioprod.consumer.share.requests import ShareRequests
from aioprod.errors import ConsumerClosedError, ConsumerStateError
from aioprod.interceptors import ConsumerInterceptorChain

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


def build(
    config: ShareConsumerConfig, rng: random.Random, callback: AcknowledgementCallback | None
) -> ShareGraph:
    """Build the collaborators of one share consumer, each from those before it."""
    converter = RecordConverter(
        config.key_deserializer, config.value_deserializer, ConsumerInterceptorChain(()), _REMEDY
    )
    notifier = Notifier()
    problems = Problems(notifier.notify)
    runtime = ClientRuntime(
        config,
        rng,
        kind="share consumer",
        closed_error=ConsumerClosedError,
        not_started_error=ConsumerStateError,
    )
    run_state = RunState(runtime, time.time, on_fault=notifier.notify)
    guard = CallGuard(runtime.loop_binding, run_state, lambda: None, config.default_api_timeout_ms)
    member_id = new_member_id(runtime)
    requests = ShareRequests(
        config, runtime, member_id, lambda node_id: fetcher.holds_locks(node_id)
    )
    outcomes = Outcomes(callback)
    fetcher = ShareFetcher(
        config,
        runtime.metadata,
        requests,
        converter,
        outcomes,
        problems,
        runtime.backoff,
        notifier.notify,
        lambda tp, offset, until: in_hand.renewed(tp, offset, until),
    )
    member = ShareMember(
        config,
        runtime,
        member_id,
        on_assigned=lambda: fetcher.assign(member.assigned),
        on_news=notifier.notify,
        on_idle=fetcher.release,
    )
    in_hand = RecordsInHand(explicit=config.share_acknowledgement_mode == "explicit")
    lifecycle = ShareLifecycle(
        runtime, run_state, guard, member, fetcher, requests, converter, problems
    )
    calls = ShareCalls(
        config,
        guard,
        run_state,
        runtime.metadata,
        member,
        fetcher,
        in_hand,
        outcomes,
        problems,
        notifier,
    )
    return ShareGraph(calls, guard, fetcher, member, lifecycle)
