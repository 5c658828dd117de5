"""Retrying with backoff until a deadline, on the clock of the event loop."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from aioprod.cluster.retry import RetryLimit, retry
from aioprod.errors import (
    BrokerConnectionError,
    KafkaError,
    KafkaTimeoutError,
    RequestTimedOutError,
)
from aioprod.net.backoff import Backoff
from aioprod.testing.simulation import run

LIMIT = RetryLimit(1_000, "looking for a broker", "request_timeout_ms")


class Attempts:
    """Attempts with the given outcomes: an error, a result, or a number of seconds to hang."""

    def __init__(self, *outcomes: KafkaError | float | str) -> None:
        self.outcomes = list(outcomes)
        self.begun: list[float] = []
        self.cancelled = 0

    async def __call__(self) -> str:
        self.begun.append(now())
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, str):
            return outcome
        if isinstance(outcome, KafkaError):
            raise outcome
        try:
            await asyncio.sleep(outcome)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        raise AssertionError("the attempt was not cancelled")


def now() -> float:
    return round(asyncio.get_running_loop().time(), 3)


def simulated(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test in virtual time."""

    @wraps(test)
    def run_test() -> None:
        run(test())

    return run_test


def rising(failures: int) -> float:
    """0.1 s, 0.2 s, 0.3 s ..."""
    return 0.1 * failures


def always(error: KafkaError) -> bool:
    return True


@simulated
async def test_the_first_success_is_returned_after_pauses_that_grow() -> None:
    attempts = Attempts(KafkaError("a"), KafkaError("b"), KafkaError("c"), "done")
    begun = now()
    assert await retry(attempts, rising, is_retriable=always) == "done"
    assert [round(each - begun, 3) for each in attempts.begun] == [0, 0.1, 0.3, 0.6]


@simulated
async def test_a_success_at_once_waits_for_nothing() -> None:
    begun = now()
    assert await retry(Attempts("done"), rising, is_retriable=always, limit=LIMIT) == "done"
    assert now() == begun


@simulated
async def test_the_pauses_may_come_from_a_backoff() -> None:
    attempts = Attempts(KafkaError("a"), KafkaError("b"), "done")
    begun = now()
    backoff = Backoff(100, 1_000, random.Random(1))
    await retry(attempts, backoff.seconds, is_retriable=always)
    assert 0.08 <= attempts.begun[1] - begun <= 0.12
    assert 0.16 <= attempts.begun[2] - attempts.begun[1] <= 0.24


@simulated
async def test_an_error_that_is_not_retriable_is_raised_unchanged() -> None:
    final = BrokerConnectionError("final")
    attempts = Attempts(KafkaError("a"), final, "done")
    with pytest.raises(BrokerConnectionError) as raised:
        await retry(attempts, rising, is_retriable=lambda error: error is not final)
    assert raised.value is final
    assert attempts.outcomes == ["done"]


@simulated
async def test_other_exceptions_are_not_retried() -> None:
    async def attempt() -> None:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        await retry(attempt, rising, is_retriable=always)


@simulated
async def test_the_last_error_is_raised_at_once_if_the_pause_would_pass_the_deadline() -> None:
    last = KafkaError("c")
    attempts = Attempts(KafkaError("a"), KafkaError("b"), last, "done")
    begun = now()
    with pytest.raises(KafkaError) as raised:
        await retry(attempts, rising, is_retriable=always, deadline=begun + 0.5)
    assert raised.value is last
    assert now() == round(begun + 0.3, 3)


@simulated
async def test_a_deadline_does_not_cancel_an_attempt_but_a_limit_does() -> None:
    attempts = Attempts(KafkaError("refused"), 5.0)
    begun = now()
    with pytest.raises(KafkaTimeoutError) as raised:
        await retry(attempts, rising, is_retriable=always, limit=LIMIT)
    assert now() == round(begun + 1, 3)
    assert attempts.cancelled == 1
    assert str(raised.value) == (
        "looking for a broker: not done within request_timeout_ms=1000; the last problem: refused"
    )
    assert isinstance(raised.value.__cause__, KafkaError)
    assert str(raised.value.__cause__) == "refused"

    async def slow() -> str:
        await asyncio.sleep(5)
        return "done"

    deadline = now() + 1
    assert await retry(slow, rising, is_retriable=always, deadline=deadline) == "done"


@simulated
async def test_the_error_of_a_limit_has_the_type_that_the_caller_names() -> None:
    limit = RetryLimit(1_000, "asking", "request_timeout_ms", RequestTimedOutError)
    with pytest.raises(RequestTimedOutError) as raised:
        await retry(Attempts(5.0), rising, is_retriable=always, limit=limit)
    assert str(raised.value) == "asking: not done within request_timeout_ms=1000"
    assert raised.value.__cause__ is None


@simulated
async def test_the_earlier_of_limit_and_deadline_counts() -> None:
    begun = now()
    for deadline, last in ((begun + 0.2, 0.1), (begun + 60, 0.6)):
        attempts = Attempts(*[KafkaError("a")] * 20)
        began = now()
        with pytest.raises(KafkaError, match="a"):
            await retry(attempts, rising, is_retriable=always, limit=LIMIT, deadline=deadline)
        assert round(attempts.begun[-1] - began, 3) == last


@simulated
async def test_failures_are_reported_before_each_pause() -> None:
    seen: list[tuple[str, int, float]] = []
    attempts = Attempts(KafkaError("a"), KafkaError("b"), KafkaError("final"))
    begun = now()
    with pytest.raises(KafkaError, match="final"):
        await retry(
            attempts,
            rising,
            is_retriable=lambda error: str(error) != "final",
            on_failure=lambda error, failures: seen.append(
                (str(error), failures, round(now() - begun, 3))
            ),
        )
    assert seen == [("a", 1, 0), ("b", 2, 0.1)], "an error that is raised is not reported"


@simulated
async def test_a_cancellation_during_an_attempt_or_a_pause_ends_it() -> None:
    for attempts in (Attempts(5.0, "done"), Attempts(KafkaError("a"), "done")):
        task = asyncio.ensure_future(retry(attempts, lambda _: 5.0, is_retriable=always))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(60)
        assert attempts.outcomes == ["done"], "no attempt begins after the cancellation"


@simulated
async def test_a_cancellation_from_outside_is_not_taken_for_the_limit() -> None:
    task = asyncio.ensure_future(retry(Attempts(5.0), rising, is_retriable=always, limit=LIMIT))
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@simulated
async def test_the_pause_may_end_early_or_raise() -> None:
    async def wake_at_once(seconds: float) -> None:
        assert seconds == pytest.approx(0.1)

    begun = now()
    attempts = Attempts(KafkaError("a"), "done")
    assert await retry(attempts, rising, is_retriable=always, sleep=wake_at_once) == "done"
    assert now() == begun

    async def closed(seconds: float) -> None:
        raise KafkaError("closed")

    with pytest.raises(KafkaError, match="closed"):
        await retry(Attempts(KafkaError("a")), rising, is_retriable=always, sleep=closed)


async def test_a_failed_retry_leaves_no_reference_cycle() -> None:
    class Owner:
        async def fail(self) -> None:
            raise KafkaError("a")

    async def fail_twice() -> weakref.ref[Owner]:
        owner = Owner()
        deadline = asyncio.get_running_loop().time() + 0.01
        with pytest.raises(KafkaError):
            await retry(owner.fail, lambda _: 0.006, is_retriable=always, deadline=deadline)
        return weakref.ref(owner)

    gc.disable()
    try:
        assert (await fail_twice())() is None
    finally:
        gc.enable()
