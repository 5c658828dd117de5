"""The tools of Kafka's system tests, with the Java client 4.1, against the embedded cluster."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aioprod import ErrorCode, Producer, TopicPartition
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.message import Message
from aioprod.protocol.messages.produce import ProduceRequest
from aioprod.testing import EmbeddedCluster, drop_after, fail
from tests.interop.programs.java_tools import (
    CompletedTool,
    Event,
    RunningTool,
    properties_file,
    run_tool,
    running_tool,
)
from tests.waiting import programs_per_core

pytestmark = pytest.mark.kafka  # needs Java and Kafka's jars

PARTITIONS = 3
COUNT = 3_000
FEW = 150
BASE_SEQUENCE = struct.Struct(">i")
BASE_SEQUENCE_AT = 53


@pytest.fixture
async def three() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(nodes=3, num_partitions=PARTITIONS) as cluster:
        yield cluster


def values(cluster: EmbeddedCluster, topic: str, *, committed_only: bool = False) -> list[bytes]:
    return [record.value or b"" for record in cluster.records(topic, committed_only=committed_only)]


def numbers(count: int) -> list[bytes]:
    return sorted(b"%d" % number for number in range(count))


async def verifiable_producer(
    cluster: EmbeddedCluster, topic: str, count: int, *arguments: str
) -> CompletedTool:
    return await run_tool(
        "VerifiableProducer",
        "--bootstrap-server",
        cluster.bootstrap_servers,
        "--topic",
        topic,
        "--max-messages",
        str(count),
        *arguments,
    )


def is_past_the_start(request: Message) -> bool:
    """Return whether no batch of this request can be in flight together with the first of its
    partition.

    A broker accepts any first sequence of an unknown producer. If it rejected the first batch and
    accepted the second, the Java client would retry the first one forever, with Kafka too.
    """
    assert isinstance(request, ProduceRequest)
    batches = [
        partition.records for topic in request.topic_data for partition in topic.partition_data
    ]
    return all(
        BASE_SEQUENCE.unpack_from(batch or b"", BASE_SEQUENCE_AT)[0] > 600 for batch in batches
    )


async def test_verifiable_producer_meets_lost_answers_and_refusals(
    three: EmbeddedCluster, tmp_path: Path
) -> None:
    three.create_topic("t", PARTITIONS)
    lost = three.on(ApiKey.PRODUCE, drop_after(), times=2)
    refused = three.on(
        ApiKey.PRODUCE, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=2, where=is_past_the_start
    )
    # The tool does not retry by default.
    settings = properties_file(
        tmp_path, batch_size=1_000, retry_backoff_ms=10, retries=100, enable_idempotence="true"
    )
    done = await verifiable_producer(
        three, "t", COUNT, "--acks", "-1", "--producer.config", settings
    )
    assert done.status == 0, done.errors
    assert (lost.used, refused.used) == (2, 2)
    acknowledged = {
        (event["partition"], event["offset"], event["value"].encode())
        for event in done.events()
        if event["name"] == "producer_send_success"
    }
    assert acknowledged == {
        (index, record.offset, record.value)
        for index in range(PARTITIONS)
        for record in three.records("t", index)
    }
    assert sorted(values(three, "t")) == numbers(COUNT)


def assigned(events: list[Event]) -> set[int]:
    """Return the partitions that are assigned to a consumer."""
    have: set[int] = set()
    for event in events:
        if event["name"] in ("partitions_assigned", "partitions_revoked"):
            places = {place["partition"] for place in event["partitions"]}
            have = have | places if event["name"] == "partitions_assigned" else have - places
    return have


def consumed(*consumers: RunningTool) -> Counter[bytes]:
    return Counter(
        event["value"].encode()
        for each in consumers
        for event in each.events
        if event["name"] == "record_data"
    )


async def test_verifiable_consumers_share_a_group(three: EmbeddedCluster, tmp_path: Path) -> None:
    """A second member joins and leaves; each record is consumed once, and its offset is
    committed.
    """
    three.create_topic("t", PARTITIONS)
    settings = properties_file(tmp_path, heartbeat_interval_ms=50, fetch_max_wait_ms=50)
    arguments = [
        "--bootstrap-server",
        three.bootstrap_servers,
        "--topic",
        "t",
        "--group-id",
        "g",
        "--verbose",
        "--consumer.config",
        settings,
    ]
    async with (
        running_tool("VerifiableConsumer", *arguments) as first,
        Producer(three.bootstrap_servers) as producer,
    ):

        async def send(start: int) -> None:
            for number in range(start, start + FEW):
                await producer.send("t", b"%d" % number, partition=number % PARTITIONS)
            await producer.flush()

        await first.until(lambda events: assigned(events) == {0, 1, 2})
        await send(0)
        await first.until(lambda _: consumed(first).total() == FEW)
        async with running_tool("VerifiableConsumer", *arguments) as second:
            await second.until(lambda events: len(assigned(events)) > 0)
            await first.until(
                lambda events: assigned(events) == {0, 1, 2} - assigned(second.events)
            )
            await send(FEW)
            await second.named("records_consumed")
            await second.stop()
        await first.until(lambda events: assigned(events) == {0, 1, 2})
        await first.until(lambda _: consumed(first, second).total() == 2 * FEW)
        await first.stop()
        assert consumed(first, second) == Counter(numbers(2 * FEW))
    assert three.committed_offsets("g") == {
        TopicPartition("t", index): len(three.records("t", index)) for index in range(PARTITIONS)
    }


def acknowledged(*consumers: RunningTool) -> Counter[tuple[int, int]]:
    """Count the confirmed acknowledgements of each record."""
    return Counter(
        (place["partition"], offset)
        for each in consumers
        for event in each.events
        if event["name"] == "offsets_acknowledged" and event["success"]
        for place in event["partitions"]
        for offset in place["offsets"]
    )


@pytest.mark.parametrize("mode", ["sync", pytest.param("auto", marks=pytest.mark.interop)])
async def test_verifiable_share_consumers_share_a_group(three: EmbeddedCluster, mode: str) -> None:
    """A second member joins and leaves, and responses are lost; each record is accepted once."""
    three.create_topic("t", PARTITIONS)
    arguments = ["--bootstrap-server", three.bootstrap_servers, "--topic", "t", "--group-id", "g"]
    arguments += ["--offset-reset-strategy", "earliest", "--acknowledgement-mode", mode]

    async with (
        running_tool("VerifiableShareConsumer", *arguments, "--verbose") as first,
        Producer(three.bootstrap_servers) as producer,
    ):

        async def send(start: int) -> None:
            for number in range(start, start + FEW):
                await producer.send("t", b"%d" % number, partition=number % PARTITIONS)
            await producer.flush()

        await send(0)
        await first.until(lambda _: acknowledged(first).total() == FEW)
        three.on(ApiKey.SHARE_FETCH, drop_after())
        three.on(ApiKey.SHARE_FETCH, fail(ErrorCode.SHARE_SESSION_NOT_FOUND), nth=5)
        three.on(ApiKey.SHARE_GROUP_HEARTBEAT, fail(ErrorCode.NOT_COORDINATOR))
        async with running_tool("VerifiableShareConsumer", *arguments, "--verbose") as second:
            await three.wait_for_group("g", "Stable", member_count=2)
            await send(FEW)
            await first.until(lambda _: acknowledged(first).total() > FEW)
            three.move_coordinator("group", "g", three.coordinator("group", "g") % 3 + 1)
            await second.stop()
        await first.until(lambda _: acknowledged(first, second).total() >= 2 * FEW)
        await first.stop()
        assert set(consumed(first, second)) == set(numbers(2 * FEW))
        assert acknowledged(first, second) == Counter(
            (index, record.offset)
            for index in range(PARTITIONS)
            for record in three.records("t", index)
        )


@pytest.mark.parametrize("transaction_version", [pytest.param(1, marks=pytest.mark.interop), 2])
async def test_transactional_message_copier(transaction_version: int) -> None:
    """Copy records in transactions, some of them aborted, with lost responses: the copy has each
    record once.
    """
    async with EmbeddedCluster(
        nodes=3, num_partitions=PARTITIONS, transaction_version=transaction_version
    ) as cluster:
        async with Producer(cluster.bootstrap_servers) as producer:
            for number in range(COUNT):
                await producer.send("source", b"%d" % number)
        cluster.on(ApiKey.END_TXN, drop_after(), times=2)
        cluster.on(ApiKey.PRODUCE, drop_after(), times=2)
        cluster.on(ApiKey.TXN_OFFSET_COMMIT, fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        done = await run_tool(
            "TransactionalMessageCopier",
            "--broker-list",
            cluster.bootstrap_servers,
            "--input-topic",
            "source",
            "--input-partition",
            "0",
            "--output-topic",
            "copy",
            "--max-messages",
            str(COUNT),
            "--consumer-group",
            "g",
            "--transaction-size",
            "300",
            "--transactional-id",
            "x",
            "--enable-random-aborts",
            "--group-mode",
            "--use-group-metadata",
        )
        assert done.status == 0, done.errors
        assert [
            event["totalProcessed"]
            for event in done.events()
            if event["stage"] == "ShutdownComplete"
        ] == [COUNT]
        assert sorted(values(cluster, "copy", committed_only=True)) == numbers(COUNT)
        committed = cluster.committed_offsets("g")
        assert {place.topic for place in committed} == {"source"} and sum(
            committed.values()
        ) == COUNT


async def test_client_compatibility_test() -> None:
    supported = [
        "offsets-for-times",
        "cluster-id",
        "create-topics",
        "describe-configs",
        "idempotent-producer",
    ]
    for _ in range(1 + round(programs_per_core())):  # its limit of ten seconds can't be changed
        async with EmbeddedCluster(nodes=3, num_partitions=PARTITIONS) as three:
            three.create_topic("t", 1)
            done = await run_tool(
                "ClientCompatibilityTest",
                "--bootstrap-server",
                three.bootstrap_servers,
                "--topic",
                "t",
                "--num-cluster-nodes",
                "3",
                *(word for feature in supported for word in (f"--{feature}-supported", "true")),
                "--describe-acls-supported",
                "true",
                "--expect-record-too-large-exception",
                "false",
            )
        if "Timed out after 10000 ms" not in done.output:
            break
    assert (done.status, done.output.splitlines()[-1]) == (0, "SUCCESS."), done.output + done.errors


async def test_broker_api_versions_command(three: EmbeddedCluster) -> None:
    done = await run_tool("BrokerApiVersionsCommand", "--bootstrap-server", three.bootstrap_servers)
    assert done.status == 0, done.errors
    nodes = done.output.split(" -> (")[1:]
    assert len(nodes) == 3
    for node in nodes:
        found = {int(key): text for key, text in re.findall(r"\((\d+)\): ([^\[,]+)", node)}
        assert (
            found[ApiKey.PRODUCE].strip() == "3 to 13" and found[ApiKey.FETCH].strip() == "4 to 18"
        )
        assert "UNKNOWN" not in node, "unknown API or version"
        unsupported = {key for key, text in found.items() if text.strip() == "UNSUPPORTED"}
        assert unsupported and not unsupported & {seen.api_key for seen in three.requests}


@pytest.mark.interop
async def test_console_producer_and_consumer(three: EmbeddedCluster) -> None:
    written = await run_tool(
        "ConsoleProducer",
        "--bootstrap-server",
        three.bootstrap_servers,
        "--topic",
        "t",
        "--property",
        "parse.key=true",
        "--property",
        "key.separator=:",
        lines="".join(f"key {number}:value {number}\n" for number in range(100)),
    )
    assert written.status == 0, written.errors
    assert {(record.key, record.value) for record in three.records("t")} == {
        (b"key %d" % number, b"value %d" % number) for number in range(100)
    }
    read = await run_tool(
        "consumer.ConsoleConsumer",
        "--bootstrap-server",
        three.bootstrap_servers,
        "--topic",
        "t",
        "--from-beginning",
        "--max-messages",
        "100",
        "--property",
        "print.key=true",
    )
    assert read.status == 0, read.errors
    assert sorted(read.output.splitlines()) == sorted(
        f"key {number}\tvalue {number}" for number in range(100)
    )
