"""A consumer with a group from start to end, with a failure at any point: it ends in time, and
leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import random
import threading
import uuid
from collections.abc import Sequence
from typing import Any, cast

import pytest

from aioprod import (
    BrokerError,
    Consumer,
    ConsumerClosedError,
    ConsumerStatus,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    Producer,
    RebalanceListener,
    TopicPartition,
)
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, GroupSettings, fail, hold_answer
from tests.consumer.group.group_readers import make_topic
from tests.selection import shares_by_default
from tests.waiting import until

QUICK: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "fetch_max_wait_ms": 20,
    "heartbeat_interval_ms": 10,
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 5,
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 5,
    "session_timeout_ms": 6_000,
}
EAGER: dict[str, Any] = {"partition_assignment_strategy": ("range",)}
COOPERATIVE: dict[str, Any] = {"partition_assignment_strategy": ("cooperative-sticky",)}
KIP_848: dict[str, Any] = {"group_protocol": "consumer"}
RECORDS = 10
LIMIT_S = 20.0


def member(servers: str, *topics: str, **settings: Any) -> Consumer:
    return Consumer(*topics, bootstrap_servers=servers, **{**QUICK, "group_id": "g", **settings})


async def fill(servers: str, topic: str) -> None:
    async with Producer(servers) as producer:
        for number in range(RECORDS):
            await producer.send(topic, b"%d" % number, partition=number % 2)


@pytest.fixture
async def cluster(broker: EmbeddedCluster) -> EmbeddedCluster:
    broker.create_topic("t", 2)
    await fill(broker.bootstrap_servers, "t")
    return broker


async def read_forever(consumer: Consumer) -> None:
    async with consumer:
        async for _ in consumer:
            await consumer.commit()


async def assert_ended(before: set[asyncio.Task[Any]], when: object) -> None:
    left = {task for task in asyncio.all_tasks() - before if task.get_name().startswith("aioprod-")}
    if left:
        await asyncio.wait(left, timeout=LIMIT_S)
    assert not [task.get_name() for task in left if not task.done()], when


@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
async def test_it_is_closed_by_another_task_at_any_turn_of_the_loop(
    cluster: EmbeddedCluster, protocol: dict[str, Any]
) -> None:
    """While it starts, joins, reads, commits; twice as many turns as it needs for all of that."""
    before = asyncio.all_tasks()
    loop = asyncio.get_running_loop()
    done_at = 0
    turns = 0
    while turns < 2 * done_at or not done_at:
        assert turns < 1_000
        consumer = member(cluster.bootstrap_servers, "t", group_id=f"g{turns}", **protocol)
        task = asyncio.create_task(read_forever(consumer))
        for _ in range(turns):
            await asyncio.sleep(0)
        began = loop.time()
        await consumer.close()
        assert loop.time() - began < LIMIT_S, turns
        with pytest.raises(ConsumerClosedError):
            await asyncio.wait_for(task, LIMIT_S)
        assert consumer.state.status is ConsumerStatus.STOPPED
        if cluster.committed_offsets(f"g{turns}") == {
            TopicPartition("t", number): RECORDS // 2 for number in range(2)
        }:
            done_at = done_at or turns
        await assert_ended(before, turns)
        if f"g{turns}" in cluster.group_ids:
            await cluster.wait_for_group(f"g{turns}", "Empty", timeout_seconds=LIMIT_S)
        turns += 5


@pytest.mark.parametrize("protocol", [COOPERATIVE, KIP_848], ids=["cooperative", "kip-848"])
@pytest.mark.parametrize("way", ["closed", "cancelled"])
async def test_it_ends_at_any_moment_on_real_kafka(
    kafka: str, protocol: dict[str, Any], way: str
) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    await make_topic(kafka, topic, 2)
    await fill(kafka, topic)
    before = asyncio.all_tasks()
    loop = asyncio.get_running_loop()
    seed = random.randrange(1_000_000)
    rng = random.Random(seed)
    for _ in range(12):
        consumer = member(kafka, topic, group_id=f"g-{topic}", **protocol)
        task = asyncio.create_task(read_forever(consumer))
        await asyncio.sleep(rng.uniform(0, 0.4))  # the moment is the test's input
        began = loop.time()
        if way == "closed":
            await consumer.close()
            with pytest.raises(ConsumerClosedError):
                await asyncio.wait_for(task, 2)
        else:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(task, LIMIT_S)
        assert loop.time() - began < 5, f"seed {seed}"
        assert consumer.state.status is ConsumerStatus.STOPPED
        await assert_ended(before, f"seed {seed}")


@pytest.mark.parametrize("where", ["assigned", "revoked"])
async def test_a_listener_may_close_the_consumer(cluster: EmbeddedCluster, where: str) -> None:
    class Closing(RebalanceListener):
        async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            if where == "assigned":
                await consumer.close()

        async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            if where == "revoked":
                await consumer.close()

    consumer = member(cluster.bootstrap_servers)
    await consumer.start()
    consumer.subscribe(["t"], listener=Closing())
    async with asyncio.timeout(5):
        if where == "revoked":
            await consumer.getone()
            cluster.rebalance_group("g")
        with pytest.raises(ConsumerClosedError):
            async for _ in consumer:
                pass
    assert consumer.state.status is ConsumerStatus.STOPPED
    await cluster.wait_for_group("g", "Empty", timeout_seconds=2)


async def close_while_giving_way(servers: str, topic: str, **protocol: Any) -> None:
    """A member that has two partitions, and has to give up one, ends in its listener: nothing is
    taken over after that.
    """
    calls: list[str] = []

    class Closing(RebalanceListener):
        def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            calls.append(f"assigned {len(partitions)}")

        async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            calls.append("revoked")
            await consumer.close()

    consumer = member(servers, group_id=f"g-{topic}", **protocol)
    await consumer.start()
    consumer.subscribe([topic], listener=Closing())
    async with asyncio.timeout(LIMIT_S):
        while len(consumer.assignment()) < 2:
            await consumer.getmany(timeout_ms=50)
        async with member(servers, topic, group_id=f"g-{topic}", **protocol) as second:
            with pytest.raises(ConsumerClosedError):
                while True:
                    await consumer.getmany(timeout_ms=50)
                    await second.getmany(timeout_ms=50)
            while len(second.assignment()) < 2:
                await second.getmany(timeout_ms=50)
    assert calls == ["assigned 2", "revoked", "revoked"], "of one partition, and then of the other"


async def test_a_listener_may_close_a_consumer_that_gives_way(cluster: EmbeddedCluster) -> None:
    await close_while_giving_way(cluster.bootstrap_servers, "t", **COOPERATIVE)


async def test_a_listener_may_close_a_consumer_that_gives_way_in_a_group_of_the_new_protocol(
    bootstrap: str,
) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    await make_topic(bootstrap, topic, 2)
    await close_while_giving_way(bootstrap, topic, **KIP_848)


async def test_a_listener_that_closes_while_the_consumer_closes_does_not_wait_for_itself(
    cluster: EmbeddedCluster,
) -> None:
    class Closing(RebalanceListener):
        async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            await consumer.close()

    consumer = member(cluster.bootstrap_servers)
    await consumer.start()
    consumer.subscribe(["t"], listener=Closing())
    await consumer.getone()
    async with asyncio.timeout(5):
        await consumer.close(20_000)


async def test_it_ends_although_the_clock_is_stopped(cluster: EmbeddedCluster) -> None:
    """aiokafka's stop() never ended then: it compared times in a loop."""
    consumer = member(cluster.bootstrap_servers, "t")
    await consumer.start()
    await consumer.getone()
    loop = asyncio.get_running_loop()
    present, limit = (
        loop.time(),
        threading.Timer(
            LIMIT_S,
            loop.call_soon_threadsafe,
            [cast("asyncio.Task[None]", asyncio.current_task()).cancel],
        ),
    )
    limit.start()
    loop.time = lambda: present  # type: ignore[method-assign]
    try:
        await consumer.commit()
        await consumer.getone()
        await consumer.close()
    finally:
        del loop.time
        limit.cancel()
    assert sum(cluster.committed_offsets("g").values()) == 2
    await cluster.wait_for_group("g", "Empty", timeout_seconds=2)


async def test_the_state_shows_start_rebalance_and_reading(cluster: EmbeddedCluster) -> None:
    consumer = member(cluster.bootstrap_servers, "t")
    statuses = [consumer.state.status]
    kept_back = asyncio.Event()
    cluster.on(ApiKey.METADATA, hold_answer(kept_back), times=1)
    starting = asyncio.create_task(consumer.start())
    await cluster.wait_for_request(ApiKey.METADATA, cluster.request_count(ApiKey.METADATA) + 1)
    statuses.append(consumer.state.status)
    kept_back.set()
    await starting
    statuses.append(consumer.state.status)
    await consumer.getone()
    statuses.append(consumer.state.status)
    before = cluster.request_count(ApiKey.JOIN_GROUP)
    cluster.rebalance_group("g")
    async with asyncio.timeout(LIMIT_S):
        await until(lambda: consumer.state.status == "rebalancing")
        while consumer.state.status != "reading":
            await consumer.getmany(timeout_ms=10)
    assert cluster.request_count(ApiKey.JOIN_GROUP) > before
    await consumer.close()
    assert [*statuses, consumer.state.status] == [
        "stopped",
        "starting",
        "rebalancing",
        "reading",
        "stopped",
    ]


async def test_its_tasks_cancelled_from_outside_are_reported(cluster: EmbeddedCluster) -> None:
    before = asyncio.all_tasks()
    async with member(cluster.bootstrap_servers, "t", auto_commit_interval_ms=1) as consumer:
        for _ in range(RECORDS):
            await consumer.getone()
        tasks = {
            task for task in asyncio.all_tasks() - before if task.get_name().startswith("aioprod-")
        }
        assert {"aioprod-heartbeats"} < {task.get_name() for task in tasks}
        for task in tasks:
            task.cancel()
        with pytest.raises(KafkaError, match="was cancelled from outside"):
            async with asyncio.timeout(5):
                while True:
                    await consumer.getmany(timeout_ms=100)


@pytest.mark.virtual_time
async def test_calls_of_a_member_without_a_broker_say_why_in_their_time(
    cluster: EmbeddedCluster,
) -> None:
    address = cluster.bootstrap_servers
    consumer = member(address, "t", enable_auto_commit=False, default_api_timeout_ms=300)
    async with consumer:
        await consumer.getone()
        await cluster.stop_all()
        for call in (
            consumer.commit(timeout_ms=100),
            consumer.commit_async(),
            consumer.committed(),
            consumer.topics(),
            consumer.seek_to_end(),
        ):
            with pytest.raises(KafkaTimeoutError) as caught:
                async with asyncio.timeout(2):
                    await call
            assert address in f"{caught.value} {caught.value.__cause__}", "with the reason"
        loop = asyncio.get_running_loop()
        began = loop.time()
        await consumer.close(500)
        assert loop.time() - began < 2


APIS = [
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.OFFSET_FETCH,
    ApiKey.OFFSET_COMMIT,
    ApiKey.LEAVE_GROUP,
]
CODES = [code for code in ErrorCode if code != ErrorCode.NONE] + [
    cast("ErrorCode", number) for number in (134, 999, -7)
]


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("api", "codes"),
    [
        pytest.param(
            api,
            *share.values,
            id=f"{api.name}-{share.id}",
            marks=[*share.marks, *([] if api is ApiKey.HEARTBEAT else [pytest.mark.slow])],
        )
        for place, api in enumerate(APIS)
        for share in shares_by_default(CODES, 3, place)
    ],
)
async def test_an_answer_with_any_code_is_survived_or_reported(
    api: ApiKey, codes: Sequence[ErrorCode]
) -> None:
    """One answer with each code: who asks on gets every record, unless another consumer has its
    name.
    """
    async with EmbeddedCluster(groups=GroupSettings(min_session_timeout_ms=1)) as cluster:
        cluster.create_topic("t", 2)
        await fill(cluster.bootstrap_servers, "t")
        for code in codes:
            async with asyncio.timeout(LIMIT_S):
                await read_all_in_spite_of(cluster, api, code)


async def read_all_in_spite_of(cluster: EmbeddedCluster, api: ApiKey, code: ErrorCode) -> None:
    rule = cluster.on(api, fail(code), times=1)
    errors: list[KafkaError] = []
    seen: set[bytes] = set()
    settings = {**EAGER, "session_timeout_ms": 200}
    async with member(
        cluster.bootstrap_servers, "t", group_id=f"g{int(code)}", **settings
    ) as consumer:
        while len(seen) < RECORDS or (not rule.used and api is not ApiKey.LEAVE_GROUP):
            try:
                seen |= {record.value for record in await consumer.getmany(timeout_ms=20)}
                if api is ApiKey.OFFSET_COMMIT and len(seen) == RECORDS:
                    await consumer.commit()
            except KafkaError as error:
                errors.append(error)
                if code == ErrorCode.FENCED_INSTANCE_ID and len(errors) > 3:
                    break
    rule.cancel()
    assert rule.used == 1, code
    if code != ErrorCode.FENCED_INSTANCE_ID:
        assert len(seen) == RECORDS and len(errors) <= 2, (code, errors)
    for reported in errors:
        assert not ErrorCode.of(code).retriable or not isinstance(reported, BrokerError), (
            code,
            reported,
        )


async def test_it_leaves_although_a_commit_is_in_flight_when_the_time_to_close_has_passed(
    cluster: EmbeddedCluster,
) -> None:
    released = asyncio.Event()
    cluster.on(ApiKey.OFFSET_COMMIT, hold_answer(released))
    async with member(cluster.bootstrap_servers, "t", enable_auto_commit=False) as consumer:
        await consumer.getone(timeout_ms=LIMIT_S * 1_000)
        consumer.commit_async()
        await cluster.wait_for_request(ApiKey.OFFSET_COMMIT)
        await consumer.close(0)
        released.set()
    await cluster.wait_for_group("g", "Empty", timeout_seconds=2)  # the session lasts longer


@pytest.mark.virtual_time
async def test_members_learn_of_a_rebalance_before_the_coordinator_goes_on_without_them(
    cluster: EmbeddedCluster,
) -> None:
    """The first member learns by a heartbeat that the second joins, and has
    ``max_poll_interval_ms`` to join again; ``heartbeat_interval_ms`` alone would be too long.
    """
    slow = {"heartbeat_interval_ms": 5_000, "max_poll_interval_ms": 1_000}
    first, second = (member(cluster.bootstrap_servers, "t", **slow) for _ in range(2))
    shared = asyncio.Event()

    async def poll(consumer: Consumer) -> None:
        while not shared.is_set():
            await consumer.getmany(timeout_ms=50)
            if len(first.assignment()) == len(second.assignment()) == 1:
                shared.set()

    async with asyncio.timeout(LIMIT_S), first, second:
        while len(first.assignment()) < 2:
            await first.getmany(timeout_ms=50)
        await asyncio.gather(poll(first), poll(second))


class Reported(RebalanceListener):
    def __init__(self) -> None:
        self.calls: list[str] = []

    async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(f"assigned {len(partitions)}")

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(f"revoked {len(partitions)}")
        await asyncio.sleep(LIMIT_S)  # no call waits for this


@pytest.mark.virtual_time
@pytest.mark.parametrize("call", ["close", "unsubscribe", "cancelled close"])
async def test_the_listener_is_reported_although_the_last_commit_takes_longer_than_allowed(
    cluster: EmbeddedCluster, call: str
) -> None:
    cluster.on_every(ApiKey.OFFSET_COMMIT, hold_answer(asyncio.Event()))
    reported = Reported()
    async with asyncio.timeout(LIMIT_S):
        async with member(cluster.bootstrap_servers) as consumer:
            consumer.subscribe(["t"], listener=reported)
            await consumer.getone()
            ending = asyncio.create_task(
                consumer.unsubscribe() if call == "unsubscribe" else consumer.close(500)
            )
            await cluster.wait_for_request(ApiKey.OFFSET_COMMIT)
            if call != "close":
                ending.cancel()
            await asyncio.wait([ending])
            assert reported.calls == ["assigned 2", "revoked 2"]
