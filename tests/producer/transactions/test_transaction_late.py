"""Calls that wait, or are in progress, when a transaction ends: no caller waits forever,
and it does not touch the next one.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioprod import AbortableTransactionError, ErrorCode, KafkaError, Producer
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest
from aioprod.testing import EmbeddedCluster, drop_before, fail
from aioprod.testing.simulation import SimulatedLoop
from aioprod.types import TopicPartition
from tests.producer.transactions.coordinator_script import (
    ADD,
    ADD_OFFSETS,
    END,
    INIT,
    OFFSETS,
    CoordinatorScript,
    FakeSender,
    broken,
)
from tests.waiting import until

LIMIT_S = 10.0
T0 = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("level", "lost"),
    [*((0, name) for name in (ADD, ADD_OFFSETS, OFFSETS, END)), (2, OFFSETS), (2, END)],
)
async def test_a_late_copy_of_what_had_no_answer_meets_a_newer_epoch(lost: str, level: int) -> None:
    """In the first protocol a late EndTxn ends the next transaction in the middle (KIP-890), where
    that has the same epoch.
    """
    coordinators = CoordinatorScript(level=level)
    sender = FakeSender(coordinators)
    manager = sender.manager
    try:
        async with asyncio.timeout(LIMIT_S):
            await manager.begin()
            coordinators.on(lost, broken())
            sender.send(T0)
            await manager.send_offsets({T0: 5}, "g")
            await manager.commit()
            used = coordinators.epoch
            await manager.begin()
            assert coordinators.requests.count(INIT) == (2 if level == 0 else 1)
            if level == 0:
                asked = coordinators.messages[-1]
                assert isinstance(asked, InitProducerIdRequest) and asked.producer_epoch == used, (
                    "the next epoch of the same producer id"
                )
            await manager.commit()
            # Trouble that has ended costs nothing more.
            await manager.begin()
            sender.send(T0)
            await manager.commit()
            await manager.begin()
            assert coordinators.requests.count(INIT) == (2 if level == 0 else 1)
    finally:
        await manager.close()


@pytest.mark.parametrize("level", [0, 2], ids=["v1", "v2"])
@pytest.mark.parametrize("then", ["flush", "delivery", "commit", "abort"])
async def test_what_is_to_go_again_behind_a_refused_batch_is_dropped(then: str, level: int) -> None:
    """It could go only under an epoch that comes after the abort: its caller must not
    wait for delivery_timeout_ms.
    """
    async with EmbeddedCluster(transaction_version=level) as broker, asyncio.timeout(LIMIT_S):
        settings = {
            "linger_ms": 0,
            "batch_size": 200,
            "retry_backoff_ms": 20,
            "retry_backoff_max_ms": 20,
        }
        async with Producer(broker.bootstrap_servers, transactional_id="x", **settings) as producer:  # type: ignore[call-overload]
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"known")
            broker.on(ApiKey.PRODUCE, drop_before(), times=1)
            refused, behind = [await producer.send("t", letter * 190) for letter in (b"a", b"b")]
            # Both leave, then the connection breaks.
            await until(lambda: producer._sender.in_flight == 2, pause_s=0)
            await until(lambda: producer._sender.in_flight == 0, pause_s=0)
            broker.on(ApiKey.PRODUCE, fail(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), times=1)
            with pytest.raises(KafkaError, match="OUT_OF_ORDER"):
                await refused
            if then == "flush":
                await producer.flush()
            elif then == "commit":
                with pytest.raises(AbortableTransactionError):
                    await producer.commit_transaction()
            if then != "abort":
                with pytest.raises(KafkaError):
                    await behind
            await producer.abort_transaction()
            assert behind.done()
            async with producer.transaction():
                await producer.send("t", b"next")
        assert [record.value for record in broker.records("t", committed_only=True)] == [b"next"]


def test_what_expires_together_in_an_abort_ends_once_each() -> None:
    """Found by the simulation: the end of the first drops the second, which has expired as well."""

    async def abort_what_waits() -> list[bytes | None]:
        settings: dict[str, Any] = {
            "linger_ms": 0,
            "delivery_timeout_ms": 500,
            "request_timeout_ms": 400,
            "retry_backoff_ms": 100,
        }
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        async with (
            EmbeddedCluster() as cluster,
            Producer(cluster.bootstrap_servers, transactional_id="t1", **settings) as producer,
        ):
            async with producer.transaction():
                await producer.send_and_wait("t", b"committed", partition=0)
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"aborted", partition=0)
            asked = cluster.request_count(ApiKey.PRODUCE)
            cluster.on(ApiKey.PRODUCE, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=2)
            lost = [await producer.send("t", b"first", partition=0)]
            await asyncio.sleep(0.001)
            lost.append(await producer.send("t", b"second", partition=0))
            await cluster.wait_for_request(ApiKey.PRODUCE, asked + 2)
            await asyncio.sleep(0.01)  # their answers arrive
            abort = loop.create_task(producer.abort_transaction())
            await asyncio.sleep(0.01)
            loop.jump(1.0)  # the machine stops: both expire in the same moment
            await abort
            for delivery in lost:
                with pytest.raises(KafkaError):
                    await delivery
            async with producer.transaction():
                await producer.send_and_wait("t", b"afterwards", partition=0)
            return [record.value for record in cluster.records("t", committed_only=True)]

    assert SimulatedLoop(1).run(abort_what_waits()) == [b"committed", b"afterwards"]
