"""Kafka's command line tools for administrators, against the embedded cluster."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aioprod import Producer
from aioprod.testing import EmbeddedCluster
from tests.interop.programs.java_tools import run_tool

pytestmark = [pytest.mark.kafka, pytest.mark.interop]

PARTITIONS = 3


class Tools:
    """Runs the tools against a cluster."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster

    async def __call__(self, name: str, *arguments: str) -> str:
        """Run a tool, which must succeed, and return its output."""
        done = await run_tool(
            name, "--bootstrap-server", self._cluster.bootstrap_servers, *arguments
        )
        assert done.status == 0, done.output + done.errors
        return done.output


@pytest.fixture
async def three() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(nodes=3) as cluster:
        yield cluster


@pytest.fixture
def tools(three: EmbeddedCluster) -> Tools:
    return Tools(three)


async def fill(cluster: EmbeddedCluster, count: int = 30) -> None:
    """Create a topic ``t`` with numbers."""
    cluster.create_topic("t", PARTITIONS)
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send("t", b"%d" % number, partition=number % PARTITIONS)


async def test_topics(three: EmbeddedCluster, tools: Tools) -> None:
    await tools(
        "TopicCommand",
        "--create",
        "--topic",
        "made",
        "--partitions",
        "2",
        "--replication-factor",
        "3",
        "--config",
        "retention.ms=1000",
    )
    await tools("TopicCommand", "--alter", "--topic", "made", "--partitions", "4")
    assert len(three.topics["made"].partitions) == 4
    described = await tools("TopicCommand", "--describe", "--topic", "made")
    assert "PartitionCount: 4\tReplicationFactor: 3\tConfigs: retention.ms=1000" in described
    assert [line.split("\t")[3] for line in described.splitlines()[1:]] == [
        f"Leader: {node}" for node in (1, 2, 3, 1)
    ]
    assert (await tools("TopicCommand", "--list")).split() == ["made"]
    await tools("TopicCommand", "--delete", "--topic", "made")
    assert not three.topics


async def test_settings(three: EmbeddedCluster, tools: Tools) -> None:
    three.create_topic("t", 1, {"retention.ms": "1000"})
    of_topic = ["--entity-type", "topics", "--entity-name", "t"]
    of_client = ["--entity-type", "clients", "--entity-name", "me"]
    await tools(
        "kafka.admin.ConfigCommand",
        "--alter",
        *of_topic,
        "--add-config",
        "max.message.bytes=2000",
        "--delete-config",
        "retention.ms",
    )
    described = await tools("kafka.admin.ConfigCommand", "--describe", *of_topic)
    assert "max.message.bytes=2000" in described and "retention.ms" not in described
    await tools(
        "kafka.admin.ConfigCommand",
        "--alter",
        *of_client,
        "--add-config",
        "producer_byte_rate=1000",
    )
    assert "producer_byte_rate=1000.0" in await tools(
        "kafka.admin.ConfigCommand", "--describe", *of_client
    )


async def test_offsets_and_deleting_records(
    three: EmbeddedCluster, tools: Tools, tmp_path: Path
) -> None:
    await fill(three)
    assert (await tools("GetOffsetShell", "--topic", "t")).split() == ["t:0:10", "t:1:10", "t:2:10"]
    plan = tmp_path / "plan.json"
    places = [
        {"topic": "t", "partition": 0, "offset": 4},
        {"topic": "t", "partition": 1, "offset": -1},
    ]
    plan.write_text(json.dumps({"partitions": places, "version": 1}))
    printed = await tools("DeleteRecordsCommand", "--offset-json-file", str(plan))
    assert (
        "partition: t-0\tlow_watermark: 4" in printed
        and "partition: t-1\tlow_watermark: 10" in printed
    )
    assert (await tools("GetOffsetShell", "--topic", "t", "--time", "earliest")).split() == [
        "t:0:4",
        "t:1:10",
        "t:2:0",
    ]
    assert [record.value for record in three.records("t", 0)] == [
        b"%d" % number for number in range(12, 30, 3)
    ]


async def test_groups(three: EmbeddedCluster, tools: Tools) -> None:
    await fill(three)
    await tools(
        "consumer.ConsoleConsumer",
        "--topic",
        "t",
        "--group",
        "g",
        "--from-beginning",
        "--max-messages",
        "30",
    )
    described = (
        await tools("consumer.group.ConsumerGroupCommand", "--describe", "--group", "g")
    ).splitlines()
    lines = sorted(line.split()[:6] for line in described if line.startswith("g "))
    assert lines == [["g", "t", str(index), "10", "10", "0"] for index in range(PARTITIONS)]
    await tools(
        "consumer.group.ConsumerGroupCommand",
        "--reset-offsets",
        "--group",
        "g",
        "--topic",
        "t",
        "--to-offset",
        "3",
        "--execute",
    )
    assert set(three.committed_offsets("g").values()) == {3}
    await tools("consumer.group.ConsumerGroupCommand", "--delete", "--group", "g")
    assert not three.committed_offsets("g")
    assert (await tools("consumer.group.ConsumerGroupCommand", "--list")).split() == []


async def test_replicas_and_leaders(three: EmbeddedCluster, tools: Tools, tmp_path: Path) -> None:
    await fill(three)
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps(
            {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [2, 3]}]}
        )
    )
    await tools(
        "reassign.ReassignPartitionsCommand",
        "--reassignment-json-file",
        str(plan),
        "--execute",
    )
    assert "is completed" in await tools(
        "reassign.ReassignPartitionsCommand",
        "--reassignment-json-file",
        str(plan),
        "--verify",
    )
    assert three.leader("t", 0) in (2, 3)
    three.move_leader("t", 1, 1)
    await tools(
        "LeaderElectionCommand", "--election-type", "preferred", "--topic", "t", "--partition", "1"
    )
    assert three.leader("t", 1) == 2
    log_dirs = json.loads((await tools("LogDirsCommand", "--describe")).splitlines()[-1])
    assert [broker["broker"] for broker in log_dirs["brokers"]] == [1, 2, 3]


async def test_transactions(three: EmbeddedCluster, tools: Tools) -> None:
    three.create_topic("t", 1)
    async with Producer(three.bootstrap_servers, transactional_id="x") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"open", partition=0)
        listed = (await tools("TransactionsCommand", "list")).splitlines()
        assert [line.split()[0::3] for line in listed[1:]] == [["x", "Ongoing"]]
        described = await tools("TransactionsCommand", "describe", "--transactional-id", "x")
        assert "Ongoing" in described and "t-0" in described
        await producer.abort_transaction()
