"""Each response to a request about metrics (KIP-714) leads to the right next step."""

from __future__ import annotations

import random
import statistics
import uuid
from typing import Any

import pytest

from aioprod.cluster.telemetry_plan import DEFAULT_INTERVAL_MS, Step, TelemetryPlan
from aioprod.codecs import Codec
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerConnectionError, BrokerError, UnsupportedVersionError
from aioprod.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsResponse,
)

INTERVAL_MS = 1_000


def reply(**fields: Any) -> GetTelemetrySubscriptionsResponse:
    return GetTelemetrySubscriptionsResponse(
        **{
            "client_instance_id": uuid.UUID(int=7),
            "subscription_id": 3,
            "accepted_compression_types": [4, 3, 1, 2],
            "push_interval_ms": INTERVAL_MS,
            "telemetry_max_bytes": 5_000,
            "delta_temporality": True,
            "requested_metrics": ["*"],
            **fields,
        }
    )


def plan(subscribed: bool = True, seed: int = 0) -> TelemetryPlan:
    made = TelemetryPlan(random.Random(seed), 100)
    if subscribed:
        made.subscribed(reply())
    return made


def test_the_subscription_is_asked_for_at_once() -> None:
    made = plan(subscribed=False)
    assert (made.step, made.pause_s) == (Step.SUBSCRIBE, 0)


def test_the_first_push_is_spread_over_an_interval() -> None:
    pauses = [plan(seed=seed).pause_s for seed in range(1_000)]
    assert 0.5 <= min(pauses) < 0.51 and 1.49 < max(pauses) <= 1.5
    assert statistics.mean(pauses) == pytest.approx(1.0, abs=0.05)


def test_later_pushes_come_each_interval() -> None:
    made = plan()
    assert made.step is Step.PUSH
    for _ in range(3):
        made.pushed(0)
        assert (made.step, made.pause_s) == (Step.PUSH, 1.0)


def test_a_client_that_is_asked_for_nothing_asks_again() -> None:
    made = plan(subscribed=False)
    made.subscribed(reply(requested_metrics=[]))
    assert (made.step, made.pause_s) == (Step.SUBSCRIBE, 1.0)


def test_all_fields_of_a_subscription_are_used() -> None:
    asked = plan().subscription
    assert asked is not None
    assert (asked.id, asked.interval_s, asked.max_bytes, asked.delta) == (3, 1.0, 5_000, True)
    assert asked.codec is Codec.ZSTD
    assert asked.selection.prefixes == ("*",)


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        ([2, 4], Codec.SNAPPY),
        ([9, -1, 1], Codec.GZIP),
        ([], Codec.NONE),
        ([9], Codec.NONE),
        ([0, 4], Codec.NONE),
    ],
)
def test_the_first_known_codec_is_used(accepted: list[int], chosen: Codec) -> None:
    made = plan(subscribed=False)
    made.subscribed(reply(accepted_compression_types=accepted))
    assert made.subscription is not None and made.subscription.codec is chosen


@pytest.mark.parametrize(
    ("reported_ms", "used_s"),
    [
        (0, DEFAULT_INTERVAL_MS / 1000),
        (-1, DEFAULT_INTERVAL_MS / 1000),
        (1, 0.1),
        (100, 0.1),
        (2**31 - 1, 3_600),
    ],
)
def test_the_interval_is_bounded(reported_ms: int, used_s: float) -> None:
    made = plan(subscribed=False)
    made.subscribed(reply(push_interval_ms=reported_ms, telemetry_max_bytes=-1))
    assert made.subscription is not None
    assert made.subscription.interval_s == used_s
    assert made.subscription.max_bytes == 1 << 20
    made.pushed(0)
    assert made.pause_s == used_s


def test_an_unknown_subscription_is_asked_for_at_once_but_not_again_and_again() -> None:
    made = plan()
    made.pushed(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
    assert (made.step, made.pause_s) == (Step.SUBSCRIBE, 0)
    made.subscribed(reply(subscription_id=4))
    made.pushed(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
    assert (made.step, made.pause_s) == (Step.SUBSCRIBE, 1.0)
    made.subscribed(reply(subscription_id=5))
    made.pushed(0)
    made.pushed(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
    assert (made.step, made.pause_s) == (Step.SUBSCRIBE, 0)


def test_a_refused_codec_is_not_used_again() -> None:
    made = plan()
    for expected in (Codec.LZ4, Codec.GZIP, Codec.SNAPPY, Codec.NONE):
        made.pushed(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        assert made.step is Step.SUBSCRIBE
        made.subscribed(reply())
        assert made.subscription is not None and made.subscription.codec is expected


@pytest.mark.parametrize(
    "code", [ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.TELEMETRY_TOO_LARGE]
)
def test_a_push_that_was_too_early_or_too_large_waits_for_the_interval(code: ErrorCode) -> None:
    made = plan()
    made.pushed(code)
    assert (made.step, made.pause_s, made.elsewhere) == (Step.SUBSCRIBE, 1.0, False)


def test_a_throttled_request_is_sent_again_after_the_interval() -> None:
    made = plan(subscribed=False)
    made.subscribed(reply(error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED))
    assert (made.step, made.pause_s) == (Step.SUBSCRIBE, DEFAULT_INTERVAL_MS / 1000)
    made = plan()
    made.subscribed(reply(error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED))
    assert (made.step, made.pause_s) == (Step.SUBSCRIBE, 1.0)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        999,
    ],
)
def test_an_error_that_would_come_again_ends_the_pushes(code: int) -> None:
    made = plan()
    made.pushed(code)
    assert made.step is Step.STOP
    assert isinstance(made.problem, BrokerError)
    made = plan(subscribed=False)
    made.subscribed(reply(error_code=code))
    assert made.step is Step.STOP


def test_temporary_errors_are_retried_elsewhere_with_a_growing_pause() -> None:
    made = plan()
    pauses = []
    for _ in range(8):
        made.pushed(ErrorCode.REQUEST_TIMED_OUT)
        assert made.step is Step.PUSH and made.elsewhere
        pauses.append(made.pause_s)
    assert 0.08 <= pauses[0] <= 0.12
    assert pauses[1] > pauses[0] and pauses[-1] == 1.0  # the interval
    made.pushed(0)
    assert (made.failures, made.problem, made.elsewhere) == (0, None, False)


def test_a_lost_connection_repeats_the_step() -> None:
    for subscribed, step in ((False, Step.SUBSCRIBE), (True, Step.PUSH)):
        made = plan(subscribed)
        made.failed(BrokerConnectionError("lost"))
        assert (made.step, made.elsewhere) == (step, True)
        assert 0.08 <= made.pause_s <= 0.12


def test_brokers_without_a_receiver_get_another_request_after_minutes() -> None:
    made = plan()
    made.failed(UnsupportedVersionError("none"))
    assert (made.step, made.pause_s) == (Step.PUSH, DEFAULT_INTERVAL_MS / 1000)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_brokers_answer_requests_have_pauses(seed: int) -> None:
    """In any sequence of answers no two requests in a row come without a pause."""
    rng = random.Random(seed)
    made = TelemetryPlan(rng, 100)
    at_once = 0
    for _ in range(500):
        if made.step is Step.STOP:
            break
        at_once = at_once + 1 if made.pause_s == 0 else 0
        assert at_once <= 1
        code = rng.choice([0, 0, 0, 117, 76, 118, 89, 7, 87 if rng.random() < 0.01 else 0])
        if made.step is Step.PUSH:
            made.pushed(code)
        else:
            made.subscribed(reply(error_code=code, push_interval_ms=rng.choice([-1, 0, 100])))
