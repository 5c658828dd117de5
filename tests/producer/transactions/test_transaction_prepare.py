"""Prepared transactions: written, left open by their producer, and ended by any process with the
identity (KIP-939's name for it).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aioprod import PreparedTransaction, Producer
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    AbortableTransactionError,
    BrokerError,
    KafkaTimeoutError,
    ProducerClosedError,
    TransactionAbortedError,
    TransactionStateError,
)
from aioprod.producer.transactions.manager import TransactionManager
from aioprod.producer.transactions.states import TransactionState
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, fail
from aioprod.types import TopicPartition
from tests.producer.transactions.coordinator_script import END, CoordinatorScript, FakeSender
from tests.waiting import until

S = TransactionState
T0 = TopicPartition("t", 0)

Made = Callable[..., tuple[FakeSender, TransactionManager]]
pytest_plugins = ["tests.producer.transactions.coordinator_fixtures"]


async def preparing_behind_a_record(
    sender: FakeSender, manager: TransactionManager
) -> asyncio.Task[PreparedTransaction | None]:
    """A preparation that waits for a record's acknowledgement."""
    await manager.begin()
    sender.keep_answers = True
    sender.send(T0)
    preparing = asyncio.create_task(manager.prepare())
    await until(lambda: sender.in_flight == [T0])
    return preparing


async def test_preparing_writes_everything_and_ends_nothing(
    coordinators: CoordinatorScript, made: Made
) -> None:
    sender, manager = made(coordinators)
    await manager.begin()
    sender.send(T0)
    assert await manager.prepare() == PreparedTransaction(
        "x", 1000, 0, manager.produce_adds_partitions
    )
    assert manager.state is S.PREPARED
    assert sender.written == [T0]
    assert END not in coordinators.requests


async def test_nothing_written_is_nothing_to_end(
    coordinators: CoordinatorScript, made: Made
) -> None:
    _, manager = made(coordinators)
    await manager.begin()
    assert await manager.prepare() is None
    await manager.commit()
    assert manager.state is S.READY and END not in coordinators.requests


async def test_preparing_twice_gives_the_same(coordinators: CoordinatorScript, made: Made) -> None:
    sender, manager = made(coordinators)
    await manager.begin()
    sender.send(T0)
    assert await manager.prepare() == await manager.prepare()


@pytest.mark.parametrize(
    ("end", "committed"), [(TransactionManager.commit, True), (TransactionManager.abort, False)]
)
async def test_the_producer_may_end_what_it_prepared(
    coordinators: CoordinatorScript,
    made: Made,
    end: Callable[[TransactionManager], Awaitable[None]],
    committed: bool,
) -> None:
    sender, manager = made(coordinators)
    await manager.begin()
    sender.send(T0)
    await manager.prepare()
    await end(manager)
    assert coordinators.ended == [committed]
    await manager.begin()


async def test_a_prepared_transaction_takes_no_records_and_lets_no_other_begin(
    coordinators: CoordinatorScript, made: Made
) -> None:
    sender, manager = made(coordinators)
    await manager.begin()
    sender.send(T0)
    await manager.prepare()
    with pytest.raises(TransactionStateError, match=r"send\(\) in state 'prepared'"):
        sender.send(T0)
    with pytest.raises(TransactionStateError, match="end it with commit_transaction"):
        await manager.begin()
    with pytest.raises(TransactionStateError, match="prepared"):
        await manager.send_offsets({T0: 1}, "g")


async def test_a_record_that_fails_fails_the_preparation(
    coordinators: CoordinatorScript, made: Made
) -> None:
    sender, manager = made(coordinators)
    preparing = await preparing_behind_a_record(sender, manager)
    sender.lose(BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t-0"))
    with pytest.raises(AbortableTransactionError, match="TOPIC_AUTHORIZATION_FAILED"):
        await preparing
    with pytest.raises(AbortableTransactionError):
        await manager.prepare()
    await manager.abort()
    assert manager.state in (S.READY, S.INITIALIZING)


async def test_an_abort_overtakes_the_preparation(
    coordinators: CoordinatorScript, made: Made
) -> None:
    sender, manager = made(coordinators)
    preparing = await preparing_behind_a_record(sender, manager)
    sender.keep_answers = False
    await manager.abort()
    with pytest.raises(TransactionAbortedError):
        await preparing
    assert coordinators.ended == [False]


async def test_a_preparation_whose_caller_left_goes_on(
    coordinators: CoordinatorScript, made: Made
) -> None:
    sender, manager = made(coordinators)
    preparing = await preparing_behind_a_record(sender, manager)
    preparing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await preparing
    assert manager.state is S.PREPARING
    sender.keep_answers = False
    sender._changed.set()
    prepared = await manager.prepare()
    assert prepared is not None and prepared.producer_id == 1000


@pytest.mark.virtual_time
async def test_a_slow_preparation_shows_its_limit(
    coordinators: CoordinatorScript, made: Made
) -> None:
    sender, manager = made(coordinators, max_block_ms=20)
    await manager.begin()
    sender.keep_answers = True
    sender.send(T0)
    with pytest.raises(
        KafkaTimeoutError, match=r"prepare_transaction\(\) not done within max_block_ms=20"
    ):
        await manager.prepare()


@pytest.mark.parametrize("version", [0, 2])
async def test_closing_leaves_a_prepared_transaction_to_others(version: int) -> None:
    async with EmbeddedCluster(transaction_version=version) as broker:
        async with Producer(broker.bootstrap_servers, transactional_id="p") as producer:
            await producer.begin_transaction()
            await producer.send("t", b"1")
            prepared = await producer.prepare_transaction()
        state = broker.transactions["p"]
        assert prepared == ("p", state.producer_id, state.producer_epoch, version == 2)
        assert state.state.value == "Ongoing"
        assert broker.records("t", committed_only=True) == [] != broker.records("t")


async def test_closing_aborts_what_was_not_prepared(broker: EmbeddedCluster) -> None:
    producer = Producer(broker.bootstrap_servers, transactional_id="p")
    await producer.start()
    await producer.begin_transaction()
    await producer.send("t", b"1")
    preparing = asyncio.create_task(producer.prepare_transaction())
    await asyncio.sleep(0)
    preparing.cancel()
    await asyncio.wait([preparing])
    await producer.close()
    assert broker.transactions["p"].state.value in ("CompleteAbort", "Empty")
    assert broker.records("t", committed_only=True) == []


async def test_a_refused_record_is_reported_by_prepare(broker: EmbeddedCluster) -> None:
    broker.on(ApiKey.PRODUCE, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=None)
    async with Producer(broker.bootstrap_servers, transactional_id="p") as producer:
        await producer.begin_transaction()
        await producer.send("t", b"1")
        with pytest.raises(AbortableTransactionError, match="TOPIC_AUTHORIZATION_FAILED"):
            await producer.prepare_transaction()


async def test_only_a_transactional_producer_that_runs_prepares(broker: EmbeddedCluster) -> None:
    async with Producer(broker.bootstrap_servers) as producer:
        with pytest.raises(TransactionStateError, match="transactional_id is not set"):
            await producer.prepare_transaction()
    with pytest.raises(ProducerClosedError):
        await Producer(broker.bootstrap_servers, transactional_id="p").prepare_transaction()


async def test_a_transaction_block_that_prepares_commits_at_its_end(
    broker: EmbeddedCluster,
) -> None:
    async with Producer(broker.bootstrap_servers, transactional_id="p") as producer:
        async with producer.transaction():
            await producer.send("t", b"1")
            assert await producer.prepare_transaction() is not None
        assert [record.value for record in broker.records("t", committed_only=True)] == [b"1"]
