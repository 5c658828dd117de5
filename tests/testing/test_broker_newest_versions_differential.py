"""The embedded broker answers the versions that Kafka 4.2 to 4.4 have added like a real one."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from aioprod.protocol.messages.api_versions import ApiVersionsRequest
from aioprod.protocol.messages.create_topics import CreatableTopic
from aioprod.protocol.messages.delete_groups import DeleteGroupsRequest
from aioprod.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from aioprod.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aioprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from aioprod.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from aioprod.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from aioprod.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from aioprod.testing import EmbeddedCluster
from tests.testing.new_topics import create_topics_with_leaders
from tests.testing.raw_client import RawClient
from tests.testing.raw_group import Scene, open_scene
from tests.testing.raw_transactions import V2, TransactionalClient, ask_until, name

UNKNOWN = uuid.UUID(int=7)
BY_ID, TRANSACTION_BY_ID = 10, 6
TRANSACTION = 1  # the type of coordinator
_WAIT = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")


async def topic_id(client: RawClient, topic: str) -> uuid.UUID:
    request = MetadataRequest([MetadataRequestTopic(name=topic)])
    return (await client.call(request, 12)).topics[0].topic_id


def reported(topics: Any, known: uuid.UUID) -> list[tuple[object, ...]]:
    """Return the content of a response by topic and partition, with labels for ids."""
    labels = {known: "known", UNKNOWN: "unknown"}
    return sorted(
        (
            topic.name,
            labels.get(topic.topic_id, str(topic.topic_id)),
            each.partition_index,
            getattr(each, "committed_offset", None),
            getattr(each, "committed_leader_epoch", None),
            getattr(each, "metadata", None),
            name(each.error_code),
        )
        for topic in topics
        for each in topic.partitions
    )


async def commit(
    scene: Scene, known: uuid.UUID, *, generation: int = -1, member_id: str = ""
) -> list[tuple[object, ...]]:
    topics = [
        OffsetCommitRequestTopic(
            topic_id=each,
            partitions=[
                OffsetCommitRequestPartition(0, 5, 3, "note"),
                OffsetCommitRequestPartition(9, 6),
            ],
        )
        for each in (known, UNKNOWN)
    ]
    request = OffsetCommitRequest(scene.group_id, generation, member_id, topics=topics)
    return reported((await scene.client.call(request, BY_ID)).topics, known)


async def fetch(
    scene: Scene, known: uuid.UUID, *, everything: bool = False
) -> list[tuple[object, ...]]:
    topics = [
        OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0, 1, 9])
        for each in (known, UNKNOWN)
    ]
    group = OffsetFetchRequestGroup(scene.group_id, topics=None if everything else topics)
    answer = (await scene.client.call(OffsetFetchRequest(groups=[group]), BY_ID)).groups[0]
    return [
        (answer.group_id == scene.group_id, name(answer.error_code)),
        *reported(answer.topics, known),
    ]


async def offsets_by_id(scene: Scene) -> list[object]:
    known = await topic_id(scene.client, scene.topic)
    answers: list[object] = [
        await fetch(scene, known),
        await commit(scene, known),
        await fetch(scene, known),
        await fetch(scene, known, everything=True),
        await commit(scene, known, generation=3, member_id="unknown"),
    ]
    it = await scene.member()
    await scene.stable(it)
    return [
        *answers,
        await commit(scene, known),
        await commit(scene, known, generation=it.generation_id, member_id=it.member_id),
        await commit(scene, known, generation=it.generation_id + 1, member_id=it.member_id),
    ]


async def offsets_by_id_in_a_transaction(scene: Scene) -> list[object]:
    known = await topic_id(scene.client, scene.topic)
    began = TransactionalClient(scene.client, f"tx-{scene.topic}", scene.topic, V2)
    assert await began.find(TRANSACTION, began.transactional_id) == "NONE"
    assert await began.init() == ("NONE", 0)

    async def write(epoch: int, generation: int = -1, member_id: str = "") -> object:
        topics = [
            TxnOffsetCommitRequestTopic(
                topic_id=each,
                partitions=[
                    TxnOffsetCommitRequestPartition(0, 5, 3, "note"),
                    TxnOffsetCommitRequestPartition(9, 6),
                ],
            )
            for each in (known, UNKNOWN)
        ]
        request = TxnOffsetCommitRequest(
            began.transactional_id,
            scene.group_id,
            began.producer_id,
            epoch,
            generation,
            member_id,
            None,
            topics,
        )
        answer = await ask_until(
            lambda answer: name(answer.topics[0].partitions[0].error_code) not in _WAIT,
            lambda: scene.client.call(request, TRANSACTION_BY_ID),
        )
        return reported(answer.topics, known)

    return [
        await write(began.epoch),
        await write(began.epoch, 3, "unknown"),
        await write(began.epoch + 1),
        await fetch(scene, known),
    ]


async def groups_deleted(scene: Scene) -> list[object]:
    it = await scene.member()
    await scene.stable(it)
    answers: list[object] = []
    for group_id in (scene.group_id, f"no-{scene.group_id}", ""):
        result = (await scene.client.call(DeleteGroupsRequest([group_id]), 3)).results[0]
        message = result.error_message and result.error_message.replace(group_id or "?", "GROUP")
        answers.append((name(result.error_code), message))
    return answers


async def offsets_listed(scene: Scene) -> list[object]:
    answers: list[object] = []
    for timestamp, version in ((-6, 11), (-6, 10), (-7, 11), (-5, 11)):
        asked = ListOffsetsTopic(scene.topic, [ListOffsetsPartition(0, timestamp=timestamp)])
        answer = await scene.client.call(ListOffsetsRequest(-1, 0, [asked]), version)
        found = answer.topics[0].partitions[0]
        answers.append((name(found.error_code), found.offset, found.timestamp, found.leader_epoch))
    return answers


async def log_directories(scene: Scene) -> list[object]:
    answer = await scene.client.call(DescribeLogDirsRequest(None), 5)
    return [name(answer.error_code), [each.is_cordoned for each in answer.results]]


async def misrouted_connections(scene: Scene) -> list[object]:
    cluster = (await scene.client.call(MetadataRequest([]), 12)).cluster_id
    node = (await scene.client.call(MetadataRequest([]), 12)).brokers[0].node_id
    answers: list[object] = []
    for cluster_id, node_id in (
        (cluster, node),
        (None, -1),
        ("other", node),
        (cluster, node + 1),
        ("other", -1),
        (None, node + 1),
    ):
        async with RawClient(scene.address) as client:
            request = ApiVersionsRequest("raw", "1", cluster_id, node_id)
            answer = await client.call(request, 5)
            answers.append((name(answer.error_code), len(answer.api_keys) > 0))
    return answers


@pytest.mark.parametrize(
    "exchange",
    [
        offsets_by_id,
        offsets_by_id_in_a_transaction,
        groups_deleted,
        offsets_listed,
        log_directories,
        misrouted_connections,
    ],
    ids=lambda exchange: exchange.__name__,
)
async def test_both_brokers_say_the_same(kafka: str, exchange: Any) -> None:
    unique = f"{exchange.__name__}-{uuid.uuid4().hex}"
    answers: list[list[object]] = []
    async with EmbeddedCluster() as embedded:
        for address in (kafka, embedded.bootstrap_servers):
            await create_topics_with_leaders(address, CreatableTopic(unique, 2, 1))
            async with open_scene(address, unique, unique) as scene:
                answers.append(await exchange(scene))
    real, ours = answers
    assert ours == real
