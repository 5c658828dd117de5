"""A call that is cancelled, and again while it cleans up, leaves no socket and no task."""

from __future__ import annotations

import ast
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from aioprod import Admin, Consumer, Producer, ShareConsumer, TopicPartition
from aioprod.closing import close_in_turn
from aioprod.cluster.client import ClusterClient
from aioprod.compat.aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aioprod.processing import Processor, ShareProcessor
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, cancel_at_each_point, delay
from tests.loops import factory
from tests.selection import by_default_each
from tests.test_architecture import FILES, tree
from tests.waiting import until

_NODES = (1, 2)


@asynccontextmanager
async def started(client: Any, use: Callable[[Any], Any]) -> AsyncIterator[None]:
    """Start, use and stop a client as users of aiokafka do."""
    try:
        await client.start()
        await use(client)
        yield
    finally:
        await client.stop()


@asynccontextmanager
async def used(client: Any, use: Callable[[Any], Any]) -> AsyncIterator[None]:
    async with client:
        await use(client)
        yield


async def send(producer: Any) -> None:
    await producer.send("t", b"x", partition=0)


async def send_unacknowledged(producer: Producer) -> None:
    await producer.send("t", b"x" * 100_000, partition=0)
    await producer.flush()


async def poll(consumer: Any) -> None:
    await consumer.getmany(timeout_ms=2)


async def in_transaction(producer: Producer) -> None:
    async with producer.transaction():
        await producer.send("t", b"x", partition=0)


async def look_up(admin: Admin) -> None:
    await admin.list_offsets({TopicPartition("t", 0): 0, TopicPartition("t", 1): 0})


async def nothing(_: object) -> None:
    pass


async def handle(record: Any) -> None:
    await asyncio.sleep(0)


def processor(kind: Any, servers: str, **settings: Any) -> Any:
    return kind(handle, "t", bootstrap_servers=servers, group_id="p", **settings)


# Each gather of the package. If its caller is cancelled before the next turn of the event loop, the
# coroutines do not even begin: in cleanup, something else has to end what they would have closed.
GATHERS = {
    "aioprod.admin.driver": "requests",
    "aioprod.cli.cluster_load": "requests",
    "aioprod.cluster.runtime": "Brokers.end follows in a callback",
    "aioprod.consumer.partition_reader": "requests",
    "aioprod.consumer.share.fetcher": "ShareFetcher.end follows, as ShareConsumer.close documents",
    "aioprod.consumer.share.core": "the same",
    "aioprod.net.brokers": "Brokers.end follows",
    "aioprod.outbox.shard": "requests",
    "aioprod.processing.base_runner": "the tasks were cancelled before",
    "aioprod.spark.reading": "close_in_turn follows",
    "aioprod.testing.broker.controls.nodes": "the nodes were stopped before",
}


def test_each_gather_may_be_cancelled_before_it_begins() -> None:
    found = {
        name
        for name in FILES
        if any(
            isinstance(node, ast.Attribute) and ast.unparse(node) == "asyncio.gather"
            for node in ast.walk(tree(name))
        )
    }
    assert found == GATHERS.keys(), "say what ends the rest if it is cancelled: close_in_turn?"


async def test_steps_are_run_in_turn_whatever_happens() -> None:
    begun: asyncio.Queue[str] = asyncio.Queue()

    def step(
        name: str, error: BaseException | None = None
    ) -> Callable[[], Coroutine[Any, Any, None]]:
        async def run() -> None:
            begun.put_nowait(name)
            await asyncio.sleep(0.001)
            if error is not None:
                raise error

        return run

    steps = (step("a", OSError("a")), step("b", ValueError("b")), step("c"))
    with pytest.raises(OSError, match="a"):
        await close_in_turn(*steps)
    assert [begun.get_nowait() for _ in steps] == ["a", "b", "c"]
    task = asyncio.create_task(close_in_turn(step("a"), step("b"), step("c")))
    for name in ("a", "b", "c"):
        assert await asyncio.wait_for(begun.get(), 5) == name
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


CLIENTS: dict[str, Callable[[str], AbstractAsyncContextManager[None]]] = {
    "producer": lambda servers: used(Producer(servers), send),
    "producer without acknowledgements": lambda servers: used(
        Producer(servers, acks=0, enable_idempotence=False), send_unacknowledged
    ),
    "transactions": lambda servers: used(Producer(servers, transactional_id="x"), in_transaction),
    "consumer of a classic group": lambda servers: used(
        Consumer("t", bootstrap_servers=servers, group_id="c"), poll
    ),
    "consumer of a KIP-848 group": lambda servers: used(
        Consumer("t", bootstrap_servers=servers, group_id="n", group_protocol="consumer"), poll
    ),
    "consumer without a group": lambda servers: used(
        Consumer("t", bootstrap_servers=servers), poll
    ),
    "share consumer": lambda servers: used(
        ShareConsumer(servers, topics=["t"], group_id="s"), poll
    ),
    "admin": lambda servers: used(Admin(servers), look_up),
    "cluster client": lambda servers: used(ClusterClient(servers), nothing),
    "processor": lambda servers: used(processor(Processor, servers), nothing),
    "exactly-once processor": lambda servers: used(
        processor(Processor, servers, guarantee="exactly_once"), nothing
    ),
    "share processor": lambda servers: used(
        processor(ShareProcessor, servers, reject_failed=True), nothing
    ),
    "aiokafka's producer": lambda servers: started(
        AIOKafkaProducer(bootstrap_servers=servers), send
    ),
    "aiokafka's consumer": lambda servers: started(
        AIOKafkaConsumer("t", bootstrap_servers=servers, group_id="a"), poll
    ),
}


@pytest.fixture
async def slow_broker() -> AsyncIterator[EmbeddedCluster]:
    """A cluster that takes its time, so that cancellations find requests in flight."""
    async with EmbeddedCluster(nodes=len(_NODES)) as broker:
        broker.create_topic("t", 2)
        for api in (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.PRODUCE):
            broker.on_every(api, delay(0.01))
        yield broker


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("name", "again_after"),
    [
        pytest.param(name, again_after, marks=by_default_each(2, row + again_after))
        for row, name in enumerate(CLIENTS)
        for again_after in (1, 2, 3)
    ],
)
async def test_a_client(slow_broker: EmbeddedCluster, name: str, again_after: int) -> None:
    before = asyncio.all_tasks()
    clients: list[AbstractAsyncContextManager[None]] = []  # none is dropped: that closes it

    async def scenario(number: int) -> None:
        clients.append(CLIENTS[name](slow_broker.bootstrap_servers))
        async with clients[-1]:
            pass

    async def check(number: int, cancelled: bool) -> None:
        await asyncio.sleep(3)  # close has two seconds for what a cancelled caller leaves to it
        where = f"suspensions {number} and {number + again_after}"
        opened = [slow_broker.connection_count(node) for node in _NODES]
        assert not any(opened), f"{where}: connections are left"
        left = {task for task in asyncio.all_tasks() - before if "aioprod-" in task.get_name()}
        assert not left, f"{where}: {left}"

    points = await cancel_at_each_point(scenario, check, again_after=again_after, promptly=True)
    assert points >= 3


def sockets() -> int:
    """The number of open sockets of this process."""
    numbers = os.listdir("/proc/self/fd")
    names = [f"/proc/self/fd/{number}" for number in numbers]
    return sum(os.path.lexists(name) and "socket" in os.readlink(name) for name in names)


@pytest.mark.skipif(sys.platform != "linux", reason="counts sockets in /proc")
@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
@pytest.mark.parametrize("again_after", [1, 2])
def test_the_embedded_cluster_and_real_sockets(kind: str, again_after: int) -> None:
    async def main() -> None:
        before = sockets()
        kept: list[Producer] = []

        async def scenario(number: int) -> None:
            async with EmbeddedCluster(nodes=len(_NODES)) as broker:
                kept.append(Producer(broker.bootstrap_servers))
                async with kept[-1] as producer:
                    await producer.send("t", b"x")

        async def check(number: int, cancelled: bool) -> None:
            await until(lambda: sockets() <= before)

        await cancel_at_each_point(scenario, check, again_after=again_after, promptly=True)

    with asyncio.Runner(loop_factory=factory(kind, virtual=False)) as runner:
        runner.run(main())
