"""A bug between an answer and the end of its batches leaves no delivery without an outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from aioprod import Delivery, KafkaError, Producer
from aioprod.error_codes import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, fail
from tests.planted_bugs import Bug, Calls, Scenario, waiting_after_bugs

LIMIT_S = 300  # of virtual time
ANSWERS = {
    "stored": ErrorCode.NONE,
    "retried": ErrorCode.NOT_ENOUGH_REPLICAS,
    "refused": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    "split": ErrorCode.MESSAGE_TOO_LARGE,
    "fatal": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


async def _outcome(delivery: Delivery) -> None:
    with suppress(KafkaError, Bug):
        await delivery


def _waiting(
    deliveries: list[Delivery], called: list[Delivery], pending: set[asyncio.Task[None]]
) -> list[str]:
    for task in pending:
        task.cancel()
    found = [f"{len(pending)} tasks wait for deliveries"] if pending else []
    left = sum(not delivery.done() for delivery in deliveries)
    found += [f"{left} deliveries have no outcome"] if left else []
    uncalled = len(deliveries) - len(called)
    return found + ([f"{uncalled} callbacks were not called"] if uncalled else [])


def answered(code: ErrorCode, *, transactional: bool = False) -> Scenario:
    async def scenario(calls: Calls) -> list[str]:
        async with EmbeddedCluster() as broker:
            broker.create_topic("t", 2)
            producer = Producer(
                broker.bootstrap_servers,
                linger_ms=0,
                transactional_id="tx" if transactional else None,
                delivery_timeout_ms=30_000,
                request_timeout_ms=5_000,
            )
            await producer.start()
            if transactional:
                await producer.begin_transaction()
            for partition in range(2):
                await producer.send_and_wait("t", b"first", partition=partition)
            await asyncio.sleep(1)
            if code:
                broker.on(ApiKey.PRODUCE, fail(code), times=1)
            deliveries = [await producer.send("t", b"x", partition=n % 2) for n in range(4)]
            called: list[Delivery] = []
            for delivery in deliveries:
                delivery.add_done_callback(called.append)
            tasks = [asyncio.create_task(_outcome(delivery)) for delivery in deliveries]
            await asyncio.sleep(0)
            with calls.active():
                _, pending = await asyncio.wait(tasks, timeout=LIMIT_S)
            found = _waiting(deliveries, called, pending)
            try:
                async with asyncio.timeout(LIMIT_S):
                    with suppress(KafkaError, Bug):
                        await producer.close(timeout_ms=1_000)
            except TimeoutError:
                found.append("close() waits")
            return found

    return scenario


def ended(end: Callable[[Producer], object]) -> Scenario:
    """All batches end together."""

    async def scenario(calls: Calls) -> list[str]:
        async with EmbeddedCluster() as broker:
            broker.create_topic("t", 2)
            producer = Producer(broker.bootstrap_servers, linger_ms=10_000)
            await producer.start()
            deliveries = [await producer.send("t", b"x", partition=n % 2) for n in range(4)]
            called: list[Delivery] = []
            for delivery in deliveries:
                delivery.add_done_callback(called.append)
            tasks = [asyncio.create_task(_outcome(delivery)) for delivery in deliveries]
            await asyncio.sleep(0)
            with suppress(Bug), calls.active():
                end(producer)
            _, pending = await asyncio.wait(tasks, timeout=LIMIT_S)
            found = _waiting(deliveries, called, pending)
            with suppress(KafkaError, Bug):
                await producer.close(timeout_ms=0)
            return found

    return scenario


SCENARIOS = {
    **{name: answered(code) for name, code in ANSWERS.items()},
    "stored in a transaction": answered(ErrorCode.NONE, transactional=True),
    "refused in a transaction": answered(ErrorCode.TOPIC_AUTHORIZATION_FAILED, transactional=True),
    "aborted": ended(lambda producer: producer._core.accumulator.abort(KafkaError("aborted"))),
    "dropped": ended(lambda producer: producer._core.accumulator.drop_unsent(KafkaError("no"))),
}


QUICK = {"stored", "refused", "aborted", "dropped", "stored in a transaction"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # bugs in tasks
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.faults) for name in SCENARIOS],
)
def test_no_delivery_waits_forever(name: str) -> None:
    assert waiting_after_bugs(SCENARIOS[name], everywhere=False) == []


@pytest.mark.faults
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", SCENARIOS)
def test_no_delivery_waits_forever_after_a_bug_anywhere(name: str) -> None:
    assert waiting_after_bugs(SCENARIOS[name], everywhere=True) == []
