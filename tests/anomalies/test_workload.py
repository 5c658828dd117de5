"""Clients leave histories without anomalies."""

from __future__ import annotations

import asyncio
import functools
import itertools
import math
import time
from unittest.mock import AsyncMock
from uuid import uuid4

import pytest

from aioprod import Admin, Producer
from aioprod.admin import NewTopic
from aioprod.cluster.client import ClusterClient
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from aioprod.testing import EmbeddedCluster
from tests.anomalies.anomaly import PERMITTED
from tests.anomalies.checker import check
from tests.anomalies.client_process import ClientProcess, Task
from tests.anomalies.clients import CLIENTS
from tests.anomalies.history import Entry, History, Read
from tests.anomalies.schedule import Visit
from tests.anomalies.workload import PARTITIONS, Workload
from tests.waiting import until

NODES = 3
CLIENTS_HERE = ("aioprod", "aiokafka", "confluent-kafka")
"""Those that run in this process."""


def assert_clean(history: History) -> None:
    assert [each for each in check(history) if each.kind not in PERMITTED] == []
    assert sum(operation.outcome == "ok" for operation in history.operations) > 100
    assert any(operation.reads for operation in history.operations)


@pytest.mark.parametrize("client", CLIENTS_HERE)
def test_a_history_with_moving_leaders_is_clean(client: str) -> None:
    with EmbeddedCluster.in_thread(nodes=NODES) as cluster:
        cluster.create_topic("t", PARTITIONS)

        async def move_leaders() -> None:
            for turn in range(4):
                await asyncio.sleep(0.1)
                for partition in range(PARTITIONS):
                    cluster.move_leader("t", partition, 1 + (partition + turn) % NODES)

        workload = Workload(
            client, cluster.bootstrap_servers, "t", 40, seed=1, visits=[Visit(0.1, 0.2)]
        )
        history = asyncio.run(workload.run(move_leaders))
        assert_clean(history)
        visitors = [each for each in history.operations if each.client == "visitor-0"]
        assert [each.lifecycle for each in visitors][:: len(visitors) - 1] == [True, True]


def test_the_choices_of_a_caller_do_not_depend_on_the_number_of_callers() -> None:
    chosen = []
    with EmbeddedCluster.in_thread() as cluster:
        for topic, callers in (("few", 2), ("many", 12)):
            cluster.create_topic(topic, PARTITIONS)
            workload = Workload(
                "aioprod", cluster.bootstrap_servers, topic, 60, seed=4, callers=callers
            )
            history = asyncio.run(workload.run(nothing))
            assert_clean(history)
            sent = [each for each in history.operations if each.client == "sender" and each.sends]
            assert {each.caller for each in sent} == {*range(callers)}
            chosen.append(
                [
                    [each.sends[0].partition[-1] for each in sent if each.caller == caller][:20]
                    for caller in range(2)
                ]
            )
    assert chosen[0] == chosen[1]


def test_a_history_with_a_killed_member_is_clean() -> None:
    with EmbeddedCluster.in_thread() as cluster:
        cluster.create_topic("t", PARTITIONS)
        servers = cluster.bootstrap_servers
        workload = Workload("aioprod", servers, "t", 40, seed=5, kills=[Visit(0.0, 0.0)])

        async def expel_after_kill() -> None:
            await until(lambda: workload.killed == 1, 60)
            await expel_all(servers, "t-group")

        history = asyncio.run(workload.run(expel_after_kill))
    assert_clean(history)
    assert any(each.client == "killed-0" and each.reads for each in history.operations)
    assert any(each.client == "killed-0" for each in history.owners)


async def expel_all(servers: str, group: str) -> None:
    """Remove all members of a group, as if their sessions had ended. The living ones join again."""
    async with Admin(servers) as admin:
        described = await admin.describe_consumer_groups([group])
    members = [MemberIdentity(each.member_id) for each in described[group].members]
    assert members
    async with ClusterClient(servers) as client:
        await client.request(LeaveGroupRequest(group, members=members))


def test_a_transaction_past_its_timeout_is_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.anomalies.workload.TRANSACTION_MS", 200)
    monkeypatch.setattr("tests.anomalies.workload._EXPIRED_S", 0.6)
    with EmbeddedCluster.in_thread() as cluster:
        cluster.create_topic("t", PARTITIONS)
        workload = Workload("aioprod", cluster.bootstrap_servers, "t", 60, seed=3, overdue=[0.0])
        history = asyncio.run(workload.run(functools.partial(asyncio.sleep, 1.5)))
    assert_clean(history)
    [expired] = [
        each
        for each in history.operations
        if each.transactional and (each.completed or 0) - each.invoked >= 0.8
    ]
    values = {each.value for each in expired.sends}
    assert expired.outcome != "ok" and values
    assert not values & {
        each.value for entries in history.log.values() for each in entries if each.committed
    }


async def test_the_log_is_read_once_the_last_transaction_has_its_markers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kafka acknowledges a commit before the markers are written."""
    monkeypatch.setattr("tests.anomalies.workload._MARKERS_S", math.inf)
    async with EmbeddedCluster() as cluster:
        cluster.create_topic("t", 1)
        servers = cluster.bootstrap_servers
        async with Producer(servers, transactional_id="x") as producer:
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"1")
            workload = Workload("aioprod", servers, "t", 0, seed=1, partitions=1)
            waiting = asyncio.create_task(workload._wait_for_markers())
            await until(
                lambda: [seen.api_key for seen in cluster.requests].count(ApiKey.LIST_OFFSETS) >= 4
            )
            assert not waiting.done()
            await producer.commit_transaction()
            await waiting
        await workload._add_log()
    assert workload._recorder.history.log == {"t/0": [Entry(0, 1, committed=True)]}


@pytest.mark.parametrize("read", [0, 2, 5])
async def test_members_read_on_while_they_get_records(
    read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that has left may come back for a session of 45 s if the coordinator fails."""
    monkeypatch.setattr("tests.anomalies.workload.asyncio.sleep", AsyncMock())
    workload = Workload("aioprod", "", "t", 0, seed=1, partitions=1)
    recorder = workload._recorder
    recorder.history.log = {"t/0": [Entry(value, value) for value in range(5)]}
    now = 0.0

    def clock() -> float:
        """Every 60 s, a member gets a record, until it stalls."""
        nonlocal now
        now += 5.0
        value, rest = divmod(now, 60.0)
        if rest == 0 and value <= read:
            operation = recorder.began("member-0", now, 1.0)
            operation.reads = (Read("t/0", int(value) - 1, int(value) - 1),)
        return now

    recorder.clock = clock
    async with asyncio.timeout(60):
        await workload._wait_for_readers()
    last = 60.0 * read
    assert last + 90 <= now <= last + 100 if read < 5 else now == last


async def test_a_client_that_never_succeeds_again_is_given_up() -> None:
    """Else each of its operations would last for its timeout, and there would be no result."""
    assert 2 < await _operations_after_the_faults(AsyncMock(side_effect=TimeoutError)) < 40


async def test_a_client_that_succeeds_again_does_all_its_operations() -> None:
    assert await _operations_after_the_faults(AsyncMock(side_effect=itertools.count())) == 100


async def _operations_after_the_faults(send: AsyncMock) -> int:
    """Return how many operations a caller does, which take a second each."""
    workload = Workload("aioprod", "", "t", 100, seed=1)
    workload._faults_ended = 0.0
    workload._pause = AsyncMock()  # type: ignore[method-assign]
    workload._recorder.clock = functools.partial(next, itertools.count(1.0, 0.5))
    await workload._send(AsyncMock(send=send), 0)
    return len(workload._recorder.history.operations)


async def test_a_process_judges_the_last_incarnation_of_its_topic() -> None:
    with EmbeddedCluster.in_thread(auto_create_topics=False) as cluster:
        cluster.create_topic("t", PARTITIONS)
        servers = cluster.bootstrap_servers
        task = Task("aioprod-pure", servers, "t", 60, 3, PARTITIONS, servers)
        async with ClientProcess.running(task) as process, Admin(servers) as admin:
            await process.until_working()
            process.begin()
            deleted = time.monotonic()
            await admin.delete_topics("t")
            (await admin.create_topics([NewTopic("t", PARTITIONS)])).check()
            process.end([(deleted, time.monotonic())])
            found = await process.result()
    assert found["anomalies"] == {}, found
    assert found["outcomes"]["ok"] > 100, found


@pytest.mark.parametrize(
    "client",
    [
        "aioprod-pure",
        # In one of a few runs, a call of its group did not return in time after the freeze.
        pytest.param("kafka-python", marks=pytest.mark.faults),
    ],
)
async def test_a_process_reports_a_clean_history(client: str) -> None:
    with EmbeddedCluster.in_thread() as cluster:
        cluster.create_topic("t", PARTITIONS)
        await assert_process_is_clean(client, cluster.bootstrap_servers, "t")


@pytest.mark.interop
@pytest.mark.kafka
@pytest.mark.parametrize("client", CLIENTS)
async def test_each_client_has_a_clean_history(client: str, kafka: str) -> None:
    CLIENTS[client].prepare()
    topic = f"anomalies-{uuid4()}"
    async with Admin(kafka) as admin:
        await admin.create_topics([NewTopic(topic, PARTITIONS)])
    await assert_process_is_clean(client, kafka, topic)


async def assert_process_is_clean(client: str, servers: str, topic: str) -> None:
    """Run a workload in a process, which is frozen meanwhile."""
    task = Task(client, servers, topic, 60, 3, PARTITIONS, servers, [Visit(0.0, 0.5)])
    async with ClientProcess.running(task) as process:
        await process.until_working()
        process.begin()
        await asyncio.sleep(0.3)
        process.freeze()
        await asyncio.sleep(0.2)
        process.thaw()
        process.end()
        found = await process.result()
    assert found["anomalies"] == {}, found
    assert found["outcomes"]["ok"] > 100, found


@pytest.mark.parametrize("client", CLIENTS_HERE)
def test_a_history_on_a_real_broker_is_clean(client: str, kafka: str) -> None:
    topic = f"anomalies-{uuid4()}"

    async def run() -> History:
        async with Admin(kafka) as admin:
            await admin.create_topics([NewTopic(topic, PARTITIONS)])
        return await Workload(client, kafka, topic, 60, seed=2).run(nothing)

    assert_clean(asyncio.run(run()))


async def nothing() -> None:
    """Disturb nothing."""
