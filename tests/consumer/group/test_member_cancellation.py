"""A member whose owner is cancelled at each suspension point: nothing is left, the listener is
called once for each change, and the group continues.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioprod import Consumer
from aioprod.error_codes import ErrorCode
from aioprod.errors import KafkaError
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, cancel_at_each_point, fail, hold
from aioprod.types import TopicPartition
from tests.consumer.group.group_driver import Driver, Listener, shared_out
from tests.waiting import until

pytestmark = pytest.mark.virtual_time

EAGER: dict[str, Any] = {"partition_assignment_strategy": ("range",)}
COOPERATIVE: dict[str, Any] = {"partition_assignment_strategy": ("cooperative-sticky",)}


class SlowListener(Listener):
    """Waits in each call, so that it can be cancelled there."""

    async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:  # type: ignore[override]
        self.calls.append(("assigned", partitions))
        await asyncio.sleep(0)

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("revoked", partitions))
        await asyncio.sleep(0)


def check_reported_once(calls: list[tuple[str, list[TopicPartition]]]) -> None:
    """Nothing is given twice or taken twice."""
    have: set[TopicPartition] = set()
    for name, partitions in calls:
        if name == "assigned":
            assert not have & set(partitions), calls
            have |= set(partitions)
        else:
            assert set(partitions) <= have, calls
            have -= set(partitions)


@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
async def test_a_member_that_is_cancelled_anywhere_leaves_nothing_behind(
    broker: EmbeddedCluster, protocol: dict[str, Any]
) -> None:
    broker.create_topic("t", 4)
    listeners: dict[int, SlowListener] = {}

    async def scenario(number: int) -> None:
        listener = listeners[number] = SlowListener()
        async with Driver(broker, f"g{number}", listener=listener, **protocol) as driver:
            await shared_out([driver.subscribe("t")], 4)
            await driver.commit()
            broker.rebalance_group(f"g{number}")
            # A cooperative member keeps everything: it is called with an empty gain.
            await driver.poll_until(
                lambda: len([name for name, _ in listener.calls if name == "assigned"]) == 2
            )

    async def check(number: int, cancelled: bool) -> None:
        check_reported_once(listeners[number].calls)
        if f"g{number}" in broker.group_ids:
            await broker.wait_for_group(f"g{number}", "Empty", timeout_seconds=5)

    before = asyncio.all_tasks()
    points = await cancel_at_each_point(scenario, check)
    assert points > 12
    left = [task for task in asyncio.all_tasks() - before if "broker" not in task.get_name()]
    if left:
        await asyncio.wait(left, timeout=1)
    assert not [
        task.get_name()
        for task in left
        if not task.done() and task.get_name().startswith("aioprod-")
    ]


async def test_a_cancelled_poll_loses_nothing(broker: EmbeddedCluster) -> None:
    """The same consumer goes on polling after each cancellation."""
    broker.create_topic("t", 4)
    listener = SlowListener()
    async with Driver(broker, listener=listener) as driver:
        driver.subscribe("t")

        async def scenario(number: int) -> None:
            if number % 3 == 0 and "g" in broker.group_ids and broker.group("g").members:
                broker.rebalance_group("g")
            await driver.poll(0.03)

        async def check(number: int, cancelled: bool) -> None:
            check_reported_once(listener.calls)

        for _ in range(10):
            await cancel_at_each_point(scenario, check)
        await shared_out([driver], 4)
    check_reported_once(listener.calls)


APIS = [
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.OFFSET_COMMIT,
    ApiKey.LEAVE_GROUP,
]


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
async def test_close_ends_in_time_while_the_coordinator_keeps_silent(
    broker: EmbeddedCluster, api: ApiKey
) -> None:
    broker.create_topic("t", 4)
    rule = broker.on_every(api, hold())
    loop = asyncio.get_running_loop()
    driver = Driver(broker)
    async with driver:
        driver.subscribe("t")
        for _ in range(20):
            await driver.poll(0.02)
        started = loop.time()
        await driver.close(0.3)
        assert loop.time() - started < 2
    rule.release()


def requests(broker: EmbeddedCluster, api: ApiKey) -> int:
    return sum(each.api_key == api for each in broker.requests)


@pytest.mark.parametrize("cancelled", [False, True], ids=["close(0)", "cancelled close"])
async def test_it_leaves_although_the_coordinator_waits_for_others(
    broker: EmbeddedCluster, cancelled: bool
) -> None:
    """A cooperative member owns partitions while its JoinGroup is in flight."""
    broker.create_topic("t", 2)
    settings: dict[str, Any] = {"group_id": "g", "heartbeat_interval_ms": 10, **COOPERATIVE}
    async with asyncio.timeout(20):
        async with (
            Consumer("t", bootstrap_servers=broker.bootstrap_servers, **settings) as leaving,
            Consumer("t", bootstrap_servers=broker.bootstrap_servers, **settings) as idle,
        ):
            while not len(leaving.assignment()) == len(idle.assignment()) == 1:
                await asyncio.gather(leaving.getmany(timeout_ms=20), idle.getmany(timeout_ms=20))
            broker.rebalance_group("g")
            joins = requests(broker, ApiKey.JOIN_GROUP)
            while requests(broker, ApiKey.JOIN_GROUP) == joins:
                await leaving.getmany(timeout_ms=20)
            if cancelled:
                closing = asyncio.create_task(leaving.close())
                await asyncio.sleep(0.05)
                closing.cancel()
                await asyncio.wait([closing])
            else:
                await leaving.close(0)
            async with asyncio.timeout(5):  # the session lasts longer
                await until(lambda: len(broker.group("g").members) <= 1)


async def test_a_listener_that_fails_is_called_and_changes_nothing(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", 4)

    def complain(partitions: list[TopicPartition]) -> None:
        raise RuntimeError("no")

    listener = Listener(complain)
    async with (
        Driver(broker, listener=listener, **EAGER) as first,
        Driver(broker, **EAGER) as second,
    ):
        await shared_out([first.subscribe("t")], 4)
        second.subscribe("t")
        with pytest.raises(RuntimeError, match="no"):
            await first.poll_until(lambda: False, second)
        await shared_out([first, second], 4)
        with pytest.raises(RuntimeError, match="no"):
            await first.close()
        await shared_out([second], 4)
    assert [name for name, _ in listener.calls] == ["assigned", "revoked", "assigned", "revoked"]


async def test_tasks_that_are_killed_from_outside_are_informed_of_and_replaced(
    broker: EmbeddedCluster,
) -> None:
    broker.create_topic("t", 4)
    listener = Listener()
    async with Driver(broker, listener=listener) as driver:
        await shared_out([driver.subscribe("t")], 4)
        (task,) = (task for task in asyncio.all_tasks() if task.get_name() == "aioprod-heartbeats")
        task.cancel()
        with pytest.raises(KafkaError, match="heartbeat task was cancelled from outside"):
            await driver.poll_until(lambda: False)
        await shared_out([driver], 4)
        assert [name for name, _ in listener.calls] == ["assigned", "lost", "assigned"]


async def test_an_auto_commit_that_fails_does_not_delay_a_rebalance_for_long(
    broker: EmbeddedCluster,
) -> None:
    broker.create_topic("t", 4)
    async with Driver(broker) as first, Driver(broker) as second:
        await shared_out([first.subscribe("t")], 4)
        broker.on(ApiKey.OFFSET_COMMIT, fail(ErrorCode.OFFSET_METADATA_TOO_LARGE), times=2)
        await shared_out([first, second.subscribe("t")], 4)
