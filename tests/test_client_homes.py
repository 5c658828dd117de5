"""Consumer and admin client outside the event loop and process in which they were started; the
producer's states have a table of their own.
"""

from __future__ import annotations

import ast
import asyncio
import copy
import inspect
import operator
import os
import pickle
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from typing import Any

import pytest

from aioprod import (
    Admin,
    Consumer,
    ConsumerClosedError,
    Producer,
    TopicPartition,
    WrongEventLoopError,
)
from aioprod.protocol.api_keys import ApiKey
from aioprod.public_module import Uncopyable
from aioprod.testing import EmbeddedCluster
from aioprod.testing.broker.actions import hold
from tests.test_architecture import FILES, tree

LIMIT_S = 5
TP = TopicPartition("t", 0)
CALLS: dict[str, Callable[[Any], Any]] = {
    "start": lambda consumer: consumer.start(),
    "stop": lambda consumer: consumer.stop(),
    "close": lambda consumer: consumer.close(),
    "getone": lambda consumer: consumer.getone(),
    "getmany": lambda consumer: consumer.getmany(),
    "getarrow": lambda consumer: consumer.getarrow(),
    "commit": lambda consumer: consumer.commit(),
    "commit_async": lambda consumer: consumer.commit_async(),
    "committed": lambda consumer: consumer.committed(),
    "subscribe": lambda consumer: consumer.subscribe("t"),
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
    "assign": lambda consumer: consumer.assign([TP]),
    "seek": lambda consumer: consumer.seek(TP, 0),
    "seek_to_beginning": lambda consumer: consumer.seek_to_beginning(),
    "seek_to_end": lambda consumer: consumer.seek_to_end(),
    "seek_to_committed": lambda consumer: consumer.seek_to_committed(),
    "position": lambda consumer: consumer.position(TP),
    "pause": lambda consumer: consumer.pause(TP),
    "resume": lambda consumer: consumer.resume(TP),
    "offsets_for_times": lambda consumer: consumer.offsets_for_times({TP: 0}),
    "beginning_offsets": lambda consumer: consumer.beginning_offsets([TP]),
    "end_offsets": lambda consumer: consumer.end_offsets([TP]),
    "partitions_for_topic": lambda consumer: consumer.partitions_for_topic("t"),
    "topics": lambda consumer: consumer.topics(),
    "client_instance_id": lambda consumer: consumer.client_instance_id(),
    "wakeup": lambda consumer: consumer.wakeup(),
    "async for": anext,
}
# What only looks at what is known.
LOOKING = {
    "assignment",
    "subscription",
    "paused",
    "lag",
    "highwater",
    "last_stable_offset",
    "metrics",
    "metrics_by_topic",
    "group_metadata",
}


@pytest.fixture
async def consumer(broker: EmbeddedCluster) -> AsyncIterator[Consumer]:
    broker.create_topic("t", 1)
    async with Producer(broker.bootstrap_servers) as producer:
        await (await producer.send_many("t", [b"%d" % number for number in range(5)]))
    settings: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest"}
    async with Consumer("t", bootstrap_servers=broker.bootstrap_servers, **settings) as reading:
        assert (await reading.getone(timeout_ms=LIMIT_S * 1000)).value == b"0"
        yield reading


async def outcome_of(call: Callable[[Any], Any], client: Any) -> str:
    try:
        answer = call(client)
        if inspect.isawaitable(answer):
            async with asyncio.timeout(LIMIT_S):
                await answer
    except Exception as error:
        return type(error).__name__
    return "nothing"


def test_every_method_of_the_consumer_is_in_a_row() -> None:
    methods = {
        name
        for name, _ in inspect.getmembers(Consumer, inspect.isfunction)
        if not name.startswith("_")
    }
    assert methods == (set(CALLS) - {"async for"}) | LOOKING


async def test_a_consumer_in_another_thread(consumer: Consumer) -> None:
    await asyncio.sleep(0)
    # records that are ready are returned without a check of the caller
    consumer.metrics()
    for name, call in CALLS.items():
        assert (
            await asyncio.to_thread(asyncio.run, outcome_of(call, consumer))
            == "WrongEventLoopError"
        ), name
    with pytest.raises(
        WrongEventLoopError, match="belongs to the event loop in thread 'MainThread'"
    ):
        await asyncio.to_thread(consumer.wakeup)
    assert [record.value async for record in _next(consumer, 4)] == [b"1", b"2", b"3", b"4"]


async def _next(consumer: Consumer, count: int) -> AsyncIterator[Any]:
    for _ in range(count):
        yield await consumer.getone(timeout_ms=LIMIT_S * 1000)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
async def test_a_consumer_in_a_forked_child(consumer: Consumer) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            asyncio.events._set_running_loop(None)
            loop = asyncio.new_event_loop()
            for name, call in reversed(CALLS.items()):
                os.write(
                    writing,
                    f"{name}: {loop.run_until_complete(outcome_of(call, consumer))}\n".encode(),
                )
        finally:
            os._exit(0)
    os.close(writing)
    answer = await asyncio.wait_for(asyncio.to_thread(_read_all, reading), LIMIT_S)
    await asyncio.to_thread(os.waitpid, child, 0)
    assert answer.splitlines() == [f"{name}: WrongEventLoopError" for name in reversed(CALLS)]
    assert [record.value async for record in _next(consumer, 4)] == [b"1", b"2", b"3", b"4"], (
        "the parent reads on"
    )


def _read_all(reading: int) -> str:
    with open(reading) as pipe:
        return pipe.read()


async def test_an_admin_client_in_another_thread(broker: EmbeddedCluster) -> None:
    async with Admin(broker.bootstrap_servers) as admin:
        for name in (
            "start",
            "close",
            "stop",
            "list_topics",
            "describe_cluster",
            "list_groups",
            "list_transactions",
        ):
            found = await asyncio.to_thread(
                asyncio.run, outcome_of(operator.methodcaller(name), admin)
            )
            assert found == "WrongEventLoopError", name
        assert isinstance(await admin.list_topics(), object)


@pytest.mark.parametrize("client", [Consumer, Admin])
async def test_a_start_in_progress_ends_when_it_is_closed(
    broker: EmbeddedCluster, client: Any
) -> None:
    rule = broker.on_every(ApiKey.METADATA, hold())
    starting = asyncio.create_task(
        (made := client(bootstrap_servers=broker.bootstrap_servers)).start()
    )
    await broker.wait_for_request(ApiKey.METADATA)
    async with asyncio.timeout(LIMIT_S):
        await made.close()
        with pytest.raises(Exception, match="is closed") as raised:
            await starting
    assert type(raised.value).__name__ == f"{client.__name__}ClosedError"
    rule.cancel()
    rule.release()


async def test_the_earliest_limit_of_several_closes_counts(
    consumer: Consumer, broker: EmbeddedCluster
) -> None:
    rule = broker.on_every(ApiKey.OFFSET_COMMIT, hold())
    first = asyncio.create_task(consumer.close())
    await broker.wait_for_request(ApiKey.OFFSET_COMMIT)
    async with asyncio.timeout(LIMIT_S):
        await consumer.close(timeout_ms=10)
        await first
    with pytest.raises(ConsumerClosedError):
        await consumer.getone()
    rule.cancel()
    rule.release()


COPIES: list[Callable[[Any], object]] = [copy.copy, copy.deepcopy, pickle.dumps]
# Blocks of ``async with`` that are no clients.
BLOCKS = {"TimeLimit", "TopicReservation", "TransactionContext", "_Limited", "_WaitingCall"}


@pytest.mark.parametrize("duplicate", COPIES)
async def test_a_client_is_not_copied(
    broker: EmbeddedCluster, duplicate: Callable[[Any], object]
) -> None:
    """A copy that is dropped would close the original."""
    broker.create_topic("t", 1)
    async with Producer(broker.bootstrap_servers) as producer:
        with pytest.raises(TypeError, match="Producer: cannot be copied or pickled"):
            duplicate(producer)
        assert (await producer.send_and_wait("t", b"x")).offset == 0


def test_whatever_is_opened_and_closed_is_not_copied() -> None:
    found = {
        getattr(import_module(name), node.name)
        for name in FILES
        for node in tree(name).body
        if isinstance(node, ast.ClassDef) and node.name not in BLOCKS
        for each in node.body
        if isinstance(each, ast.AsyncFunctionDef) and each.name == "__aenter__"
    }
    assert {Admin, Consumer, Producer} < found
    assert [kind for kind in found if not issubclass(kind, Uncopyable)] == []
