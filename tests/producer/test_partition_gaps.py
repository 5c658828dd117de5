"""Metadata may leave out partitions, for a moment or by a broker's fault: those that are listed
are used, by their numbers.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod import Admin, Consumer, Producer, ProtocolError, TopicPartition
from aioprod.cluster.snapshot import ClusterSnapshot
from aioprod.config.producer import ProducerConfig
from aioprod.counts import counted
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aioprod.testing import EmbeddedCluster
from aioprod.testing.broker.actions import change_answer
from tests.producer.collaborators import make_accumulator

TOPIC_ID = uuid.UUID(int=1)
REPORTED = st.lists(st.tuples(st.integers(0, 40), st.integers(-1, 3)), max_size=12)


def metadata(partitions: list[tuple[int, int]]) -> MetadataResponse:
    reported = [
        MetadataResponsePartition(partition_index=number, leader_id=leader)
        for number, leader in partitions
    ]
    return MetadataResponse(
        topics=[MetadataResponseTopic(name="t", topic_id=TOPIC_ID, partitions=reported)]
    )


@given(st.lists(REPORTED, min_size=1, max_size=4))
def test_each_partition_has_the_queue_of_its_number(answers: list[list[tuple[int, int]]]) -> None:
    config = ProducerConfig(bootstrap_servers=("h:1",))
    accumulator = make_accumulator(config, seed=1)
    snapshot = ClusterSnapshot()
    leaders: dict[int, int] = {}
    for answer in answers:
        snapshot = snapshot.updated(metadata(answer), ["t"])
        accumulator.update(snapshot)
        leaders |= dict(answer)
        if not leaders:
            continue
        topic = accumulator.topics["t"]
        assert [queue.tp.partition for queue in topic.queues] == list(
            range(max(leaders) + 1)
        ) and topic.count == len(topic.queues)
        for number in range(topic.count):
            assert accumulator.leader_of(TopicPartition("t", number)) == leaders.get(number, -1)
        assert topic.sticky.current in topic.available and all(
            number < topic.count for number in topic.available
        )


@pytest.mark.parametrize("numbers", [[-1, 0], [0, 2**31 - 1], [50_000]])
def test_impossible_numbers_are_refused(numbers: list[int]) -> None:
    """A queue for each of 2^31 partitions would take all memory there is."""
    with pytest.raises(
        ProtocolError,
        match=f"topic 't': {counted(len(numbers), 'partition')}, "
        f"numbered from {numbers[0]} to {numbers[-1]}",
    ):
        ClusterSnapshot().updated(metadata([(number, 1) for number in numbers]), ["t"])


async def test_clients_use_the_partitions_that_they_are_informed_of(
    broker: EmbeddedCluster,
) -> None:
    broker.create_topic("t", 4)

    def leave_out(response: Any) -> None:
        for topic in response.topics:
            topic.partitions = [each for each in topic.partitions if each.partition_index in (0, 3)]

    broker.on_every(ApiKey.METADATA, change_answer(leave_out))
    async with Producer(
        broker.bootstrap_servers, delivery_timeout_ms=3_000, request_timeout_ms=1_000, linger_ms=0
    ) as producer:
        for partition in (0, 3):
            assert (
                await producer.send_and_wait("t", b"x", partition=partition)
            ).partition == partition
        assert {(await producer.send_and_wait("t", b"y" * 9_000)).partition for _ in range(10)} <= {
            0,
            3,
        }
        assert await producer.partitions_for("t") == [0, 1, 2, 3]
    async with Consumer(
        "t", bootstrap_servers=broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
    ) as consumer:
        read = [await consumer.getone(timeout_ms=5_000) for _ in range(12)]
        assert {record.partition for record in read} <= {0, 3}
        await consumer.commit()
    async with Admin(broker.bootstrap_servers) as admin:
        assert await admin.list_consumer_group_offsets("g")
