"""A transactional producer that has started has its identity: the transactions of an older one,
or of an earlier run of the application, have ended.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioprod import (
    Admin,
    BrokerError,
    Consumer,
    ErrorCode,
    FatalProducerError,
    KafkaError,
    KafkaTimeoutError,
    Producer,
    ProducerClosedError,
    ProducerFencedError,
    TopicPartition,
    TransactionStateError,
)
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster
from aioprod.testing.broker.actions import drop_before, fail, hold

TP = TopicPartition("in", 0)
LIMIT_S = 10


def made(broker: EmbeddedCluster, **settings: Any) -> Producer:
    return Producer(broker.bootstrap_servers, transactional_id="x", **settings)


async def test_who_starts_later_fences_who_started_earlier(broker: EmbeddedCluster) -> None:
    async with made(broker) as zombie, made(broker) as alive:
        async with alive.transaction():
            await alive.send("t", b"1")
        await zombie.begin_transaction()
        await zombie.send("t", b"of the zombie")
        with pytest.raises(KafkaError):
            await zombie.commit_transaction()
        with pytest.raises(ProducerFencedError):
            await zombie.abort_transaction()
            await zombie.begin_transaction()
        async with alive.transaction():
            await alive.send("t", b"2")
    assert [record.value for record in broker.records("t", committed_only=True)] == [b"1", b"2"]


async def test_an_application_that_was_killed_reads_on_at_once(broker: EmbeddedCluster) -> None:
    """It need not wait for transaction_timeout_ms: the offsets of its group are final before the
    first record is read.
    """
    async with Producer(broker.bootstrap_servers) as source:
        await source.send_and_wait("in", b"one")
    killed = made(broker, transaction_timeout_ms=600_000)
    await killed.start()
    await killed.begin_transaction()
    await killed.send("out", b"half done")
    await killed.send_offsets_to_transaction({TP: 1}, "g")
    reading = Consumer(
        "in",
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with asyncio.timeout(LIMIT_S), made(broker) as again, reading as consumer:
        async with again.transaction():
            record = await consumer.getone()
            await again.send("out", record.value)
            await again.send_offsets_to_transaction({TP: 1}, consumer.group_metadata())
    await killed.close(0)
    assert [record.value for record in broker.records("out", committed_only=True)] == [b"one"]
    assert broker.committed_offsets("g") == {TP: 1}


async def test_init_transactions_may_still_be_called(broker: EmbeddedCluster) -> None:
    async with made(broker) as producer:
        asked = broker.request_count(ApiKey.INIT_PRODUCER_ID)
        assert asked == 1
        for _ in range(2):
            await producer.init_transactions()
        await producer.begin_transaction()
        with pytest.raises(TransactionStateError):
            await producer.init_transactions()
        await producer.abort_transaction()
        await producer.start()  # it is
        await producer.init_transactions()
        assert broker.request_count(ApiKey.INIT_PRODUCER_ID) == asked


async def test_a_prepared_transaction_of_another_id_is_left_alone(broker: EmbeddedCluster) -> None:
    """Only the driver ends a transaction that a task of Spark has prepared."""
    task = Producer(broker.bootstrap_servers, transactional_id="task")
    async with task:
        await task.begin_transaction()
        await task.send("t", b"prepared")
        prepared = await task.prepare_transaction()
        async with made(broker) as driver, driver.transaction():
            await driver.send("t", b"of the driver")
    assert prepared is not None
    async with Admin(broker.bootstrap_servers) as admin:
        assert (await admin.describe_transactions("task")).state.lower() == "ongoing"


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    ],
)
@pytest.mark.parametrize(
    "api", [ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID], ids=lambda api: api.name
)
async def test_a_coordinator_that_is_not_ready_is_waited_for_within_the_limit(
    broker: EmbeddedCluster, api: ApiKey, code: ErrorCode
) -> None:
    producer = made(broker, max_block_ms=150, retry_backoff_ms=5, retry_backoff_max_ms=10)
    rule = broker.on(api, fail(code), times=None)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    with pytest.raises(
        KafkaTimeoutError,
        match=rf"start\(\) not done within max_block_ms=150.*call start\(\) again.*{code.name}",
    ):
        await producer.start()
    assert 0.15 <= loop.time() - begun < 0.18
    await nothing_is_left(broker)
    rule.cancel()
    async with producer, producer.transaction():
        await producer.send("t", b"x")
    assert [record.value for record in broker.records("t", committed_only=True)] == [b"x"]


@pytest.mark.virtual_time
async def test_a_coordinator_that_is_silent(broker: EmbeddedCluster) -> None:
    producer = made(broker, max_block_ms=100)
    rule = broker.on_every(ApiKey.INIT_PRODUCER_ID, hold())
    with pytest.raises(KafkaTimeoutError, match="max_block_ms=100"):
        await producer.start()
    rule.cancel()
    rule.release()
    await nothing_is_left(broker)
    async with asyncio.timeout(LIMIT_S), producer, producer.transaction():
        await producer.send("t", b"x")


async def test_a_right_that_is_missing_may_be_given_meanwhile(broker: EmbeddedCluster) -> None:
    producer = made(broker)
    broker.on(
        ApiKey.INIT_PRODUCER_ID, fail(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), times=1
    )
    with pytest.raises(BrokerError, match=r"'x'.*TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        await producer.start()
    await nothing_is_left(broker)
    with pytest.raises(ProducerClosedError, match="not started"):
        await producer.begin_transaction()
    async with producer, producer.transaction():
        await producer.send("t", b"x")


@pytest.mark.parametrize(
    ("api", "code"),
    [
        (ApiKey.INIT_PRODUCER_ID, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (ApiKey.FIND_COORDINATOR, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
    ids=lambda part: part.name,
)
async def test_what_no_other_start_can_mend(
    broker: EmbeddedCluster, api: ApiKey, code: ErrorCode
) -> None:
    producer = made(broker)
    broker.on(api, fail(code), times=1)
    for _ in range(2):
        with pytest.raises(FatalProducerError, match=f"'x'.*close this producer.*{code.name}") as e:
            await producer.start()
        assert str(e.value).count("grant") <= 1
    await nothing_is_left(broker)
    with pytest.raises(FatalProducerError, match="close this producer"):
        await producer.send("t", b"x")  # "not started" would advise another start
    await producer.close()
    with pytest.raises(ProducerClosedError, match="is closed"):
        await producer.send("t", b"x")


@pytest.mark.parametrize("end", ["close", "cancel"])
async def test_a_start_that_waits_for_the_coordinator_can_be_ended(
    broker: EmbeddedCluster, end: str
) -> None:
    producer = made(broker)
    rule = broker.on_every(ApiKey.INIT_PRODUCER_ID, hold())
    starting = asyncio.create_task(producer.start())
    await broker.wait_for_request(ApiKey.INIT_PRODUCER_ID)
    async with asyncio.timeout(LIMIT_S):
        if end == "close":
            await producer.close()
            with pytest.raises(ProducerClosedError, match="the producer is closed"):
                await starting
        else:
            starting.cancel()
            await asyncio.wait([starting])
            assert starting.cancelled()
    rule.cancel()
    rule.release()
    await nothing_is_left(broker)
    if end == "cancel":
        async with producer, producer.transaction():
            await producer.send("t", b"x")


async def test_a_connection_that_breaks_is_made_again(broker: EmbeddedCluster) -> None:
    broker.on(ApiKey.INIT_PRODUCER_ID, drop_before(), times=2)
    async with made(broker) as producer, producer.transaction():
        await producer.send("t", b"x")


async def test_partitions_can_be_asked_for_outside_of_a_transaction(
    broker: EmbeddedCluster,
) -> None:
    broker.create_topic("known", 3)
    async with made(broker) as producer:
        assert await producer.partitions_for("known") == [0, 1, 2]
        assert len(await producer.partitions_for("new")) == 1
        async with producer.transaction():
            assert await producer.partitions_for("known") == [0, 1, 2]
        assert await producer.partitions_for("known") == [0, 1, 2]


async def nothing_is_left(broker: EmbeddedCluster) -> None:
    """A start that has failed leaves neither connections nor tasks."""
    async with asyncio.timeout(LIMIT_S):
        while broker.connection_count(1) or [  # noqa: ASYNC110
            task for task in asyncio.all_tasks() if task.get_name().startswith("aioprod-")
        ]:
            await asyncio.sleep(0.001)
