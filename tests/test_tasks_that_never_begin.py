"""A task may be cancelled before it begins, as by code that cancels all tasks of the loop: nothing
of its coroutine runs then, ``finally`` included. Each task of a client is cancelled so once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aioprod import Admin, Consumer, KafkaError, Producer, ProducerRecord, ShareConsumer
from aioprod.processing import Processor
from aioprod.testing import EmbeddedCluster
from tests.loops import VirtualLoop

_LIMIT_S = 600.0  # virtual: longer than each default of the clients
_MOST_TASKS = 200


class CancellingLoop(VirtualLoop):
    """Cancels the task of the library with a number, before it begins.

    Attributes:
        left: how many of the library's tasks begin before that one; negative: it is cancelled.
        name: that of the cancelled task.
    """

    left = 0
    name = ""
    armed = False

    def create_task(self, coro: Any, **settings: Any) -> asyncio.Task[Any]:
        """Make a task, and perhaps cancel it."""
        task = super().create_task(coro, **settings)
        if self.armed and task.get_name().startswith(("aioprod-", "broker-")):
            self.left -= 1
            if self.left == -1:
                self.name = task.get_name()
                task.cancel()
        return task


async def produce(servers: str) -> None:
    async with Producer(servers) as producer:
        for number in range(3):
            await producer.send_and_wait("t", b"x", partition=number)


async def produce_in_transactions(servers: str) -> None:
    async with Producer(servers, transactional_id="x") as producer:
        async with producer.transaction():
            await producer.send("t", b"x", partition=0)


async def consume(servers: str, **settings: Any) -> None:
    async with Consumer(
        "t", bootstrap_servers=servers, auto_offset_reset="earliest", **settings
    ) as consumer:
        for _ in range(2):
            await consumer.getmany(timeout_ms=200)
            if settings:
                await asyncio.gather(consumer.commit(), consumer.commit_async())


async def consume_in_a_group(servers: str) -> None:
    await consume(servers, group_id="g")


async def consume_in_a_group_of_the_new_protocol(servers: str) -> None:
    await consume(servers, group_id="h", group_protocol="consumer")


async def share(servers: str) -> None:
    async with ShareConsumer(servers, group_id="s", topics=["t"]) as consumer:
        for _ in range(2):
            await consumer.getmany(timeout_ms=200)


async def process(servers: str) -> None:
    async def handle(record: object) -> ProducerRecord:
        return ProducerRecord("out", b"x")

    async with Processor(
        handle,
        "t",
        bootstrap_servers=servers,
        group_id="p",
        consumer={"auto_offset_reset": "earliest"},
    ) as processor:
        await asyncio.sleep(1)
        assert processor


async def administer(servers: str) -> None:
    async with Admin(servers) as admin:
        await admin.list_topics()
        await admin.list_consumer_group_offsets("g")


@pytest.mark.parametrize(
    "work",
    [
        produce_in_transactions,
        consume_in_a_group_of_the_new_protocol,
        share,
        *(
            pytest.param(each, marks=pytest.mark.faults)
            for each in (produce, consume, consume_in_a_group, process, administer)
        ),
    ],
)
def test_a_task_that_is_cancelled_before_it_begins(
    work: Callable[[str], Awaitable[None]],
) -> None:
    cancelled = set()
    for number in range(_MOST_TASKS):
        with asyncio.Runner(loop_factory=CancellingLoop) as runner:
            loop = runner.get_loop()
            assert isinstance(loop, CancellingLoop)
            runner.run(run(loop, number, work))
            if not loop.name:
                break
            cancelled.add(loop.name)
    assert cancelled


async def run(loop: CancellingLoop, number: int, work: Callable[[str], Awaitable[None]]) -> None:
    async with EmbeddedCluster(nodes=2) as broker:
        broker.create_topic("t", 3)
        broker.create_topic("out", 1)
        async with Producer(broker.bootstrap_servers) as producer:
            await producer.send_many("t", [b"x"] * 30)
        before = asyncio.all_tasks()
        loop.left, loop.armed = number, True
        reported: BaseException | None = None
        try:
            async with asyncio.timeout(_LIMIT_S):
                await work(broker.bootstrap_servers)
        except (KafkaError, BaseExceptionGroup) as error:
            # It is fatal for the client if a task ends that runs as long as the client.
            reported = error
        except TimeoutError:
            raise AssertionError(f"without {loop.name} (task {number}) it does not end") from None
        finally:
            loop.armed = False
        async with asyncio.timeout(_LIMIT_S):
            await work(broker.bootstrap_servers)  # the broker is as before
        names = {task.get_name() for task in asyncio.all_tasks() - before if not task.done()}
        if loop.name != "aioprod-close":  # which ends all others
            assert not {name for name in names if name.startswith("aioprod-")}, loop.name
        assert "aioprod-connection" not in names, loop.name
        if loop.name.startswith(("aioprod-connect", "aioprod-race", "broker-")):
            assert reported is None, f"{loop.name}: another attempt is made"
