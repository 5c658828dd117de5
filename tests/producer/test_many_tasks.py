"""Ten thousand tasks and a small buffer, and brokers that are gone permanently: everything has an
outcome in its time, and nothing stays behind.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioprod import (
    BufferExhaustedError,
    Delivery,
    DeliveryTimeoutError,
    KafkaError,
    MetadataTimeoutError,
    Producer,
    ProducerClosedError,
)
from aioprod.config.addresses import split_address
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, hold
from tests.plain_server import serving
from tests.waiting import until

TASKS = 10_000
SMALL_BUFFER = 1_048_576
LIMIT_SECONDS = 60.0
SLACK_SECONDS = 5.0
DELIVERY_TIMEOUT_MS = 600
SHORT: dict[str, Any] = {
    "delivery_timeout_ms": DELIVERY_TIMEOUT_MS,
    "request_timeout_ms": 300,
    "max_block_ms": 5_000,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 100,
    "reconnect_backoff_ms": 20,
    "reconnect_backoff_max_ms": 100,
    "socket_connection_setup_timeout_ms": 200,
}


async def nothing_pending(producer: Producer) -> None:
    """No batch, no byte of the buffer and no task that waits; and no request, once the last one has
    had its request.timeout.ms.
    """
    metrics = producer.metrics()
    assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]
    assert metrics["waiting-threads"] == 0
    async with asyncio.timeout(SHORT["request_timeout_ms"] / 1000 + SLACK_SECONDS):
        await until(lambda: not producer.metrics()["requests-in-flight"])


# -- many tasks, little memory ---------------------------------------------------------------------


async def test_ten_thousand_tasks_share_a_mebibyte(broker: EmbeddedCluster) -> None:
    async with (
        asyncio.timeout(LIMIT_SECONDS),
        Producer(broker.bootstrap_servers, buffer_memory=SMALL_BUFFER) as producer,
    ):

        async def one(task: int) -> None:
            first = await producer.send_and_wait("t", b"%05d 0" % task + b"x" * 150)
            second = await producer.send_and_wait("t", b"%05d 1" % task + b"x" * 150)
            assert first.offset < second.offset

        await asyncio.gather(*(one(task) for task in range(TASKS)))
        await nothing_pending(producer)
    stored = Counter((record.value or b"")[:7] for record in broker.records("t"))
    assert stored == Counter(
        b"%05d %d" % (task, turn) for task in range(TASKS) for turn in range(2)
    )


async def test_tasks_that_give_up_while_they_wait_for_memory_delay_no_other(
    broker: EmbeddedCluster,
) -> None:
    """Every third of them is cancelled at the moment when the buffer is full and the broker does
    not answer.
    """
    answer = asyncio.Event()
    async with (
        asyncio.timeout(LIMIT_SECONDS),
        Producer(broker.bootstrap_servers, buffer_memory=SMALL_BUFFER) as producer,
    ):
        await producer.send_and_wait("t", b"first")
        broker.on(ApiKey.PRODUCE, hold(answer), times=None)
        tasks = [
            asyncio.create_task(producer.send_and_wait("t", b"%05d" % number + b"x" * 1_000))
            for number in range(3_000)
        ]
        await until(lambda: producer.metrics()["waiting-threads"] > 0)
        cancelled = tasks[::3]
        for task in cancelled:
            task.cancel()
        answer.set()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        await nothing_pending(producer)
    stored = Counter((record.value or b"")[:5] for record in broker.records("t"))
    assert not stored - Counter({b"first": 1} | {b"%05d" % number: 1 for number in range(3_000)}), (
        "a record was written twice"
    )
    for number, outcome in enumerate(outcomes):
        if number % 3:
            assert not isinstance(outcome, BaseException)
            assert stored[b"%05d" % number] == 1


# -- unreachable permanently ---------------------------------------------------------------------


@asynccontextmanager
async def no_server_listens(broker: EmbeddedCluster) -> AsyncIterator[None]:
    """The broker goes; connecting to its port is refused."""
    await broker.stop()
    yield


@asynccontextmanager
async def silence(broker: EmbeddedCluster) -> AsyncIterator[None]:
    """Another one takes the broker's port, accepts connections, reads what comes and never says a
    word.
    """
    host, port = split_address(broker.bootstrap_servers)
    await broker.stop()

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            pass

    async with serving(swallow, host, port):
        yield


@asynccontextmanager
async def no_answer_to_produce(broker: EmbeddedCluster) -> AsyncIterator[None]:
    """Everything is answered but what matters."""
    broker.on(ApiKey.PRODUCE, hold(asyncio.Event()), times=None)
    yield


Gone = Callable[[EmbeddedCluster], contextlib.AbstractAsyncContextManager[None]]


@pytest.fixture(
    params=[no_server_listens, silence, no_answer_to_produce], ids=lambda way: way.__name__
)
def gone(request: pytest.FixtureRequest) -> Gone:
    way: Gone = request.param
    return way


async def outcome(work: Awaitable[object]) -> BaseException | None:
    try:
        await work
    except KafkaError as error:
        return error
    return None


@pytest.mark.virtual_time
async def test_every_delivery_fails_at_its_time_out(broker: EmbeddedCluster, gone: Gone) -> None:
    loop = asyncio.get_running_loop()
    async with (
        asyncio.timeout(LIMIT_SECONDS),
        Producer(broker.bootstrap_servers, batch_size=500, **SHORT) as producer,
    ):
        await producer.send_and_wait("t", b"first")
        async with gone(broker):
            # The second wave is sent after the client has noticed the loss.
            for wave in range(2):
                sent_at, ended_at = loop.time(), list[float]()
                deliveries = [
                    await producer.send("t", b"%d %04d" % (wave, number)) for number in range(500)
                ]
                for delivery in deliveries:
                    delivery.add_done_callback(
                        lambda _, ended_at=ended_at: ended_at.append(loop.time())  # type: ignore[misc]
                    )
                async with asyncio.timeout(DELIVERY_TIMEOUT_MS / 1000 + SLACK_SECONDS):
                    for delivery in deliveries:
                        assert isinstance(await outcome(delivery), DeliveryTimeoutError)
                assert len(ended_at) == len(deliveries)
                assert min(ended_at) - sent_at >= DELIVERY_TIMEOUT_MS / 1000
            await nothing_pending(producer)
    assert {record.value for record in broker.records("t")} >= {b"first"}


@pytest.mark.virtual_time
async def test_ten_thousand_tasks_all_learn_of_it(broker: EmbeddedCluster, gone: Gone) -> None:
    """Those in front time out with their batches, those that wait for memory get it then and time
    out as well, or run into max.block.ms.
    """
    async with (
        asyncio.timeout(LIMIT_SECONDS),
        Producer(broker.bootstrap_servers, buffer_memory=SMALL_BUFFER, **SHORT) as producer,
    ):
        await producer.send_and_wait("t", b"first")
        async with gone(broker):
            outcomes = await asyncio.gather(
                *(outcome(producer.send_and_wait("t", b"x" * 150)) for _ in range(TASKS))
            )
            assert {type(error) for error in outcomes} <= {
                DeliveryTimeoutError,
                BufferExhaustedError,
            }
            assert DeliveryTimeoutError in {type(error) for error in outcomes}
            await nothing_pending(producer)


@pytest.mark.virtual_time
async def test_waiting_for_memory_ends_with_max_block(broker: EmbeddedCluster, gone: Gone) -> None:
    """The buffer is full and stays so: delivery has far more time than a task may wait for
    memory.
    """
    settings = {**SHORT, "delivery_timeout_ms": 60_000, "max_block_ms": 200}
    async with asyncio.timeout(LIMIT_SECONDS):
        producer = Producer(
            broker.bootstrap_servers, batch_size=1_000, buffer_memory=10_000, **settings
        )
        await producer.start()
        await producer.send_and_wait("t", b"first")
        async with gone(broker):
            outcomes = await asyncio.gather(
                *(outcome(producer.send("t", b"x" * 400)) for _ in range(100))
            )
            refused = [error for error in outcomes if error is not None]
            assert 0 < len(refused) < 100
            assert {type(error) for error in refused} == {BufferExhaustedError}
            await producer.close(timeout_ms=100)
            await nothing_pending(producer)


@pytest.mark.virtual_time
@pytest.mark.parametrize("timeout_ms", [0, 200])
async def test_close_returns_in_its_time_and_fails_what_is_left(
    broker: EmbeddedCluster, gone: Gone, timeout_ms: int
) -> None:
    before = asyncio.all_tasks()
    async with asyncio.timeout(LIMIT_SECONDS):
        settings = {**SHORT, "delivery_timeout_ms": 60_000, "max_block_ms": 60_000}
        producer = Producer(
            broker.bootstrap_servers, batch_size=1_000, buffer_memory=50_000, **settings
        )
        await producer.start()
        await producer.send_and_wait("t", b"first")
        async with gone(broker):
            senders = [
                asyncio.create_task(outcome(producer.send_and_wait("t", b"x" * 200)))
                for _ in range(1_000)
            ]
            await until(lambda: producer.metrics()["waiting-threads"] > 0)
            # Far below delivery_timeout_ms, max_block_ms and request_timeout_ms.
            async with asyncio.timeout(timeout_ms / 1000 + SLACK_SECONDS):
                await producer.close(timeout_ms)
            assert {type(error) for error in await asyncio.gather(*senders)} == {
                ProducerClosedError
            }
            await nothing_pending(producer)
    assert {
        task.get_name()
        for task in asyncio.all_tasks() - before
        if task.get_name().startswith("aioprod")
    } == set()


@pytest.mark.virtual_time
async def test_close_without_a_time_waits_for_the_delivery_time_out(
    broker: EmbeddedCluster, gone: Gone
) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        producer = Producer(broker.bootstrap_servers, **SHORT)
        await producer.start()
        await producer.send_and_wait("t", b"first")
        async with gone(broker):
            deliveries = [await producer.send("t", b"%d" % number) for number in range(100)]
            await producer.close()
            assert all(delivery.done() for delivery in deliveries)
            assert {type(delivery.exception()) for delivery in deliveries} <= {
                DeliveryTimeoutError,
                ProducerClosedError,
            }
            await nothing_pending(producer)


@pytest.mark.virtual_time
async def test_a_new_topic_fails_at_max_block(broker: EmbeddedCluster) -> None:
    async with (
        asyncio.timeout(LIMIT_SECONDS),
        Producer(broker.bootstrap_servers, **{**SHORT, "max_block_ms": 300}) as producer,
    ):
        await broker.stop()
        deliveries: list[Delivery] = await asyncio.gather(
            *(producer.send(f"new-{number % 10}", b"x") for number in range(1_000))
        )
        assert {type(delivery.exception()) for delivery in deliveries} == {MetadataTimeoutError}
        await nothing_pending(producer)
