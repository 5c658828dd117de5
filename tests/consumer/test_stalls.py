"""A consumer that has records to read and does not read them says so, with the reason."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Any

import pytest

from aioprod import (
    Consumer,
    ConsumerStatus,
    ErrorCode,
    NoOffsetError,
    Producer,
    RebalanceListener,
    TopicPartition,
)
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, fail, hold
from aioprod.testing.broker.actions import Action
from tests.consumer.number_topics import FAST, TOPIC, TP, fill, reading

pytestmark = pytest.mark.virtual_time

LIMIT_S = 2.0
# Each fetch and each retry costs CPU time, a longer wait in virtual time does not.
WATCHED: dict[str, Any] = {
    **FAST,
    "stall_timeout_ms": int(LIMIT_S * 1000),
    "fetch_max_wait_ms": 200,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 100,
}
# A stall is seen at the first look after the limit, and looks are a quarter of it apart.
NOTICED_S = LIMIT_S * 1.5


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "aioprod.consumer.stall_watch" and record.levelno == logging.WARNING
    ]


def assert_stalled(consumer: Consumer, caplog: pytest.LogCaptureFixture, reason: str) -> None:
    state = consumer.state
    assert state.status is ConsumerStatus.STALLED
    assert reason in str(state.error)
    (line,) = warnings(caplog)
    assert line.partition(": ")[2].startswith("for 2 s ") and reason in line


def in_group(broker: EmbeddedCluster, **settings: Any) -> Consumer:
    given = {**WATCHED, "group_id": "g", "auto_offset_reset": "earliest", **settings}
    return Consumer(TOPIC, bootstrap_servers=broker.bootstrap_servers, **given)


async def test_an_application_that_takes_long_with_a_record(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(broker, 3)
    caplog.set_level(logging.INFO, "aioprod.consumer.stall_watch")
    async with reading(broker, **WATCHED) as consumer:
        await consumer.getone()
        began = asyncio.get_running_loop().time()
        assert consumer.metrics()["stalled-partitions"] == 0
        await asyncio.sleep(NOTICED_S)
        assert_stalled(consumer, caplog, "numbers-0 is not read: no call asks for the records from")
        assert consumer.metrics()["stalled-partitions"] == 1
        await asyncio.sleep(5 * LIMIT_S)
        assert len(warnings(caplog)) == 1
        assert [record.value async for record in taken(consumer, 2)] == [b"1", b"2"]
        await asyncio.sleep(LIMIT_S)
        assert consumer.state.status is ConsumerStatus.READING
        assert consumer.metrics()["stalled-partitions"] == 0
    passed = asyncio.get_running_loop().time() - began
    (over,) = [text for text in caplog.messages if "reading continues" in text]
    assert ": numbers-0: " in over and passed > 5 * LIMIT_S


async def taken(consumer: Consumer, count: int) -> Any:
    for _ in range(count):
        yield await consumer.getone()


async def test_slow_progress_and_waiting_for_new_records_are_no_stalls(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(broker, 12)
    async with reading(broker, **WATCHED) as consumer:
        for _ in range(12):
            await consumer.getone()
            await asyncio.sleep(LIMIT_S * 0.9)
            assert consumer.state.status is ConsumerStatus.READING
        await consumer.getmany(timeout_ms=10_000 * LIMIT_S)
        assert consumer.state.status is ConsumerStatus.READING
    assert not warnings(caplog)


async def test_the_watch_can_be_turned_off(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(broker, 3)
    async with reading(broker, **WATCHED | {"stall_timeout_ms": 0}) as consumer:
        await consumer.getone()
        await asyncio.sleep(100 * LIMIT_S)
        assert consumer.state.status is ConsumerStatus.READING
    assert not warnings(caplog)


async def test_a_paused_partition(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(broker, 3)
    async with reading(broker, **WATCHED) as consumer:
        await consumer.getone()
        consumer.pause(TP)
        await consumer.getmany(timeout_ms=NOTICED_S * 1000)
        assert_stalled(consumer, caplog, "numbers-0 is not read: it is paused")


async def test_an_open_transaction(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(broker, 1)
    async with AsyncExitStack() as stack:
        writer = await stack.enter_async_context(
            Producer(broker.bootstrap_servers, transactional_id="x")
        )
        await writer.begin_transaction()
        for _ in range(3):
            await writer.send_and_wait(TOPIC, b"open", partition=0)
        consumer = await stack.enter_async_context(
            reading(broker, **WATCHED, isolation_level="read_committed")
        )
        await consumer.getone()
        assert await consumer.getmany(timeout_ms=NOTICED_S * 1000) == []
        assert_stalled(
            consumer, caplog, "from offset 1 on: 3 records in or after an open transaction"
        )
        await writer.commit_transaction()
        assert len(await consumer.getmany()) == 3


async def test_a_leader_that_is_silent(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(broker, 3)
    rule = broker.on_every(ApiKey.FETCH, hold())
    async with reading(broker, **WATCHED, request_timeout_ms=60_000) as consumer:
        assert await consumer.getmany(timeout_ms=NOTICED_S * 1000) == []
        assert_stalled(consumer, caplog, "its leader has not answered a fetch yet")
        rule.cancel()
        rule.release()
        assert len(await consumer.getmany()) == 3


@pytest.mark.parametrize(
    ("api", "code", "reason"),
    [
        (ApiKey.FETCH, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "numbers-0 is not read: BrokerError"),
        (ApiKey.FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, "numbers-0 is not read: BrokerError"),
        (ApiKey.LIST_OFFSETS, ErrorCode.LEADER_NOT_AVAILABLE, "numbers-0 is not read: BrokerError"),
        (ApiKey.FIND_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group can't be"),
        (ApiKey.JOIN_GROUP, ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group can't be reached"),
        (ApiKey.SYNC_GROUP, ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group can't be reached"),
    ],
    ids=lambda value: value.name if isinstance(value, ApiKey | ErrorCode) else "",
)
async def test_requests_that_fail(
    broker: EmbeddedCluster,
    caplog: pytest.LogCaptureFixture,
    api: ApiKey,
    code: ErrorCode,
    reason: str,
) -> None:
    """The state is ``failing`` with the error, without a break, and the log names it."""
    await fill(broker, 3)
    broker.on(api, fail(code), times=None)
    async with in_group(broker) as consumer:
        await ask(consumer, NOTICED_S)
        asking = asyncio.create_task(ask(consumer, 3 * NOTICED_S))
        while not asking.done():
            state = consumer.state
            assert state.status is ConsumerStatus.FAILING and code.name in str(state.error)
            await asyncio.sleep(0.007)
        await asking
        lines = warnings(caplog)
        assert any(reason in line and code.name in line for line in lines), lines


async def ask(consumer: Consumer, seconds: float) -> None:
    """Ask for records for some time, whatever is raised."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while loop.time() < until:
        try:
            await consumer.getmany(timeout_ms=(until - loop.time()) * 1000)
        except Exception:
            await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("api", "reason"),
    [
        (ApiKey.JOIN_GROUP, "the group rebalances, and waits for its other members"),
        (ApiKey.OFFSET_FETCH, "its committed offset is not known yet"),
        (ApiKey.LIST_OFFSETS, "the offset at which to begin is not known yet"),
    ],
    ids=lambda value: value.name if isinstance(value, ApiKey) else "",
)
async def test_requests_without_an_answer(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture, api: ApiKey, reason: str
) -> None:
    await fill(broker, 3)
    kept_back: Action = hold()
    rule = broker.on_every(api, kept_back)
    async with in_group(broker, request_timeout_ms=60_000) as consumer:
        await ask(consumer, NOTICED_S)
        assert_stalled(consumer, caplog, reason)
        rule.cancel()
        rule.release()
        assert len(await consumer.getmany()) == 3


async def test_a_member_that_never_asks_for_records(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(broker, 3)
    async with in_group(broker) as consumer:
        await asyncio.sleep(NOTICED_S)
        assert_stalled(consumer, caplog, "no call asks for records, which joins the group")


async def test_a_listener_that_does_not_return(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(broker, 3)
    free = asyncio.Event()

    class Slow(RebalanceListener):
        async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            await free.wait()

    consumer = in_group(broker)
    consumer.subscribe([TOPIC], listener=Slow())
    async with consumer:
        call = asyncio.create_task(consumer.getmany())
        await asyncio.sleep(2 * NOTICED_S)
        assert any("the rebalance listener has not returned" in line for line in warnings(caplog))
        free.set()
        assert len(await call) == 3


async def test_a_partition_without_a_position(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(broker, 3)
    async with in_group(broker, auto_offset_reset="none") as consumer:
        with pytest.raises(NoOffsetError):
            await consumer.getmany()
        await asyncio.sleep(NOTICED_S)
        (line,) = warnings(caplog)
        assert "numbers-0 is not read: NoOffsetError" in line


async def test_partitions_without_new_records_after_a_rebalance(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The brokers answer a fetch session only what has changed; the partitions are new objects."""
    await fill(broker, 3)
    strategy = {"partition_assignment_strategy": ("range",), "heartbeat_interval_ms": 50}
    async with in_group(broker, **strategy) as consumer:
        assert [record.value async for record in taken(consumer, 3)] == [b"0", b"1", b"2"]
        for _ in range(3):
            broker.rebalance_group("g")
            await ask(consumer, 2 * NOTICED_S)
            assert consumer.lag(TP) == 0
            assert consumer.state.status is ConsumerStatus.READING
    assert warnings(caplog) == []


async def test_a_partition_without_new_records_after_a_failure(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """For a moment the metadata has no leader; afterwards the broker has nothing new to show."""
    await fill(broker, 3)
    async with reading(broker, **{**WATCHED, "metadata_max_age_ms": 700}) as consumer:
        assert [record.value async for record in taken(consumer, 3)] == [b"0", b"1", b"2"]
        await ask(consumer, 1)
        rule = broker.on(ApiKey.METADATA, fail(ErrorCode.LEADER_NOT_AVAILABLE))
        asking = asyncio.create_task(ask(consumer, 2 * NOTICED_S))
        await rule.wait()
        await asking
        assert consumer.state.status is ConsumerStatus.READING
    assert warnings(caplog) == []
