"""Requests of a connection that was given up are handled late, when their batches have been sent
again or given up.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from aioprod import BrokerError, DeliveryTimeoutError, ErrorCode, KafkaError, Producer
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, drop_before, fail, hold_answer
from aioprod.testing.simulation import run

SETTINGS: dict[str, Any] = {
    "linger_ms": 0,
    "batch_size": 120,
    "request_timeout_ms": 100,
    "delivery_timeout_ms": 101,
    "retry_backoff_ms": 15,
    "retry_backoff_max_ms": 15,
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 1,
}


class Outcome(NamedTuple):
    errors: list[KafkaError | None]
    values: list[bytes | None]


async def lose_a_connection_with_three_requests() -> Outcome:
    """The first is stored and not answered, two wait after it. When the third has been sent again,
    and refused, the old connection is read on.
    """
    released = asyncio.Event()
    async with (
        EmbeddedCluster() as cluster,
        Producer(cluster.bootstrap_servers, **SETTINGS) as producer,
    ):
        await producer.send_and_wait("t", b"warm", partition=0)
        rule = cluster.on(ApiKey.PRODUCE, hold_answer(released))
        deliveries = [await producer.send("t", b"first", partition=0)]
        await asyncio.sleep(0.001)
        deliveries.append(await producer.send("t", b"second", partition=0))
        await asyncio.sleep(0.05)
        deliveries.append(await producer.send("t", b"third", partition=0))
        # The next to come is the second attempt at the third: the broker reads the old connection
        # only when the answer there is out.
        await cluster.wait_for_request(ApiKey.PRODUCE, cluster.request_count(ApiKey.PRODUCE) + 1)
        released.set()
        errors: list[KafkaError | None] = []
        for delivery in deliveries:
            try:
                await delivery
            except KafkaError as error:
                errors.append(error)
            else:
                errors.append(None)
        assert rule.used == 1
        # What comes afterwards is not delayed.
        await producer.send_and_wait("t", b"afterwards", partition=0)
        return Outcome(errors, [record.value for record in cluster.records("t")])


def test_what_may_come_late_is_not_written_again_under_another_epoch() -> None:
    """Found by the simulation: a sequence that is refused because earlier ones are missing is not
    stored now, but its first copy may still be.
    """
    outcome = run(lose_a_connection_with_three_requests())
    first, second, third = outcome.errors
    assert isinstance(first, DeliveryTimeoutError)
    assert isinstance(second, DeliveryTimeoutError)
    assert third is None  # asked again as it was, the broker knew it
    assert outcome.values == [b"warm", b"first", b"second", b"third", b"afterwards"]


async def lose_what_came_before() -> tuple[Outcome, float]:
    """The broker has lost what it had of the producer, and a request is lost with its
    connection.
    """
    async with (
        EmbeddedCluster() as cluster,
        Producer(
            cluster.bootstrap_servers, **{**SETTINGS, "delivery_timeout_ms": 60_000}
        ) as producer,
    ):
        await producer.send_and_wait("t", b"warm", partition=0)
        cluster.on(ApiKey.PRODUCE, drop_before())
        refusals = cluster.on_every(ApiKey.PRODUCE, fail(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
        began = asyncio.get_running_loop().time()
        errors: list[KafkaError | None] = []
        try:
            await producer.send_and_wait("t", b"lost", partition=0)
        except KafkaError as error:
            errors.append(error)
        took = asyncio.get_running_loop().time() - began
        assert refusals.used > 1
        cluster.clear_rules()
        await producer.send_and_wait("t", b"afterwards", partition=0)
        return Outcome(errors, [record.value for record in cluster.records("t")]), took


def test_what_never_comes_late_is_waited_for_as_long_as_for_an_answer() -> None:
    outcome, took = run(lose_what_came_before())
    (error,) = outcome.errors
    assert isinstance(error, BrokerError)
    assert error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert 0.1 <= took < 0.3
    assert outcome.values == [b"warm", b"afterwards"]
