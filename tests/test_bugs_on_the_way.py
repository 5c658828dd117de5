"""A bug in a client, at whatever step between a response and the call that waits for it, ends the
call: it returns or raises, and does not wait forever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from aioprod import (
    Admin,
    Consumer,
    KafkaError,
    OffsetAndMetadata,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from aioprod.admin import ConfigResource, NewTopic, OffsetSpec
from aioprod.compat.aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aioprod.testing import EmbeddedCluster
from tests.planted_bugs import Bug, Calls, Scenario, waiting_after_bugs

LIMIT_S = 300  # of virtual time
TP = TopicPartition("t", 0)
Use = Callable[[Calls, EmbeddedCluster], Coroutine[Any, Any, list[str]]]


async def ends(name: str, call: Coroutine[Any, Any, object]) -> list[str]:
    """Return the name of a call that does not end."""
    try:
        async with asyncio.timeout(LIMIT_S) as limit:
            await call
    except (Exception, asyncio.CancelledError):
        return [f"{name} waits"] if limit.expired() else []
    return []


def using(use: Use) -> Scenario:
    async def scenario(calls: Calls) -> list[str]:
        async with EmbeddedCluster() as broker:
            broker.create_topic("t", 1)
            async with Producer(broker.bootstrap_servers) as producer:
                await producer.send_many("t", [b"a", b"b", b"c"])
            return await use(calls, broker)

    return scenario


async def reads(calls: Calls, broker: EmbeddedCluster) -> list[str]:
    consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    await consumer.start()
    consumer.assign([TP])
    with calls.active():
        found = await ends("getone()", consumer.getone())
    return found + await ends("close()", consumer.close(timeout_ms=1_000))


async def reads_in_a_group(calls: Calls, broker: EmbeddedCluster) -> list[str]:
    consumer = Consumer(
        "t",
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    await consumer.getone()
    with calls.active():
        found = await ends("commit()", consumer.commit())
        found += await ends("commit_async()", commits_async(consumer))
        found += await ends("getone()", consumer.getone())
    return found + await ends("close()", consumer.close(timeout_ms=1_000))


async def commits_async(consumer: Consumer) -> None:
    await consumer.commit_async({TP: OffsetAndMetadata(1)})


async def _result(future: asyncio.Future[Any]) -> None:
    await future


async def shares(calls: Calls, broker: EmbeddedCluster) -> list[str]:
    async with Admin(broker.bootstrap_servers) as admin:
        group = ConfigResource.group("s")
        await admin.incremental_alter_configs({group: {"share.auto.offset.reset": "earliest"}})
    consumer = ShareConsumer(
        broker.bootstrap_servers,
        topics="t",
        group_id="s",
        share_acknowledgement_mode="explicit",
    )
    await consumer.start()
    records = list(await consumer.getmany())
    with calls.active():
        for record in records:
            with suppress(KafkaError, Bug):
                consumer.acknowledge(record)
        found = await ends("commit()", consumer.commit())
    return found + await ends("close()", consumer.close(timeout_ms=1_000))


async def commits_a_transaction(calls: Calls, broker: EmbeddedCluster) -> list[str]:
    producer = Producer(broker.bootstrap_servers, transactional_id="tx", max_block_ms=20_000)
    await producer.start()
    await producer.begin_transaction()
    await producer.send("t", b"x")
    with calls.active():
        found = await ends("commit_transaction()", producer.commit_transaction())
    return found + await ends("close()", producer.close(timeout_ms=1_000))


async def administers(calls: Calls, broker: EmbeddedCluster) -> list[str]:
    admin = Admin(broker.bootstrap_servers)
    await admin.start()
    with calls.active():
        found = await ends("create_topics()", admin.create_topics([NewTopic("new")]))
        found += await ends("list_offsets()", admin.list_offsets({TP: OffsetSpec.LATEST}))
    return found + await ends("close()", admin.close())


async def runs_as_aiokafka(calls: Calls, broker: EmbeddedCluster) -> list[str]:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    await producer.start()
    future = await producer.send("t", b"x")
    consumer = AIOKafkaConsumer(
        "t",
        bootstrap_servers=broker.bootstrap_servers,
        group_id="k",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    with calls.active():
        found = await ends("send()", _result(future))
        found += await ends("getone()", consumer.getone())
        found += await ends("commit()", consumer.commit())
    return [
        *found,
        *await ends("stop()", consumer.stop()),
        *await ends("stop()", producer.stop()),
    ]


SLOW = pytest.mark.faults


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # bugs in tasks
@pytest.mark.parametrize(
    "use",
    [
        shares,
        commits_a_transaction,
        pytest.param(administers, marks=SLOW),
        pytest.param(reads_in_a_group, marks=SLOW),
        pytest.param(reads, marks=SLOW),
        pytest.param(runs_as_aiokafka, marks=SLOW),
    ],
)
def test_no_call_waits_forever(use: Use) -> None:
    # An error of a decoder is a ProtocolError, which ends the connection.
    assert waiting_after_bugs(using(use), everywhere=False, without=("protocol/",)) == []
