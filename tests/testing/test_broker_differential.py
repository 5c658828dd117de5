"""The embedded broker answers like a real Apache Kafka broker: the same requests get the same codes
and offsets.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.api_versions import ApiVersionsRequest
from aioprod.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from aioprod.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from aioprod.protocol.messages.find_coordinator import FindCoordinatorRequest
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest
from aioprod.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aioprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from aioprod.testing import EmbeddedCluster
from tests.testing.new_topics import create_topics_with_leaders
from tests.testing.raw_client import RawClient, fetch_request, make_batch, produce_request

Exchange = Callable[[RawClient, str], Coroutine[Any, Any, list[object]]]
HOUR_MS = 3_600_000
TOPIC_CONFIGS = {"max.message.bytes": "1000"}


def broken(batch: bytes, index: int) -> bytes:
    changed = bytearray(batch)
    changed[index] ^= 0xFF
    return bytes(changed)


def name(code: int) -> str:
    return ErrorCode.of(code).name


BATCHES: dict[str, Callable[[], bytes]] = {
    "good": lambda: make_batch([b"a", b"b"]),
    "empty": lambda: b"",
    "cut": lambda: make_batch([b"x"])[:-1],
    "two": lambda: make_batch([b"x"]) * 2,
    "base offset": lambda: broken(make_batch([b"x"]), 7),
    "magic 1": lambda: make_batch([b"x"])[:16] + b"\x01" + make_batch([b"x"])[17:],
    "magic -3": lambda: broken(make_batch([b"x"]), 16),
    "checksum": lambda: broken(make_batch([b"x"]), 17),
    "value": lambda: broken(make_batch([b"x"]), -2),
    "no sequence": lambda: make_batch([b"x"], producer=(5, 0, -1)),
    "future": lambda: make_batch([b"x"], timestamps=[int(time.time() * 1000) + 2 * HOUR_MS]),
    "too large": lambda: make_batch([b"x" * 2000]),
    "after all that": lambda: make_batch([b"c"]),
}


async def produce_each_batch(client: RawClient, topic: str) -> list[object]:
    answers = {what: await client.produce(topic, batch()) for what, batch in BATCHES.items()}
    return [
        (what, name(answer.error_code), answer.base_offset, answer.log_append_time_ms)
        for what, answer in answers.items()
    ]


async def produce_to_unknown_places(client: RawClient, topic: str) -> list[object]:
    places = [
        (topic, 7, -1),
        (topic, -1, -1),
        (topic + "-unknown", 0, -1),
        (topic, 0, 2),
        (topic, 0, 1),
    ]
    return [
        name(
            (await client.produce(where, make_batch([b"x"]), partition=index, acks=acks)).error_code
        )
        for where, index, acks in places
    ]


async def produce_where_more_replicas_are_asked_for_than_there_are(
    client: RawClient, topic: str
) -> list[object]:
    asked = CreatableTopic(
        topic + "-two", 1, 1, configs=[CreatableTopicConfig("min.insync.replicas", "2")]
    )
    await create_topics_with_leaders(client.address, asked)
    answers = [await client.produce(asked.name, make_batch([b"x"]), acks=acks) for acks in (-1, 1)]
    await client.call(DeleteTopicsRequest(topic_names=[asked.name], timeout_ms=10_000), 5)
    return [(name(answer.error_code), answer.base_offset) for answer in answers]


async def produce_with_sequences(client: RawClient, topic: str) -> list[object]:
    pid = 4_000_000_000 + uuid.uuid4().int % 1_000_000
    last = 2**31 - 1
    script = [
        (0, 0, 2),
        (0, 2, 1),
        (0, 0, 2),
        (0, 2, 1),
        (0, 4, 1),
        (0, 0, 1),
        (0, 3, 1),
        (1, 4, 1),
        (1, 0, 1),
        (0, 4, 1),
        (1, 1, 1),
    ]
    script += [(1, 2 + number, 1) for number in range(5)] + [(1, 0, 1), (1, 2, 1), (1, 6, 1)]
    wrap = [(0, last - 1, 1), (0, last, 2), (0, 1, 1), (0, last, 2), (0, 1, 1), (0, 0, 1)]
    answers: list[object] = []
    for producer, steps in ((pid, script), (pid + 2_000_000, wrap)):
        for epoch, sequence, count in steps:
            answer = await client.produce(
                topic, make_batch([b"x"] * count, producer=(producer, epoch, sequence))
            )
            answers.append((epoch, sequence, count, name(answer.error_code), answer.base_offset))
    return answers


async def fetch_here_and_there(client: RawClient, topic: str) -> list[object]:
    for number in range(3):
        await client.produce(topic, make_batch([b"%d" % number] * 2))
    answers: list[object] = []
    for offset in (0, 1, 5, 6, 7, -1):
        for epoch in (-1, 0, 1):
            request = fetch_request(topic, offset)
            request.topics[0].partitions[0].current_leader_epoch = epoch
            partition = (await client.call(request, 12)).responses[0].partitions[0]
            places = (
                (partition.high_watermark, partition.last_stable_offset, partition.log_start_offset)
                if not partition.error_code
                else ()
            )
            answers.append((offset, epoch, name(partition.error_code), *places, partition.records))
    unknown = (
        (await client.call(fetch_request(topic + "-unknown", 0), 12)).responses[0].partitions[0]
    )
    return [*answers, name(unknown.error_code)]


async def list_offsets(client: RawClient, topic: str) -> list[object]:
    answers: list[object] = []
    asked = (-1, -2, -3, -4, -5, -6, -7, 0, 100, 150, 200, 250, 300, 301)
    for batch in (
        None,
        make_batch([b"a", b"b"], timestamps=[100, 200]),
        make_batch([b"c", b"d"], timestamps=[300, 250]),
    ):
        if batch is not None:
            await client.produce(topic, batch)
        for timestamp in asked:
            for version in (1, 3, 6, 7, 8, 9, 10):
                request = ListOffsetsRequest(
                    replica_id=-1,
                    topics=[ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, timestamp)])],
                )
                found = (await client.call(request, version)).topics[0].partitions[0]
                answers.append(
                    (
                        timestamp,
                        version,
                        name(found.error_code),
                        found.offset,
                        found.timestamp,
                        found.leader_epoch,
                    )
                )
    unknown = ListOffsetsRequest(
        replica_id=-1,
        topics=[ListOffsetsTopic(topic + "-unknown", [ListOffsetsPartition(0, -1, -1)])],
    )
    return [*answers, name((await client.call(unknown, 7)).topics[0].partitions[0].error_code)]


async def create_and_delete(client: RawClient, topic: str) -> list[object]:
    answers: list[object] = []
    new = topic + "-new"
    for asked in (
        CreatableTopic(topic, 1, 1),
        CreatableTopic("a/b", 1, 1),
        CreatableTopic("", 1, 1),
        CreatableTopic(new, 0, 1),
        CreatableTopic(new, -2, 1),
        CreatableTopic(new, 1, 3),
        CreatableTopic(new, 1, 0),
        CreatableTopic(new, 1, 1, configs=[CreatableTopicConfig("max.message.bytes", "many")]),
        CreatableTopic(new, 1, 1, configs=[CreatableTopicConfig("max.message.bytes", "-1")]),
        CreatableTopic(new, 1, 1, configs=[CreatableTopicConfig("message.timestamp.type", "Now")]),
        CreatableTopic(new, 1, 1, configs=[CreatableTopicConfig("min.insync.replicas", "0")]),
        CreatableTopic(new, -1, -1, [CreatableReplicaAssignment(1, [1])]),
        CreatableTopic(new, 2, -1, [CreatableReplicaAssignment(0, [1])]),
        CreatableTopic(new, -1, -1, [CreatableReplicaAssignment(0, [1, 1])]),
        CreatableTopic(new, -1, -1, [CreatableReplicaAssignment(0, [])]),
        CreatableTopic(new, -1, -1, [CreatableReplicaAssignment(0, [99])]),
    ):
        result = (await client.call(CreateTopicsRequest(topics=[asked]), 7)).topics[0]
        answers.append(
            (asked, name(result.error_code), result.num_partitions, result.replication_factor)
        )
    checked = await client.call(
        CreateTopicsRequest(topics=[CreatableTopic(new, 2, 1)], validate_only=True), 7
    )
    answers.append([(name(result.error_code), result.num_partitions) for result in checked.topics])
    twice = await client.call(
        CreateTopicsRequest(topics=[CreatableTopic(new, 2, 1), CreatableTopic(new, 2, 1)]), 7
    )
    answers.append([name(result.error_code) for result in twice.topics])
    deleted = await client.call(DeleteTopicsRequest(topic_names=[new], timeout_ms=10_000), 5)
    answers.append([(result.name == new, name(result.error_code)) for result in deleted.responses])
    deleted = await client.call(
        DeleteTopicsRequest(
            topics=[DeleteTopicState(None, uuid.uuid4()), DeleteTopicState(new)], timeout_ms=10_000
        ),
        6,
    )
    answers.append(
        sorted((result.name == new, name(result.error_code)) for result in deleted.responses)
    )
    return answers


async def metadata(client: RawClient, topic: str) -> list[object]:
    answers: list[object] = []
    for version in range(10):
        # Version 4 adds the flag; an unknown topic must not be created while versions are
        # compared.
        names = [topic, "a/b"] + ([topic + "-unknown"] if version >= 4 else [])
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=each) for each in names],
            allow_auto_topic_creation=version < 4,
        )
        response = await client.call(request, version)
        answers += [
            (found.name == topic, name(found.error_code), len(found.partitions), found.is_internal)
            for found in response.topics
        ]
    by_id = await client.call(
        MetadataRequest(
            topics=[MetadataRequestTopic(uuid.uuid4(), None)], allow_auto_topic_creation=False
        ),
        12,
    )
    return [*sorted(map(repr, answers)), name(by_id.topics[0].error_code)]


async def identities(client: RawClient, topic: str) -> list[object]:
    answers: list[object] = []
    for _ in range(500):  # a real broker needs a moment before it returns its first producer id
        if (
            await client.call(InitProducerIdRequest(transactional_id=None), 4)
        ).error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            break
        await asyncio.sleep(0.02)
    for version in range(5):
        plain = await client.call(InitProducerIdRequest(transactional_id=None), version)
        empty = await client.call(
            InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000), version
        )
        answers += [
            (name(plain.error_code), plain.producer_epoch, plain.producer_id >= 0),
            (name(empty.error_code), empty.producer_id),
        ]
    unknown_type = await client.call(FindCoordinatorRequest(key="g", key_type=9), 2)
    return [*answers, name(unknown_type.error_code)]


async def api_versions(client: RawClient, topic: str) -> list[object]:
    nameless = await client.call(
        ApiVersionsRequest(client_software_name="", client_software_version="1"), 3
    )
    client.writer.write(bytes.fromhex("0000000e 0012 0063 00000007 0003") + b"raw\0")
    return [name(nameless.error_code), await client.receive_frame()]


EXCHANGES: list[Exchange] = [
    produce_each_batch,
    produce_to_unknown_places,
    produce_where_more_replicas_are_asked_for_than_there_are,
    produce_with_sequences,
    fetch_here_and_there,
    list_offsets,
    create_and_delete,
    metadata,
    identities,
    api_versions,
]


@pytest.fixture
async def addresses(kafka: str) -> AsyncIterator[tuple[str, str]]:
    async with EmbeddedCluster() as embedded:
        yield kafka, embedded.bootstrap_servers


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.__name__)
async def test_both_brokers_say_the_same(addresses: tuple[str, str], exchange: Exchange) -> None:
    topic = f"differential-{uuid.uuid4().hex}"
    answers: list[list[object]] = []
    for address in addresses:
        async with RawClient(address) as client:
            configs = [CreatableTopicConfig(key, value) for key, value in TOPIC_CONFIGS.items()]
            await create_topics_with_leaders(address, CreatableTopic(topic, 1, 1, configs=configs))
            answers.append(await exchange(client, topic))
    real, embedded = answers
    assert embedded == real


async def test_acks_0_and_an_error_closes_both_connections(addresses: tuple[str, str]) -> None:
    for address in addresses:
        async with RawClient(address) as client:
            client.send(
                produce_request("unknown-" + uuid.uuid4().hex, make_batch([b"x"]), acks=0), 9
            )
            assert await client.is_closed()
