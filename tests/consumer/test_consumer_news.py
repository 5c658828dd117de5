"""News from the background reaches the call that waits for records, the state and the errors."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioprod import BrokerError, Consumer, ConsumerStatus, ErrorCode, KafkaError
from aioprod.cluster.client import ClusterClient
from aioprod.consumer.partition_reader import LATEST, list_offsets
from aioprod.consumer.subscription import PartitionState
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, change_answer, hold
from tests.consumer.number_topics import TOPIC, TP, fill, numbers, reading, take


@pytest.mark.virtual_time
@pytest.mark.parametrize("max_poll_interval_ms", [300_000, 6_000])
@pytest.mark.parametrize("call", ["getone", "getmany", "async for"])
async def test_a_member_that_waits_for_records_stays_in_its_group(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture, call: str, max_poll_interval_ms: int
) -> None:
    """A call that waits polls: the group must not take it for an application that has stopped."""
    broker.create_topic(TOPIC, 1)
    async with Consumer(
        TOPIC,
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=2_000,
        fetch_max_wait_ms=10_000,
        max_poll_interval_ms=max_poll_interval_ms,
    ) as consumer:
        waiting: asyncio.Task[Any] = asyncio.create_task(
            anext(consumer) if call == "async for" else getattr(consumer, call)()
        )
        await asyncio.sleep(1_000)
        assert consumer.assignment() == {TP}
        assert consumer.metrics()["rebalance-total"] == 1
        assert consumer.metrics()["time-between-poll-max"] <= 5_001
        waiting.cancel()
        await asyncio.wait([waiting])
    assert "no poll for max_poll_interval_ms" not in caplog.text


@pytest.mark.parametrize("call", ["getone", "getmany", "position"])
async def test_a_waiting_call_raises_the_failure_of_a_background_task(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    broker.create_topic(TOPIC)
    async with reading(broker) as consumer:
        await consumer.position(TP)
        waiting: asyncio.Task[Any]
        if call == "position":
            kept_back = broker.on(ApiKey.LIST_OFFSETS, hold(), times=None)
            waiting = asyncio.create_task(consumer.seek_to_end(TP))
            await kept_back.wait()
        else:
            waiting = asyncio.create_task(getattr(consumer, call)())
            await broker.wait_for_request(ApiKey.FETCH)

        def fail(state: PartitionState) -> bool:
            raise ArithmeticError("a bug")

        monkeypatch.setattr(PartitionState, "may_be_fetched", property(fail))
        consumer._records._scheduler.wake()
        with pytest.raises(KafkaError, match="a bug"):
            async with asyncio.timeout(4):
                await waiting


async def test_an_error_of_the_moment_before_waiting_is_raised(broker: EmbeddedCluster) -> None:
    broker.create_topic(TOPIC)
    async with reading(broker) as consumer:
        await consumer.position(TP)
        consumer._records._turns._notifier.resumed_at = 0.0  # the call lets others run first
        error = BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not for this consumer")
        loop = asyncio.get_running_loop()
        loop.call_soon(consumer._records._turns._problems.report, "somewhere", error, loop.time())
        with pytest.raises(BrokerError, match="not for this consumer"):
            async with asyncio.timeout(1):
                await consumer.getone()


async def test_the_error_of_an_old_leader_is_solved_when_the_new_one_has_confirmed() -> None:
    async with EmbeddedCluster(nodes=2) as broker:
        broker.create_topic(TOPIC)
        await fill(broker, 10)
        async with reading(broker) as consumer:
            await take(consumer, 10)
            kept_back = broker.on(ApiKey.OFFSET_FOR_LEADER_EPOCH, hold(), times=1)
            leader = broker.leader(TOPIC, 0)
            broker.move_leader(TOPIC, 0, next(node for node in broker.node_ids if node != leader))
            waiting = asyncio.create_task(consumer.getone(timeout_ms=5_000))
            await kept_back.wait()
            assert consumer.state.error is not None
            kept_back.release()
            await fill(broker, 1, first=10)
            assert numbers([await waiting]) == [10]
            assert consumer.state.status is ConsumerStatus.READING


async def test_offsets_that_a_response_leaves_out_are_requested_again(
    broker: EmbeddedCluster,
) -> None:
    await fill(broker, 3)

    def leave_out(response: Any) -> None:
        response.topics = []

    async with reading(broker) as consumer:
        await consumer.position(TP)
        broker.on(ApiKey.LIST_OFFSETS, change_answer(leave_out), times=2)
        assert await consumer.end_offsets([TP]) == {TP: 3}
    async with ClusterClient(broker.bootstrap_servers, retry_backoff_ms=2) as client:
        broker.on(ApiKey.LIST_OFFSETS, change_answer(leave_out), times=2)
        assert await list_offsets(client, {TP: LATEST}) == {TP: 3}
