"""Every call of the producer in each state that it can be in: a result or an error, and never a
wait without end.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioprod import (
    ErrorCode,
    KafkaError,
    Producer,
    ProducerClosedError,
    ProducerFencedError,
    TopicPartition,
    TransactionStateError,
    UnsupportedVersionError,
    WrongEventLoopError,
)
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster
from aioprod.testing.broker.actions import fail, hold, hold_answer

LIMIT_S = 5
Call = Callable[[Producer], Awaitable[object]]
Made = tuple[Producer, Callable[[], object]]
"""A producer, and what releases what is delayed to have it in that state."""


async def _block(producer: Producer) -> None:
    async with producer.transaction():
        pass


async def _plain(name: str, producer: Producer) -> object:
    return getattr(producer, name)()


async def _known_partitions(producer: Producer) -> object:
    return producer.known_partitions("t")


CALLS: dict[str, Call] = {
    "start": lambda producer: producer.start(),
    "stop": lambda producer: producer.stop(),
    "close": lambda producer: producer.close(),
    "flush": lambda producer: producer.flush(),
    "partitions_for": lambda producer: producer.partitions_for("t"),
    "send": lambda producer: producer.send("t", b"x"),
    "send_and_wait": lambda producer: producer.send_and_wait("t", b"x"),
    "send_many": lambda producer: producer.send_many("t", [b"x"]),
    "send_arrow": lambda producer: producer.send_arrow("t", pa.table({"value": [b"x"]})),
    "init_transactions": lambda producer: producer.init_transactions(),
    "begin_transaction": lambda producer: producer.begin_transaction(),
    "send_offsets_to_transaction": lambda producer: producer.send_offsets_to_transaction(
        {TopicPartition("t", 0): 1}, "g"
    ),
    "prepare_transaction": lambda producer: producer.prepare_transaction(),
    "commit_transaction": lambda producer: producer.commit_transaction(),
    "abort_transaction": lambda producer: producer.abort_transaction(),
    "transaction": _block,
    "client_instance_id": lambda producer: producer.client_instance_id(),
    **{name: partial(_plain, name) for name in ("metrics", "metrics_by_topic", "metrics_by_node")},
    "known_partitions": _known_partitions,
}
LOOKING = {"metrics", "metrics_by_topic", "metrics_by_node", "known_partitions"}
LIFE = {"start", "stop", "close"}
SENDING = {"send", "send_and_wait", "send_many", "send_arrow"}
ENDING = {
    "send_offsets_to_transaction",
    "prepare_transaction",
    "commit_transaction",
    "abort_transaction",
}
IDENTITY = {"client_instance_id"}  # the broker takes no metrics
BEGINNING = {"init_transactions", "begin_transaction", "transaction"}
FINE = None


def row(*parts: tuple[set[str], type[KafkaError] | None]) -> dict[str, type[KafkaError] | None]:
    """The outcome of each call; metrics can always be read."""
    return {name: outcome for names, outcome in ((LOOKING, FINE), *parts) for name in names}


NOT_STARTED = row(
    (LIFE | {"flush"}, FINE),
    ({"partitions_for"} | SENDING | ENDING | BEGINNING | IDENTITY, ProducerClosedError),
)
CLOSED = {**NOT_STARTED, "start": ProducerClosedError}
ELSEWHERE = row(({*CALLS} - LOOKING, WrongEventLoopError))
TABLE: dict[str, dict[str, type[KafkaError] | None]] = {
    "new": NOT_STARTED,
    "starting": NOT_STARTED,
    "start failed": NOT_STARTED,
    "started": row(
        (LIFE | BEGINNING | {"flush", "partitions_for"}, FINE),
        (SENDING | ENDING, TransactionStateError),
        (IDENTITY, UnsupportedVersionError),
    ),
    "started without transactions": row(
        (LIFE | SENDING | {"flush", "partitions_for"}, FINE),
        (BEGINNING | ENDING, TransactionStateError),
        (IDENTITY, UnsupportedVersionError),
    ),
    "in transaction": row(
        (LIFE | SENDING | ENDING | {"flush", "partitions_for"}, FINE),
        (BEGINNING, TransactionStateError),
        (IDENTITY, UnsupportedVersionError),
    ),
    "fenced": row(
        (LIFE | {"flush"}, FINE),
        ({"partitions_for"} | SENDING | ENDING | BEGINNING, ProducerFencedError),
        (IDENTITY, UnsupportedVersionError),
    ),
    "closing": CLOSED,
    "closed": CLOSED,
    "closed during start": CLOSED,
    "in another loop": ELSEWHERE,
    "in a forked child": ELSEWHERE,
    "its loop is closed": {**ELSEWHERE, "stop": FINE, "close": FINE},
}


def made(broker: EmbeddedCluster, transactional_id: str | None = "x") -> Producer:
    return Producer(
        broker.bootstrap_servers,
        transactional_id=transactional_id,
        max_block_ms=2_000,
        retry_backoff_ms=1,
    )


async def brought_to(state: str, broker: EmbeddedCluster, background: asyncio.TaskGroup) -> Made:
    producer = made(broker, None if state == "started without transactions" else "x")
    if state == "new":
        pass
    elif state == "start failed":
        broker.on(
            ApiKey.INIT_PRODUCER_ID, fail(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), times=1
        )
        with pytest.raises(KafkaError):
            await producer.start()
    elif state in ("starting", "closed during start"):
        asked = broker.request_count(ApiKey.INIT_PRODUCER_ID)
        rule = broker.on(ApiKey.INIT_PRODUCER_ID, hold(), times=1)
        starting = background.create_task(_ignoring(producer.start()))
        await broker.wait_for_request(ApiKey.INIT_PRODUCER_ID, asked + 1)
        if state == "closed during start":
            await producer.close()
            await starting
        return producer, rule.release
    elif state == "its loop is closed":
        await asyncio.to_thread(asyncio.run, producer.start())
    else:
        await producer.start()
    if state == "in transaction":
        await producer.begin_transaction()
    elif state == "closed":
        await producer.close()
    elif state == "closing":
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"delayed")
        asked = broker.request_count(ApiKey.END_TXN)
        rule = broker.on(ApiKey.END_TXN, hold_answer(), times=1)
        background.create_task(producer.close())
        await broker.wait_for_request(ApiKey.END_TXN, asked + 1)
        return producer, rule.release
    elif state == "fenced":
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"of the fenced")
        async with made(broker):
            pass
        for end in (producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(KafkaError):
                await end()
    return producer, lambda: None


async def _ignoring(call: Awaitable[object]) -> None:
    with contextlib.suppress(KafkaError):
        await call


async def outcome_of(call: Awaitable[object]) -> type[BaseException] | None:
    try:
        await call
    except Exception as error:
        return type(error)
    return None


async def called(
    state: str, producer: Producer, call: Call, release: Callable[[], object]
) -> type[BaseException] | None:
    async with asyncio.timeout(LIMIT_S):
        if state == "in another loop":
            return await asyncio.to_thread(asyncio.run, outcome_of(call(producer)))
        calling = asyncio.ensure_future(outcome_of(call(producer)))
        await asyncio.wait([calling], timeout=0.01)  # what waits goes on when that is released
        release()
        return await calling


@contextlib.asynccontextmanager
async def in_state(state: str, broker: EmbeddedCluster) -> AsyncIterator[Made]:
    async with asyncio.timeout(3 * LIMIT_S), asyncio.TaskGroup() as background:
        producer, release = await brought_to(state, broker, background)
        try:
            yield producer, release
        finally:
            release()
            await producer.close(0)


def test_the_table_is_whole() -> None:
    methods = {
        name
        for name, _ in inspect.getmembers(Producer, inspect.isfunction)
        if not name.startswith("_")
    }
    assert methods == set(CALLS)
    assert all(set(outcomes) == methods for outcomes in TABLE.values())


@pytest.mark.parametrize("state", [state for state in TABLE if state != "in a forked child"])
async def test_each_call_in_each_state(broker: EmbeddedCluster, state: str) -> None:
    broker.create_topic("t", 1)
    found = {}
    for name, call in CALLS.items():
        async with in_state(state, broker) as (producer, release):
            found[name] = await called(state, producer, call, release)
    assert found == TABLE[state]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
async def test_each_call_in_a_forked_child(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", 1)
    async with made(broker) as producer, producer.transaction():
        await producer.send_and_wait("t", b"before")
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            _in_child(producer, writing)
        os.close(writing)
        answer = await asyncio.wait_for(asyncio.to_thread(_read_all, reading), LIMIT_S)
        await asyncio.to_thread(os.waitpid, child, 0)
        await producer.send_and_wait("t", b"after")
    expected = {
        name: outcome.__name__ if outcome is not None else "None"
        for name, outcome in TABLE["in a forked child"].items()
    }
    assert dict(line.split() for line in answer.splitlines()) == expected
    assert [record.value for record in broker.records("t")] == [b"before", b"after"], (
        "the parent's connections are as they were"
    )


def _in_child(producer: Producer, writing: int) -> None:
    try:
        asyncio.events._set_running_loop(None)
        loop = asyncio.new_event_loop()
        for name, call in CALLS.items():
            outcome = loop.run_until_complete(asyncio.wait_for(outcome_of(call(producer)), LIMIT_S))
            os.write(
                writing, f"{name} {outcome.__name__ if outcome is not None else None}\n".encode()
            )
    finally:
        os._exit(0)


def _read_all(reading: int) -> str:
    with open(reading) as pipe:
        return pipe.read()


# -- closing ---------------------------------------------------------------------------------------


async def test_the_earliest_limit_of_several_closes_counts(broker: EmbeddedCluster) -> None:
    producer = made(broker, None)
    await producer.start()
    await producer.send_and_wait("t", b"x")
    rule = broker.on_every(ApiKey.PRODUCE, hold())
    delivery = await producer.send("t", b"delayed")
    await broker.wait_for_request(ApiKey.PRODUCE, 2)
    closes = [asyncio.create_task(producer.close(limit)) for limit in (60_000, None, 40_000)]
    await asyncio.wait(closes, timeout=0.02)
    assert not any(close.done() for close in closes) and not delivery.done()
    async with asyncio.timeout(LIMIT_S):
        await producer.close(timeout_ms=20)
        await asyncio.gather(*closes)
    assert isinstance(delivery.exception(), ProducerClosedError)
    rule.cancel()
    rule.release()


@pytest.mark.parametrize("lengthening", [60_000, None])
async def test_a_later_limit_does_not_lengthen_an_earlier_one(
    broker: EmbeddedCluster, lengthening: float | None
) -> None:
    producer = made(broker, None)
    await producer.start()
    rule = broker.on_every(ApiKey.PRODUCE, hold())
    await producer.send("t", b"delayed")
    first = asyncio.create_task(producer.close(timeout_ms=50))
    await asyncio.sleep(0)
    async with asyncio.timeout(LIMIT_S):
        await producer.close(lengthening)
        await first
    rule.cancel()
    rule.release()


async def test_a_delivery_is_awaited_in_the_producers_loop(broker: EmbeddedCluster) -> None:
    async with Producer(broker.bootstrap_servers, linger_ms=60_000) as producer:
        delivery = await producer.send("t", b"x")

        async def wait() -> None:
            with pytest.raises(WrongEventLoopError, match="run_coroutine_threadsafe"):
                await delivery

        await asyncio.to_thread(asyncio.run, wait())
        await producer.flush()
        # A known outcome can be read in any event loop.
        await asyncio.to_thread(asyncio.run, outcome_of(delivery))


async def test_sends_of_another_thread_are_refused_on_the_fast_path_too(
    broker: EmbeddedCluster,
) -> None:
    """It asks once a millisecond: more would make it slower."""
    clock = iter(range(1_000_000))
    async with Producer(
        broker.bootstrap_servers, linger_ms=60_000, clock=lambda: float(next(clock))
    ) as producer:
        await producer.partitions_for("t")
        for _ in range(3):
            await producer.send("t", b"x")
        for _ in range(3):
            assert (
                await asyncio.to_thread(asyncio.run, outcome_of(producer.send("t", b"of another")))
                is WrongEventLoopError
            )
    assert [record.value for record in broker.records("t")] == [b"x"] * 3
