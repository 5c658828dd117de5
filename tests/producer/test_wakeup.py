"""The sender runs once for all wake-ups in an iteration of the event loop, at the earliest
scheduled time, and in its own context. A response wakes it only if there may be a batch to send.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioprod import Producer
from aioprod.producer.wakeup import NEVER, SenderWakeup
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, hold
from aioprod.testing.simulation import run
from tests.waiting import until

variable = contextvars.ContextVar("variable", default="unset")


class Runs(list[float]):
    """The times at which the sender runs. It asks for another run ``again`` seconds later."""

    def __init__(self, again: float = NEVER) -> None:
        super().__init__()
        self.again = again

    def send(self, now: float) -> float:
        self.append(now)
        return now + self.again


@asynccontextmanager
async def running(wakeup: SenderWakeup, send: Callable[[float], float]) -> AsyncIterator[None]:
    task = asyncio.create_task(wakeup.run(send))
    await asyncio.sleep(0.001)  # its first run
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def test_wake_ups_of_one_turn_make_it_run_once() -> None:
    async def scenario() -> None:
        runs, wakeup = Runs(), SenderWakeup()
        async with running(wakeup, runs.send):
            runs.clear()
            for _ in range(5):
                wakeup.wake()
            assert runs == [], "not within the call that wakes it"
            await asyncio.sleep(0)
            assert len(runs) == 1
            await asyncio.sleep(1)
            assert len(runs) == 1

    run(scenario())


def test_it_runs_at_the_earliest_time_and_at_the_time_that_it_returns() -> None:
    async def scenario() -> None:
        runs: list[float] = []
        loop = asyncio.get_running_loop()
        begun = loop.time()
        wakeup = SenderWakeup()

        def send(now: float) -> float:
            runs.append(now - begun)
            return begun + 9 if now - begun < 9 else NEVER

        async with running(wakeup, send):
            runs.clear()
            wakeup.wake(begun + 7)
            wakeup.wake(begun + 5)
            wakeup.wake(begun + 6)
            await asyncio.sleep(20)
        # At 5, the run asks for the time 9. The alarm for 7 was set before, and stays; 6 was later
        # than the first one.
        assert [round(at, 3) for at in runs] == [5.0, 7.0, 9.0]

    run(scenario())


def test_what_wakes_it_while_it_runs_makes_it_run_again() -> None:
    async def scenario() -> None:
        runs: list[float] = []
        wakeup = SenderWakeup()

        def send(now: float) -> float:
            runs.append(now)
            if len(runs) < 4:
                wakeup.wake()
            return NEVER

        async with running(wakeup, send):
            await asyncio.sleep(1)
            assert len(runs) == 4

    run(scenario())


def test_an_alarm_that_rings_does_not_make_it_run_twice() -> None:
    async def scenario() -> None:
        runs, wakeup = Runs(), SenderWakeup()
        loop = asyncio.get_running_loop()
        async with running(wakeup, runs.send):
            runs.clear()
            wakeup.wake(loop.time() + 1)
            loop.call_at(loop.time() + 1, wakeup.wake)  # in the same turn, before or after it
            await asyncio.sleep(2)
            assert 1 <= len(runs) <= 2
            runs.clear()
            await asyncio.sleep(10)
            assert runs == []

    run(scenario())


async def test_it_runs_in_its_own_context() -> None:
    seen: list[str] = []
    wakeup = SenderWakeup()

    def send(now: float) -> float:
        seen.append(variable.get())
        return NEVER

    async with running(wakeup, send):
        variable.set("the caller's")
        wakeup.wake()
        await asyncio.sleep(0.001)
        wakeup.wake(asyncio.get_running_loop().time() + 0.001)
        await asyncio.sleep(0.01)
    assert seen == ["unset"] * 3


async def test_an_error_ends_it() -> None:
    wakeup = SenderWakeup()

    def send(now: float) -> float:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await wakeup.run(send)
    wakeup.wake()
    await asyncio.sleep(0)


async def test_it_does_not_run_after_its_end() -> None:
    runs, wakeup = Runs(again=0.001), SenderWakeup()
    async with running(wakeup, runs.send):
        wakeup.wake()
    runs.clear()
    wakeup.wake()
    await asyncio.sleep(0.01)
    assert runs == []


async def test_it_may_run_again_after_its_end() -> None:
    # A start that failed is followed by another one.
    runs, wakeup = Runs(again=60), SenderWakeup()
    async with running(wakeup, runs.send):
        wakeup.wake()
    for _ in range(2):
        runs.clear()
        async with running(wakeup, runs.send):
            assert len(runs) == 1
            wakeup.wake()
            wakeup.wake(asyncio.get_running_loop().time() + 0.001)
            await asyncio.sleep(0.01)
            assert len(runs) == 2
            wakeup.wake()


async def in_flight(producer: Producer, requests: int) -> None:
    """Wait until this number of requests are in flight."""
    await until(lambda: producer.metrics()["requests-in-flight"] == requests)


@asynccontextmanager
async def two_in_flight(**settings: Any) -> AsyncIterator[tuple[Producer, list[asyncio.Event]]]:
    """Run a producer with two Produce requests in flight, for the partitions 0 and 1. The broker
    handles each when its event is set.
    """
    async with EmbeddedCluster() as broker:
        broker.create_topic("t", 3)
        async with Producer(broker.bootstrap_servers, linger_ms=0, **settings) as producer:
            for partition in range(3):
                await producer.send_and_wait("t", b"first", partition=partition)
            events = [asyncio.Event(), asyncio.Event()]
            for number, event in enumerate(events):
                broker.on(ApiKey.PRODUCE, hold(event), times=1)
                await producer.send("t", b"second", partition=number)
                await in_flight(producer, number + 1)
            try:
                yield producer, events
            finally:
                for event in events:
                    event.set()


def looks(monkeypatch: pytest.MonkeyPatch, producer: Producer) -> list[float]:
    """Return a list that gets the time of each look at the partitions by the sender."""
    times: list[float] = []
    advance = producer._accumulator.advance

    def noted(now: float) -> float:
        times.append(now)
        return advance(now)

    monkeypatch.setattr(producer._accumulator, "advance", noted)
    return times


def test_a_response_does_not_wake_it_while_nothing_can_be_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with two_in_flight() as (producer, (first, second)):
            times = looks(monkeypatch, producer)
            first.set()
            await in_flight(producer, 1)
            await asyncio.sleep(0.1)
            assert times == [], "the batch of the other request is in flight"
            second.set()
            await in_flight(producer, 0)
            await asyncio.sleep(0.1)
            assert times == [], "no batch is left"
            await producer.send_and_wait("t", b"another")
            assert len(times) == 1

    run(scenario())


def test_a_response_wakes_it_if_a_batch_waits_for_a_free_request() -> None:
    async def scenario() -> None:
        settings = {"max_in_flight_requests_per_connection": 2}
        async with two_in_flight(**settings) as (producer, (first, second)):
            sent = producer.metrics()["request-total"]
            delivery = await producer.send("t", b"waits", partition=2)
            await asyncio.sleep(0.1)
            assert producer.metrics()["request-total"] == sent
            first.set()
            await asyncio.sleep(0.1)  # the silence of the second request would wake it after 1 s
            assert producer.metrics()["request-total"] == sent + 1
            second.set()
            await delivery

    run(scenario())
