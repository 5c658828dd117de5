"""Snapshots are replaced as a whole, stale leaders are ignored, and refreshes run one at a time."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from aioprod import Producer
from aioprod.cluster.client import ClusterClient
from aioprod.cluster.snapshot import ClusterSnapshot
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerConnectionError, ConfigError
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aioprod.protocol.primitives import ZERO_UUID
from aioprod.testing import EmbeddedCluster

TOPIC_ID = uuid.UUID(int=5)


def answer(leader: int, epoch: int, topic_id: uuid.UUID = TOPIC_ID) -> MetadataResponse:
    partition = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
    topic = MetadataResponseTopic(name="t", topic_id=topic_id, partitions=[partition])
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="h", port=1)], topics=[topic]
    )


def test_an_older_leader_epoch_is_not_believed() -> None:
    snapshot = ClusterSnapshot().updated(answer(1, 5), ["t"])
    assert snapshot.updated(answer(2, 4), ["t"]).topics["t"].partitions[0].leader == 1
    assert snapshot.updated(answer(2, 6), ["t"]).topics["t"].partitions[0].leader == 2
    assert (
        snapshot.updated(answer(2, 0, uuid.UUID(int=6)), ["t"]).topics["t"].partitions[0].leader
        == 2
    ), "the topic was created again"


def test_an_answer_without_topic_ids_says_nothing_about_them() -> None:
    """The old nodes of a cluster that is being upgraded respond without ids."""
    known = ClusterSnapshot().updated(answer(1, 5), ["t"])
    without = known.updated(answer(2, 6, ZERO_UUID), ["t"])
    assert without.topics["t"].topic_id == TOPIC_ID
    assert without.topic_ids(["t"]) == {"t": TOPIC_ID}
    assert without.topics["t"].partitions[0].leader == 2
    stale = known.updated(answer(2, 4, ZERO_UUID), ["t"])
    assert stale.topics["t"].partitions[0].leader == 1
    missing = MetadataResponse(
        brokers=[], topics=[MetadataResponseTopic(error_code=3, name="t", topic_id=ZERO_UUID)]
    )
    assert known.updated(missing, ["t"]).topic_ids(["t"]) == {}


async def test_old_metadata_has_no_leader_epochs() -> None:
    async with (
        EmbeddedCluster(imitate="wrong-leader-epochs") as cluster,
        ClusterClient(cluster.bootstrap_servers) as client,
    ):
        cluster.create_topic("t")
        snapshot = await client.refresh_topics(["t"])
        assert snapshot.topics["t"].partitions[0].leader_epoch == -1


def test_a_snapshot_is_never_changed() -> None:
    before = ClusterSnapshot().updated(answer(1, 5), ["t"])
    after = before.updated(MetadataResponse(brokers=[]), [])
    assert before.topics.keys() == {"t"} and after.topics.keys() == set()
    assert (before.version, after.version) == (1, 2)


async def test_a_client_learns_topics(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", num_partitions=3)
    async with ClusterClient(broker.bootstrap_servers) as client:
        snapshot = await client.refresh_topics(["t", "missing"])
        assert [info.partition for info in snapshot.topics["t"].partitions] == [0, 1, 2]
        assert snapshot.topics["missing"].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "missing" not in broker.topics


async def test_many_tasks_with_an_unknown_topic_ask_a_few_times_only(
    broker: EmbeddedCluster,
) -> None:
    async with Producer(broker.bootstrap_servers) as producer:
        await asyncio.gather(*(producer.send_and_wait("t", b"x") for _ in range(500)))
        asked = sum(1 for request in broker.requests if request.api_key == ApiKey.METADATA)
    assert asked < 10
    assert len(broker.records("t")) == 500


async def test_partitions_that_grow_are_seen(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", num_partitions=1)
    async with Producer(broker.bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"x", partition=0)
        broker.delete_topic("t")
        broker.create_topic("t", num_partitions=2)
        assert (await producer.send_and_wait("t", b"x", partition=1)).partition == 1


async def test_client_errors() -> None:
    with pytest.raises(BrokerConnectionError, match=r"127\.0\.0\.1:1"):
        async with ClusterClient("127.0.0.1:1"):
            pass
    with pytest.raises(ConfigError, match="did you mean 'client_id'"):
        ClusterClient("127.0.0.1:1", clientid="x")
