"""The log answers what a newcomer asks: who started, what is read, what a call waits for."""

from __future__ import annotations

import ast
import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import aioprod
from aioprod import (
    Admin,
    Consumer,
    ErrorCode,
    KafkaError,
    MetadataTimeoutError,
    Producer,
    ShareConsumer,
    SubscriptionPattern,
    TopicPartition,
)
from aioprod.logs import LastingProblem, listed
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, fail

pytestmark = pytest.mark.virtual_time

Wait = Callable[[str], Awaitable[object]]


def lines(caplog: pytest.LogCaptureFixture, level: int, text: str) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == level and text in record.getMessage()
    ]


async def send(servers: str) -> None:
    async with Producer(servers, client_id="me", max_block_ms=30_000) as producer:
        with pytest.raises(MetadataTimeoutError):
            await producer.send_and_wait("missing", b"x")


async def read(servers: str) -> None:
    async with Consumer("missing", bootstrap_servers=servers, client_id="me") as consumer:
        assert await consumer.getmany(timeout_ms=30_000) == []


async def read_in_a_group(servers: str) -> None:
    async with Consumer(
        "missing", bootstrap_servers=servers, client_id="me", group_id="g"
    ) as consumer:
        assert await consumer.getmany(timeout_ms=30_000) == []


async def share(servers: str) -> None:
    async with ShareConsumer(servers, topics="missing", client_id="me", group_id="s") as consumer:
        assert await consumer.getmany(timeout_ms=30_000) == []


@pytest.mark.parametrize("wait", [send, read, read_in_a_group, share])
async def test_a_topic_that_does_not_exist(wait: Wait, caplog: pytest.LogCaptureFixture) -> None:
    async with EmbeddedCluster(auto_create_topics=False) as broker:
        await wait(broker.bootstrap_servers)
    (line,) = lines(caplog, logging.WARNING, "still waiting")
    assert line.startswith("me: still waiting after ")
    assert "topic 'missing': UNKNOWN_TOPIC_OR_PARTITION (3)" in line
    assert 5 <= float(line.split()[4]) < 8


async def test_a_topic_that_is_created_later(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aioprod")
    async with EmbeddedCluster(auto_create_topics=False) as broker:
        async with Consumer(
            "late", bootstrap_servers=broker.bootstrap_servers, client_id="me"
        ) as consumer:
            await consumer.getmany(timeout_ms=10_000)
            broker.create_topic("late")
            await consumer.getmany(timeout_ms=10_000)
    assert len(lines(caplog, logging.WARNING, "still waiting")) == 1
    assert len(lines(caplog, logging.INFO, "me: topic 'late' can be used, after 1")) == 1


async def test_a_partition_without_a_leader(caplog: pytest.LogCaptureFixture) -> None:
    async with EmbeddedCluster(nodes=2, replication_factor=1) as broker:
        broker.create_topic("t", 2)
        await broker.stop_node(broker.leader("t", 1))
        async with Consumer(bootstrap_servers=broker.bootstrap_servers, client_id="me") as consumer:
            consumer.assign([TopicPartition("t", 1)])
            await consumer.getmany(timeout_ms=20_000)
    (line,) = lines(caplog, logging.WARNING, "still waiting")
    assert "me: still waiting after" in line
    assert "t-1: LEADER_NOT_AVAILABLE" in line


IN_A_GROUP: list[dict[str, Any]] = [
    {"group_id": "g", "group_protocol": "classic"},
    {"group_id": "g", "group_protocol": "consumer"},
]


@pytest.mark.parametrize("settings", [{}, *IN_A_GROUP], ids=["alone", "classic", "consumer"])
async def test_a_pattern_that_no_topic_matches(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aioprod")
    async with EmbeddedCluster() as broker:
        broker.create_topic("invoices")
        async with Consumer(
            bootstrap_servers=broker.bootstrap_servers, client_id="me", **settings
        ) as consumer:
            consumer.subscribe(pattern="order-.*")
            await consumer.getmany(timeout_ms=60_000)
            (line,) = lines(caplog, logging.WARNING, "still waiting")
            assert line.startswith("me: still waiting after 5 s: no topic matches the pattern ")
            assert "'order-.*'; create one, or check the pattern" in line
            broker.create_topic("order-1")
            await consumer.getmany(timeout_ms=400_000)
    assert "me: partitions assigned: order-1-0" in lines(caplog, logging.INFO, "assigned")
    assert len(lines(caplog, logging.WARNING, "")) == 1


async def test_a_pattern_of_the_broker_that_no_topic_matches(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with EmbeddedCluster() as broker:
        async with Consumer(
            bootstrap_servers=broker.bootstrap_servers, client_id="me", **IN_A_GROUP[1]
        ) as consumer:
            consumer.subscribe(pattern=SubscriptionPattern("order-.*"))
            await consumer.getmany(timeout_ms=60_000)
    (line,) = lines(caplog, logging.WARNING, "me: still waiting after ")
    assert "group 'g' assigned no partitions" in line and "'order-.*'" in line


@pytest.mark.parametrize("settings", IN_A_GROUP, ids=["classic", "consumer"])
async def test_a_member_in_reserve(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It has no problem, and an only member never gets such a line."""
    caplog.set_level(logging.INFO, "aioprod")
    async with EmbeddedCluster() as broker:
        broker.create_topic("t")
        servers = broker.bootstrap_servers
        first = Consumer("t", bootstrap_servers=servers, client_id="first", **settings)
        second = Consumer("t", bootstrap_servers=servers, client_id="second", **settings)
        async with second:
            async with first:
                await first.getmany(timeout_ms=20_000)
                assert lines(caplog, logging.INFO, "still waiting") == []
                both = [first.getmany(timeout_ms=20_000), second.getmany(timeout_ms=20_000)]
                await asyncio.gather(*both)
                (line,) = lines(caplog, logging.INFO, "still waiting")
                assert line.split(": ", 1)[1].startswith("still waiting after 5 s: group 'g' ")
                assert "assigned no partitions to this member; its topics have 1 part" in line
                (reading,) = {"first", "second"} - {line.partition(":")[0]}
            await second.getmany(timeout_ms=60_000)
    assert f"{reading}: partitions assigned: t-0" in lines(caplog, logging.INFO, "assigned")
    assert "second: partitions assigned: t-0" in lines(caplog, logging.INFO, "assigned")
    assert lines(caplog, logging.WARNING, "") == []


@pytest.mark.parametrize("kind", ["consumer", "producer"])
async def test_a_coordinator_that_is_not_there(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async with EmbeddedCluster() as broker:
        broker.create_topic("t")
        broker.on_every(ApiKey.FIND_COORDINATOR, fail(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        servers = broker.bootstrap_servers
        if kind == "consumer":
            async with Consumer(
                "t", bootstrap_servers=servers, client_id="me", group_id="g"
            ) as consumer:
                await consumer.getmany(timeout_ms=130_000)
                what, most = "group 'g'", 3
        else:
            producer = Producer(servers, client_id="me", transactional_id="tx")
            with pytest.raises(KafkaError):
                await producer.start()
            what, most = "transaction 'tx'", 1
    found = lines(caplog, logging.WARNING, f"me: the coordinator of {what} can't be reached for")
    assert 1 <= len(found) <= most
    assert "COORDINATOR_NOT_AVAILABLE" in found[0]


async def test_an_outage_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aioprod")
    async with EmbeddedCluster() as broker:
        broker.create_topic("t")
        servers = broker.bootstrap_servers
        async with Consumer("t", bootstrap_servers=servers, client_id="me") as consumer:
            await consumer.getmany(timeout_ms=1_000)
            before = len(caplog.records)
            await broker.stop_node(1)
            await consumer.getmany(timeout_ms=200_000)
            await broker.start_node(1)
            await consumer.getmany(timeout_ms=5_000)
            during = caplog.records[before:]
    out = lines(caplog, logging.WARNING, "can't be reached")
    assert len(out) == 4  # at once, and thrice
    assert all(line.startswith("me: broker 1 (") for line in out)
    assert any("can't be reached for 18" in line for line in out)
    assert lines(caplog, logging.INFO, "can be reached again, after 20")
    assert len(during) <= 14


async def test_each_line_has_the_id_of_the_client(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aioprod")
    async with EmbeddedCluster() as broker:
        broker.create_topic("t", 2)
        servers = broker.bootstrap_servers
        async with Producer(servers, client_id="p-1") as producer:
            await producer.send_and_wait("t", b"x", partition=0)
        for protocol in ("classic", "consumer"):
            async with Consumer(
                "t",
                bootstrap_servers=servers,
                client_id=f"c-{protocol}",
                group_id=f"g-{protocol}",
                group_protocol=protocol,
                auto_offset_reset="earliest",
            ) as consumer:
                await consumer.getone(timeout_ms=20_000)
                consumer.seek(TopicPartition("t", 0), 99)  # out of range
                await consumer.getone(timeout_ms=20_000)
        async with ShareConsumer(servers, topics="t", client_id="s-1", group_id="s") as sharer:
            await sharer.getmany(timeout_ms=10_000)
        async with Admin(servers, client_id="a-1") as admin:
            await admin.list_topics()
    said = [record.getMessage() for record in caplog.records if record.name.startswith("aioprod.")]
    ids = ("p-1", "c-classic", "c-consumer", "s-1", "a-1")
    clients = [line for line in said if ".testing." not in line]
    assert [line for line in clients if not any(each in line for each in ids)] == []
    for each in ids:
        (started,) = [line for line in said if f"'{each}' started (aioprod " in line]
        assert "native" in started or "pure Python" in started
        assert len([line for line in said if f"'{each}' closed" in line]) == 1
    for each in ("c-classic", "c-consumer"):
        assert f"{each}: partitions assigned: t-0, t-1" in said
        assert f"{each}: partitions revoked: t-0, t-1" in said
        assert f"{each}: positions reset: t-0 from offset 99 to 0 (earliest)" in said
    assert "s-1: partitions assigned: t-0, t-1" in said
    assert "s-1: partitions revoked: t-0, t-1" in said


ROOMS = ("net", "cluster", "producer", "consumer")
#: Errors of the application's code, bugs, what concerns all clients of a program, and reading
#: without a client.
WITHOUT_A_CLIENT = {
    "cluster/loop_binding.py",
    "consumer/group/assignors/calls.py",
    "consumer/partition_reader.py",
    "consumer/scheduler.py",
    "consumer/share/broker.py",
    "consumer/share/outcomes.py",
    "net/authentication.py",
    "net/versions.py",
    "producer/batch.py",
    "producer/compressor.py",
    "producer/partition_choice.py",
}


@pytest.mark.parametrize("room", ROOMS)
def test_each_call_of_the_log_begins_with_the_id_of_the_client(room: str) -> None:
    """A program has several clients, and a line must say which of them it is about."""
    package = Path(aioprod.__file__).parent
    calls, faults = 0, []
    for path in sorted((package / room).rglob("*.py")):
        name = path.relative_to(package).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(
                        value=ast.Name("log"), attr="info" | "warning" | "error" | "log"
                    ),
                    args=[*arguments],
                ) if name not in WITHOUT_A_CLIENT:
                    calls += 1
                    shown = " ".join(ast.unparse(each) for each in arguments[:3])
                    if not re.search(r"client_id|\bwho\b|\bself\._name\b", shown):
                        faults.append(f"{name}:{node.lineno}: {shown}")
    assert calls >= 3
    assert not faults, "\n".join(faults)


def test_when_a_problem_that_lasts_is_logged() -> None:
    problem = LastingProblem(5, 60)
    due = [second for second in range(200) if problem.lasts(100 + second)]
    assert due == [5, 65, 125, 185]
    assert problem.is_logged
    assert problem.duration(300) == " for 200 s"
    once = LastingProblem()
    assert [second for second in range(200) if once.lasts(second)] == [5]
    at_once = LastingProblem(0, 60)
    assert at_once.lasts(7)
    assert at_once.duration(7) == ""


def test_long_lists_are_shortened() -> None:
    assert listed(range(3)) == "0, 1, 2"
    assert listed(range(25)).endswith(", 19 and 5 more")


async def test_nothing_is_logged_of_what_is_soon_over(caplog: pytest.LogCaptureFixture) -> None:
    async with EmbeddedCluster(auto_create_topics=False) as broker:
        servers = broker.bootstrap_servers
        async with Consumer("soon", bootstrap_servers=servers, client_id="me") as consumer:
            reading = asyncio.create_task(consumer.getmany(timeout_ms=20_000))
            await asyncio.sleep(3)
            broker.create_topic("soon")
            await reading
    assert lines(caplog, logging.WARNING, "") == []
