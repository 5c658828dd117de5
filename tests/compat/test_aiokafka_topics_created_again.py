"""``aioprod.compat.aiokafka`` with a recreated topic: records that it has read ahead from the
deleted topic are dropped.
"""

from __future__ import annotations

import asyncio

import pytest

from aioprod.compat.aiokafka import AIOKafkaConsumer, TopicPartition
from aioprod.compat.aiokafka.errors import KafkaError
from aioprod.testing import EmbeddedCluster
from tests.consumer.recreated import NEW, Got, create_again, places, topic_of

PARTITIONS = 2


async def collect(consumer: AIOKafkaConsumer, got: Got) -> None:
    while True:
        try:
            found = await consumer.getmany(timeout_ms=200)
        except KafkaError as error:
            got.errors.append(error)
            for number in range(PARTITIONS):
                consumer.seek(TopicPartition("orders", number), 0)
            continue
        for tp, records in found.items():
            for record in records:
                got.add(tp.partition, record.value)


@pytest.mark.virtual_time
@pytest.mark.parametrize("strategy", ["earliest", "none"])
@pytest.mark.parametrize("way", ["assigned", "assigned, with a group", "group"])
async def test_no_record_of_the_new_topic_is_skipped(
    broker: EmbeddedCluster, way: str, strategy: str
) -> None:
    got = Got()
    servers = broker.bootstrap_servers
    partitions = places("orders", range(PARTITIONS))
    async with topic_of(servers, "orders", PARTITIONS) as admin:
        await admin.alter_consumer_group_offsets("readers", dict.fromkeys(partitions, 0))
        consumer = AIOKafkaConsumer(
            bootstrap_servers=servers,
            group_id="readers" if "group" in way else None,
            auto_offset_reset=strategy,
            auto_commit_interval_ms=100,
            metadata_max_age_ms=2_000,
        )
        if way.startswith("assigned"):
            consumer.assign([TopicPartition(*tp) for tp in partitions])
        else:
            consumer.subscribe(["orders"])
        async with consumer:
            if way == "assigned":
                for tp in partitions:
                    consumer.seek(TopicPartition(*tp), 0)
            task = asyncio.create_task(collect(consumer, got))
            await got.until(lambda got: got.has_old(PARTITIONS))
            await create_again(admin, servers, "orders", PARTITIONS)
            await got.until(lambda got: got.is_done(PARTITIONS))
            task.cancel()
            await asyncio.wait([task])
        got.check(PARTITIONS, from_the_first=True)
        assert bool(got.errors) == (strategy == "none")
        if "group" in way:
            assert broker.committed_offsets("readers") == dict.fromkeys(partitions, NEW)


@pytest.mark.virtual_time
async def test_records_that_were_read_ahead_of_the_deleted_topic_are_dropped(
    broker: EmbeddedCluster,
) -> None:
    servers = broker.bootstrap_servers
    async with topic_of(servers, "orders", 1) as admin:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=servers, group_id="readers", auto_offset_reset="earliest"
        )
        consumer.assign([TopicPartition("orders", 0)])
        async with consumer:
            assert (await consumer.getone()).value == b"old 0"
            await create_again(admin, servers, "orders", 1)
            assert (await consumer.getone()).value == b"new 0"
            await consumer.commit()
        assert broker.committed_offsets("readers") == {places("orders", [0])[0]: 1}
