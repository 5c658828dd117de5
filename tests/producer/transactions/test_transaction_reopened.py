"""A late copy of the request that opens a transaction arrives after its end (first protocol): the
next epoch can still be requested.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioprod import Producer, ProducerFencedError, TopicPartition
from aioprod.error_codes import ErrorCode
from aioprod.errors import KafkaError
from aioprod.producer.transactions.manager import TransactionManager
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest
from aioprod.testing import EmbeddedCluster, drop_before, hold, hold_answer
from aioprod.testing.broker.transactions.transaction import TransactionState
from tests.producer.transactions.coordinator_script import (
    ADD,
    END,
    INIT,
    CoordinatorScript,
    FakeSender,
    broken,
)
from tests.testing.raw_client import RawClient
from tests.testing.raw_transactions import V1, TransactionalClient, ask_until

LIMIT_S = 10.0
ENDED = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
T0 = TopicPartition("t", 0)
FAST: dict[str, Any] = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 20, "linger_ms": 0}
Made = Callable[..., tuple[FakeSender, TransactionManager]]
pytest_plugins = ["tests.producer.transactions.coordinator_fixtures"]


@pytest.fixture(params=[0, 1])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedCluster]:
    """One node that speaks the first protocol only."""
    async with (
        EmbeddedCluster(transaction_version=request.param) as running,
        asyncio.timeout(LIMIT_S),
    ):
        running.create_topic("t")
        yield running


@asynccontextmanager
async def late_copies(cluster: EmbeddedCluster) -> AsyncIterator[TransactionalClient]:
    """Repeats the requests of the current producer."""
    async with RawClient(cluster.bootstrap_servers) as client:
        late = TransactionalClient(client, "x", "t", V1)
        late.producer_id, late.epoch = cluster.transactions["x"].identity
        yield late


async def end_with_a_request_unanswered(
    cluster: EmbeddedCluster,
    producer: Producer,
    *,
    commit: bool = True,
    opener: ApiKey = ApiKey.ADD_PARTITIONS_TO_TXN,
) -> None:
    """One transaction; afterwards the producer asks for the next epoch."""
    cluster.on(opener, drop_before(), times=1)
    await producer.begin_transaction()
    await producer.send_and_wait("t", b"first")
    await producer.send_offsets_to_transaction({T0: 5}, "g")
    await (producer.commit_transaction() if commit else producer.abort_transaction())


def seen(cluster: EmbeddedCluster) -> list[bytes | None]:
    return [record.value for record in cluster.records("t", committed_only=True)]


@pytest.mark.parametrize(
    "opener", [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN], ids=lambda api: api.name
)
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("place", ["after the end", "right before the next epoch"])
async def test_a_late_copy_fences_no_producer(
    cluster: EmbeddedCluster, opener: ApiKey, commit: bool, place: str
) -> None:
    async with (
        Producer(cluster.bootstrap_servers, transactional_id="x", **FAST) as producer,
        asyncio.TaskGroup() as tasks,
    ):
        gate = asyncio.Event()
        if place == "after the end":
            cluster.on(ApiKey.END_TXN, hold_answer(gate), times=1)
        else:
            cluster.on(ApiKey.INIT_PRODUCER_ID, hold(gate), times=1)
        async with late_copies(cluster) as late:
            ending = tasks.create_task(
                end_with_a_request_unanswered(cluster, producer, commit=commit, opener=opener)
            )
            await cluster.wait_for_request(
                *((ApiKey.END_TXN, 1) if place == "after the end" else (ApiKey.INIT_PRODUCER_ID, 2))
            )
            wanted = ENDED if place == "after the end" else (TransactionState.ONGOING,)
            await ask_until(
                lambda state: state in wanted,
                lambda: asyncio.sleep(0, cluster.transactions["x"].state),
            )
            assert (
                await late.add(0)
                if opener == ApiKey.ADD_PARTITIONS_TO_TXN
                else [await late.add_offsets("g")]
            ) == ["NONE"]
            gate.set()
            await ending
            async with producer.transaction():
                await producer.send("t", b"second")
            assert cluster.transactions["x"].identity == (late.producer_id, late.epoch + 2), (
                "one is lost to the transaction that was open"
            )
            assert await late.add(0) == ["PRODUCER_FENCED"], (
                "what comes later still meets a newer epoch"
            )
    assert seen(cluster) == ([b"first"] if commit else []) + [b"second"]


async def test_who_has_taken_over_is_found_all_the_same(cluster: EmbeddedCluster) -> None:
    """And its open transaction is left alone, which InitProducerId would end: a coordinator does
    not look at the epoch that asks.
    """
    old, successor = (
        Producer(cluster.bootstrap_servers, transactional_id="x", **FAST) for _ in range(2)
    )
    async with old, asyncio.TaskGroup() as tasks:
        ended = asyncio.Event()
        cluster.on(ApiKey.END_TXN, hold_answer(ended), times=1)
        ending = tasks.create_task(end_with_a_request_unanswered(cluster, old))
        await cluster.wait_for_request(ApiKey.END_TXN)
        async with successor:
            await successor.begin_transaction()
            await successor.send_and_wait("t", b"of the successor")
            ended.set()
            await ending
            with pytest.raises(ProducerFencedError):
                await old.begin_transaction()
            await successor.commit_transaction()
    assert seen(cluster) == [b"first", b"of the successor"]


async def test_who_takes_over_meanwhile_gets_another_epoch(cluster: EmbeddedCluster) -> None:
    """No producer has the epoch that is finally requested: the transaction that was opened for this
    purpose keeps it free.
    """
    old, successor = (
        Producer(cluster.bootstrap_servers, transactional_id="x", **FAST) for _ in range(2)
    )
    async with old:
        gate = asyncio.Event()
        cluster.on(ApiKey.INIT_PRODUCER_ID, hold(gate), times=1)
        await end_with_a_request_unanswered(cluster, old)
        await cluster.wait_for_request(ApiKey.INIT_PRODUCER_ID, 2)
        async with successor:
            gate.set()
            with pytest.raises(ProducerFencedError):
                await old.begin_transaction()
            async with successor.transaction():
                await successor.send("t", b"of the successor")
    assert seen(cluster) == [b"first", b"of the successor"]


async def test_where_the_end_had_no_answer_either_the_error_names_it(
    cluster: EmbeddedCluster,
) -> None:
    """A late EndTxn may end what was opened for certainty, and so the next epoch may be another
    producer's. Java's ends here in either case.
    """
    async with Producer(cluster.bootstrap_servers, transactional_id="x", **FAST) as producer:
        gate = asyncio.Event()
        cluster.on(ApiKey.INIT_PRODUCER_ID, hold(gate), times=1)
        cluster.on(ApiKey.END_TXN, drop_before(), times=1)
        await end_with_a_request_unanswered(cluster, producer)
        await cluster.wait_for_request(ApiKey.INIT_PRODUCER_ID, 2)
        async with late_copies(cluster) as late:
            assert await late.add(0) == ["NONE"]
        gate.set()
        with pytest.raises(
            ProducerFencedError, match="or a late copy of a request of this one arrived at the same"
        ):
            await producer.begin_transaction()
    async with (
        Producer(cluster.bootstrap_servers, transactional_id="x", **FAST) as successor,
        successor.transaction(),
    ):
        await successor.send("t", b"second")
    assert seen(cluster) == [b"first", b"second"]


# -- against a script ------------------------------------------------------------------------------


async def end_with_a_lost_answer(
    coordinators: CoordinatorScript, sender: FakeSender, lost: str = ADD
) -> None:
    await sender.manager.begin()
    coordinators.on(lost, broken())
    sender.send(T0)
    await sender.manager.commit()


@pytest.mark.parametrize(
    "code", [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR, "broken"]
)
async def test_without_certainty_no_epoch_is_asked_for(
    first: CoordinatorScript, made: Made, code: ErrorCode | str
) -> None:
    sender, manager = made(first)
    trouble: ErrorCode | KafkaError = code if isinstance(code, ErrorCode) else broken()
    first.on(ADD, broken(), ErrorCode.NONE, trouble, trouble)
    await manager.begin()
    sender.send(T0)
    await manager.commit()
    await manager.begin()
    assert first.requests == [INIT, ADD, ADD, END, ADD, ADD, ADD, INIT]


async def test_a_late_end_alone_opens_nothing(first: CoordinatorScript, made: Made) -> None:
    sender, manager = made(first)
    await end_with_a_lost_answer(first, sender, END)
    await manager.begin()
    assert first.requests == [INIT, ADD, END, END, INIT]


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
async def test_an_epoch_that_was_fenced_by_asking_is_followed_by_the_one_behind_it(
    first: CoordinatorScript, made: Made, code: ErrorCode
) -> None:
    """If the response to InitProducerId was lost, AddPartitionsToTxn has this response, too."""
    sender, manager = made(first)
    first.on(ADD, broken(), ErrorCode.NONE, ErrorCode.NONE, code, code)
    first.on(INIT, ErrorCode.NONE, broken(), ErrorCode.CONCURRENT_TRANSACTIONS, code)
    await manager.begin()
    sender.send(T0)
    await manager.commit()
    await manager.begin()
    assert first.requests == [INIT, ADD, ADD, END, ADD, INIT, ADD, INIT, ADD, INIT, INIT]
    asked = [message for message in first.messages if isinstance(message, InitProducerIdRequest)]
    assert [(message.producer_id, message.producer_epoch) for message in asked] == [
        (-1, -1),
        *[(1000, 0)] * 3,
        (1000, 1),
    ]
    await manager.commit()
    assert first.requests[-1] == INIT, (
        "what was opened for certainty is not part of the next transaction"
    )


async def test_asked_for_the_first_time_it_is_reported_that_another_has_taken_over(
    first: CoordinatorScript, made: Made
) -> None:
    sender, manager = made(first)
    first.on(ADD, broken(), ErrorCode.NONE, ErrorCode.PRODUCER_FENCED)
    await manager.begin()
    sender.send(T0)
    await manager.commit()
    with pytest.raises(ProducerFencedError, match="AddPartitionsToTxn"):
        await manager.begin()
    assert first.requests == [INIT, ADD, ADD, END, ADD]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
@pytest.mark.parametrize("fenced", [False, True])
async def test_what_opens_nothing_any_more_is_as_good(
    first: CoordinatorScript, made: Made, code: ErrorCode, fenced: bool
) -> None:
    sender, manager = made(first)
    first.on(ADD, broken(), ErrorCode.NONE, code)
    await manager.begin()
    sender.send(T0)
    await manager.commit()
    if fenced:
        first.on(INIT, ErrorCode.PRODUCER_FENCED)
        with pytest.raises(ProducerFencedError, match="another producer uses it, or a late copy"):
            await manager.begin()
    else:
        await manager.begin()
        assert sender.producer.identity == (1000, 1)
    assert first.requests == [INIT, ADD, ADD, END, ADD, INIT]
