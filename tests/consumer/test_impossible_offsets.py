"""Offsets in answers that can't be right are refused, and no other partition suffers."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest

from aioprod import (
    BrokerError,
    Consumer,
    CorruptRecordError,
    KafkaError,
    OffsetAndMetadata,
    ProtocolError,
    TopicPartition,
)
from aioprod.cluster.client import ClusterClient
from aioprod.consumer.partition_reader import EARLIEST, LATEST, list_offsets
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, change_answer
from tests.consumer.number_topics import TOPIC, consumer_of, fill, numbers, reading

BAD, GOOD = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
LARGEST = (1 << 63) - 1
IMPOSSIBLE = [-(1 << 63), -2, -1, 1 << 62, LARGEST - 1, LARGEST]


def base_offset(partition: Any, offset: int) -> None:
    if partition.records:
        partition.records = struct.pack(">q", offset) + partition.records[8:]


def in_fetch(change: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
    def all_partitions(answer: Any, offset: int) -> None:
        for topic in answer.responses:
            for partition in topic.partitions:
                if partition.partition_index == BAD.partition:
                    change(partition, offset)

    return all_partitions


def fetch_field(name: str) -> Callable[[Any, int], None]:
    return in_fetch(lambda partition, offset: setattr(partition, name, offset))


def listed(answer: Any, offset: int) -> None:
    for topic in answer.topics:
        for partition in topic.partitions:
            if partition.partition_index == BAD.partition:
                partition.offset = offset


def end_of_epoch(answer: Any, offset: int) -> None:
    for topic in answer.topics:
        for partition in topic.partitions:
            if partition.partition == BAD.partition:
                partition.end_offset = offset


def committed(answer: Any, offset: int) -> None:
    for group in answer.groups or [answer]:
        for topic in group.topics:
            for partition in topic.partitions:
                if partition.partition_index == BAD.partition:
                    partition.committed_offset = offset


#: Each field of an answer whose value may go into a request of the consumer.
FIELDS: dict[str, tuple[ApiKey, Callable[[Any, int], None]]] = {
    "base offset": (ApiKey.FETCH, in_fetch(base_offset)),
    "high watermark": (ApiKey.FETCH, fetch_field("high_watermark")),
    "last stable offset": (ApiKey.FETCH, fetch_field("last_stable_offset")),
    "log start offset": (ApiKey.FETCH, fetch_field("log_start_offset")),
    "offset by time": (ApiKey.LIST_OFFSETS, listed),
    "end of an epoch": (ApiKey.OFFSET_FOR_LEADER_EPOCH, end_of_epoch),
    "committed offset": (ApiKey.OFFSET_FETCH, committed),
}


@pytest.mark.parametrize("offset", IMPOSSIBLE)
@pytest.mark.parametrize("field", FIELDS)
async def test_other_partitions_are_read_and_nothing_is_asked_for_all_the_time(
    broker: EmbeddedCluster, field: str, offset: int
) -> None:
    broker.create_topic(TOPIC, 2)
    await fill(broker, 4, partition=GOOD.partition)
    await fill(broker, 4, partition=BAD.partition)
    api, change = FIELDS[field]
    rule = broker.on(api, change_answer(lambda answer: change(answer, offset)), times=None)
    group = "g" if api is ApiKey.OFFSET_FETCH else None
    async with consumer_of(
        broker, group_id=group, auto_offset_reset="earliest", fetch_max_wait_ms=20
    ) as consumer:
        consumer.assign([BAD, GOOD])
        if api is ApiKey.OFFSET_FOR_LEADER_EPOCH:
            consumer.seek(BAD, OffsetAndMetadata(0, "", 0))
        found = await healthy(consumer, 4)
        await fill(broker, 4, first=4, partition=GOOD.partition)
        found += await healthy(consumer, 4)
        assert found == list(range(8))
        assert rule.used
    # An answer that can't be used is followed by a pause.
    assert broker.request_count(api) < 100


async def healthy(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(10):
        while len(found) < count:
            try:
                records = await consumer.getmany(timeout_ms=1_000)
            except KafkaError as error:
                assert "can't be written" not in str(error)
                assert isinstance(error, CorruptRecordError | ProtocolError | BrokerError), repr(
                    error
                )
                continue
            found += numbers([record for record in records if record.partition == GOOD.partition])
    return found


@pytest.mark.parametrize("timestamp", [EARLIEST, LATEST])
@pytest.mark.parametrize("offset", [-(1 << 63), -2, -1])
async def test_a_log_without_an_end_is_refused(
    broker: EmbeddedCluster, timestamp: int, offset: int
) -> None:
    broker.create_topic(TOPIC, 1)
    broker.on(ApiKey.LIST_OFFSETS, change_answer(lambda answer: listed(answer, offset)), times=None)
    async with ClusterClient(broker.bootstrap_servers) as client:
        with pytest.raises(ProtocolError, match=f"impossible offset {offset} for {TOPIC}-0"):
            await list_offsets(client, {BAD: timestamp})
    async with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        ask = consumer.beginning_offsets if timestamp == EARLIEST else consumer.end_offsets
        with pytest.raises(ProtocolError, match=f"impossible offset {offset}"):
            await ask([BAD], timeout_ms=5_000)


async def test_nothing_is_fetched_behind_a_corrupt_end_before_the_application_knows(
    broker: EmbeddedCluster,
) -> None:
    """The next offset is not known: the partition waits until the error is raised."""
    broker.create_topic(TOPIC, 1)
    await fill(broker, 4)

    def broken(answer: Any) -> None:
        for topic in answer.responses:
            for partition in topic.partitions:
                partition.records = (partition.records or b"")[:-1] + b"\xff"

    rule = broker.on(ApiKey.FETCH, change_answer(broken), times=None)
    async with reading(broker, fetch_max_wait_ms=5) as consumer:
        await broker.wait_for_request(ApiKey.FETCH, 1)
        for _ in range(3):
            await consumer.end_offsets([BAD])  # time for more requests, by the broker's answers
        assert broker.request_count(ApiKey.FETCH) == 1
        with pytest.raises(CorruptRecordError, match=f"{TOPIC}-0 at offset 0"):
            await consumer.getone(timeout_ms=5_000)
        rule.cancel()
        found: list[int] = []
        async with asyncio.timeout(10):
            while len(found) < 4:
                try:
                    found += numbers(await consumer.getmany(timeout_ms=1_000))
                except CorruptRecordError:
                    continue
        assert found == [0, 1, 2, 3]
