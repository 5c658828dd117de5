"""The lifecycle that all clients share: start, close, and garbage collection without a close."""

from __future__ import annotations

import asyncio
import gc
import random
import warnings
from collections.abc import AsyncIterator

import pytest

from aioprod.cluster.runtime import ClientKind, ClientLifecycle, ClientRuntime
from aioprod.config.client import ClientConfig
from aioprod.errors import (
    AdminClosedError,
    BrokerConnectionError,
    ConsumerStateError,
    KafkaError,
    WrongEventLoopError,
)
from aioprod.testing import EmbeddedCluster
from tests.waiting import until

LIMIT_S = 5


class Client(ClientLifecycle):
    """Records the steps; ``start`` and ``finish`` take as long as the test wants."""

    def __init__(self, servers: str) -> None:
        self.runtime = ClientRuntime(
            ClientConfig(bootstrap_servers=(servers,), client_id="c"),
            random.Random(1),
            ClientKind("client", AdminClosedError, ConsumerStateError),
        )
        self.steps: list[str] = []
        self.connect_failure: Exception | None = None
        self.may_connect, self.may_finish = asyncio.Event(), asyncio.Event()
        self.may_connect.set()
        self.may_finish.set()
        self.stopped_by: KafkaError | None = None

    async def connect(self) -> None:
        self.steps.append("connect")
        await self.may_connect.wait()
        if self.connect_failure is not None:
            raise self.connect_failure
        await self.runtime.metadata.first((), "request_timeout_ms")

    def begin(self) -> None:
        self.steps.append("begin")

    async def finish(self, deadline: float) -> None:
        self.steps.append("finish")
        await self.may_finish.wait()
        self.steps.append("finished")

    def stop(self, error: KafkaError) -> None:
        self.steps.append("stop")
        self.stopped_by = error

    async def release(self) -> None:
        self.steps.append("release")

    def close_plugins(self) -> None:
        self.steps.append("close_plugins")

    def closed(self) -> None:
        self.steps.append("closed")

    async def close(self, limit_ms: float = 1_000) -> None:
        async with asyncio.timeout(LIMIT_S):
            await self.runtime.close(self, limit_ms)


@pytest.fixture
async def client(broker: EmbeddedCluster) -> AsyncIterator[Client]:
    made = Client(broker.bootstrap_servers)
    yield made
    made.may_connect.set()
    made.may_finish.set()
    await made.close()


END = ["stop", "release", "close_plugins", "closed"]


async def test_the_steps_from_start_to_close(client: Client) -> None:
    await client.runtime.start(client)
    await client.runtime.start(client)
    client.runtime.check_running()
    assert client.runtime.brokers.connected == 1
    await client.close()
    await client.close()
    assert client.steps == ["connect", "begin", "finish", "finished", *END]
    assert client.runtime.brokers.connected == 0 and client.runtime.released


async def test_calls_before_the_start_and_after_close(client: Client) -> None:
    with pytest.raises(ConsumerStateError, match="the client is not started: use 'async with'"):
        client.runtime.check_running()
    assert client.runtime.now() == 0
    await client.close()
    assert client.steps == END, "there is nothing to finish"
    for call in (client.runtime.check_running, client.runtime.check_running):
        with pytest.raises(AdminClosedError, match="the client is closed"):
            call()
    with pytest.raises(AdminClosedError, match="the client is closed"):
        await client.runtime.start(client)


async def test_a_start_that_fails_may_be_repeated(client: Client) -> None:
    client.connect_failure = BrokerConnectionError("refused")
    with pytest.raises(BrokerConnectionError, match="refused"):
        await client.runtime.start(client)
    assert not client.runtime.started
    client.connect_failure = None
    await client.runtime.start(client)
    assert client.steps == ["connect", "connect", "begin"]


async def test_a_start_that_is_cancelled_leaves_nothing_open(client: Client) -> None:
    client.may_connect.clear()
    starting = asyncio.create_task(client.runtime.start(client))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert client.runtime.brokers.connected == 0
    client.may_connect.set()
    await client.runtime.start(client)


async def test_two_starts_at_once_are_one(client: Client) -> None:
    await asyncio.gather(client.runtime.start(client), client.runtime.start(client))
    assert client.steps == ["connect", "begin"]


async def test_close_ends_a_start_in_progress(client: Client) -> None:
    client.may_connect.clear()
    starting = asyncio.create_task(client.runtime.start(client))
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(AdminClosedError, match="the client is closed"):
        await starting
    assert "begin" not in client.steps and "finish" not in client.steps


@pytest.mark.virtual_time
@pytest.mark.parametrize("fails", [True, False])
async def test_close_while_a_start_that_failed_or_was_cancelled_cleans_up(
    client: Client, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """The limit of the start has passed by then, and can't be changed."""
    cleaning, may_clean = asyncio.Event(), asyncio.Event()
    close = client.runtime.brokers.close

    async def slowly() -> None:
        cleaning.set()
        await may_clean.wait()
        await close()

    monkeypatch.setattr(client.runtime.brokers, "close", slowly)
    client.may_connect.clear()
    start = asyncio.create_task(client.runtime.start(client))
    await asyncio.sleep(0)
    if fails:
        client.connect_failure = ValueError("it fails")
        client.may_connect.set()
    else:
        start.cancel()
    async with asyncio.timeout(LIMIT_S):
        await cleaning.wait()
        closing = asyncio.create_task(client.runtime.close(client))
        await asyncio.sleep(0)
        may_clean.set()
        await closing
        with pytest.raises(ValueError if fails else asyncio.CancelledError):
            await start
        await client.runtime.close(client)


async def test_the_limit_of_close(client: Client) -> None:
    await client.runtime.start(client)
    client.may_finish.clear()
    begun = client.runtime.now()
    await client.close(50)
    assert 0.04 <= client.runtime.now() - begun < 1
    assert client.steps == ["connect", "begin", "finish", *END]
    assert str(client.stopped_by) == (
        "not completed before the client closed (close timeout 50 ms)"
    )


@pytest.mark.virtual_time
async def test_a_second_close_may_only_shorten_the_first(client: Client) -> None:
    await client.runtime.start(client)
    client.may_finish.clear()
    begun = client.runtime.now()
    await asyncio.gather(client.close(60_000), client.close(50), client.close(120_000))
    assert 0.04 <= client.runtime.now() - begun < 1
    assert client.steps.count("release") == 1


async def test_a_close_that_is_cancelled_closes_at_once(client: Client) -> None:
    await client.runtime.start(client)
    client.may_finish.clear()
    closing = asyncio.create_task(client.close(60_000))
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await client.close()
    assert client.runtime.brokers.connected == 0 and client.steps[-1] == "closed"


async def test_an_error_of_finish_is_raised_after_everything_is_closed(client: Client) -> None:
    await client.runtime.start(client)

    async def finish(deadline: float) -> None:
        raise TimeoutError("of a listener")

    client.finish = finish  # type: ignore[method-assign]
    with pytest.raises(TimeoutError, match="of a listener"):
        await client.close()
    assert client.runtime.brokers.connected == 0 and client.steps[-1] == "closed"


async def test_sleep_ends_when_the_client_is_closed(client: Client) -> None:
    await client.runtime.start(client)
    await client.runtime.sleep(0.001)
    sleeping = asyncio.create_task(client.runtime.sleep(60))
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(AdminClosedError, match="the client is closed"):
        async with asyncio.timeout(LIMIT_S):
            await sleeping


async def test_separate_connections_know_the_brokers_and_close_too(
    client: Client, broker: EmbeddedCluster
) -> None:
    separate = client.runtime.separate_connections()
    await client.runtime.start(client)
    (node_id,) = client.runtime.metadata.snapshot.nodes
    connection = await separate.connection(node_id)
    assert separate.connected == 1
    await client.close()
    assert connection.closed and separate.connected == 0


def test_after_the_event_loop_is_closed() -> None:
    made: list[Client] = []

    async def main() -> None:
        async with EmbeddedCluster() as broker:
            client = Client(broker.bootstrap_servers)
            made.append(client)
            await client.runtime.start(client)
            await client.runtime.metadata.close()
            await client.runtime.brokers.close()

    asyncio.run(main())
    (client,) = made
    with pytest.raises(WrongEventLoopError, match="an event loop that is closed"):
        client.runtime.check_running()
    client.runtime.check_may_close()
    asyncio.run(client.close())
    asyncio.run(client.close())
    assert client.steps[:5] == ["connect", "begin", "stop", "close_plugins", "closed"]
    assert str(client.stopped_by) == "the client is closed"


def test_after_the_event_loop_is_closed_during_a_pause() -> None:
    client = Client("localhost:1")
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # it is called for the task that never ends

    async def pause() -> None:
        client.runtime.loop_binding.bind()
        client.runtime.started = True
        await client.runtime.sleep(60)

    pausing = loop.create_task(pause())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    asyncio.run(client.close())
    assert client.steps == ["stop", "close_plugins", "closed"]
    assert not pausing.done()


async def test_a_client_that_is_dropped_warns_and_is_released(client: Client) -> None:
    await client.runtime.start(client)

    class Face:
        def __del__(self) -> None:
            client.runtime.dropped(self, client, ": 3 records")

    face = Face()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del face
        gc.collect()
    assert [str(each.message) for each in caught] == [
        "unclosed client 'c': 3 records; use 'async with', or await close()"
    ]
    await until(lambda: client.steps[-1] == "closed", LIMIT_S)
    assert client.steps == ["connect", "begin", "stop", "close_plugins", "release", "closed"]
    assert str(client.stopped_by) == "the client was dropped without close()"
    assert client.runtime.brokers.connected == 0
