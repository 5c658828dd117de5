"""A topic that is deleted and created again while a processor reads it: each record of the new one
is handled, and no position of the deleted one is committed for it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioprod import InvalidOffsetError, ProducerRecord
from aioprod.processing import Processor, Record
from aioprod.testing import EmbeddedCluster
from tests.consumer.recreated import (
    NEW,
    OLD,
    Got,
    create_again,
    places,
    topic_of,
)
from tests.selection import square_by_default

PARTITIONS = 2
Raw = Record[bytes | None, bytes | None]
SETTINGS: dict[str, Any] = {
    "group_id": "workers",
    "commit_interval_ms": 100,
    "drain_timeout_ms": 500,
}


def consumer_settings(strategy: str, protocol: str) -> Any:
    return {
        "auto_offset_reset": strategy,
        "group_protocol": protocol,
        "metadata_max_age_ms": 2_000,
        "allow_auto_create_topics": False,
    }


def processor_of(
    got: Got, broker: EmbeddedCluster, guarantee: Any, strategy: str, protocol: str
) -> Processor[bytes | None, bytes | None]:
    """A processor whose handlers of old records hang at the last one, which is not committed."""

    async def handle(record: Raw) -> ProducerRecord:
        got.add(record.partition, record.value)
        if record.value == b"old %d" % (OLD - 1):
            await asyncio.sleep(3_600)
        return ProducerRecord("outputs", record.value, key=b"%d" % record.partition)

    return Processor(
        handle,
        "orders",
        bootstrap_servers=broker.bootstrap_servers,
        guarantee=guarantee,
        order="partition",
        consumer=consumer_settings(strategy, protocol),
        **SETTINGS,
    )


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("guarantee", "protocol", "count"),
    square_by_default(
        ["at_most_once", "at_least_once", "exactly_once"], ["classic", "consumer"], [1, 2, 3]
    ),
)
async def test_all_records_of_the_new_topic_are_handled(
    broker: EmbeddedCluster, guarantee: Any, protocol: str, count: int
) -> None:
    got = Got()
    broker.create_topic("outputs", 1)
    async with topic_of(broker.bootstrap_servers, "orders", PARTITIONS) as admin:
        async with processor_of(got, broker, guarantee, "earliest", protocol):
            await got.until(lambda got: got.has_old(PARTITIONS))
            await create_again(admin, broker.bootstrap_servers, "orders", count)
            await got.until(lambda got: got.is_done(count))
        got.check(count, from_the_first=True)
        assert broker.committed_offsets("workers") == dict.fromkeys(
            places("orders", range(count)), NEW
        )
    for number in range(count):
        key = b"%d" % number
        outputs = [
            each.value
            for each in broker.records("outputs", committed_only=True)
            if each.key == key and (each.value or b"").startswith(b"new")
        ]
        assert outputs == [b"new %d" % each for each in range(NEW)]


@pytest.mark.virtual_time
async def test_the_processor_ends_if_the_position_is_to_be_set_by_hand(
    broker: EmbeddedCluster,
) -> None:
    got = Got()
    broker.create_topic("outputs", 1)
    async with topic_of(broker.bootstrap_servers, "orders", PARTITIONS) as admin:
        await admin.alter_consumer_group_offsets(
            "workers", dict.fromkeys(places("orders", range(PARTITIONS)), 0)
        )
        processor = processor_of(got, broker, "at_least_once", "none", "classic")
        with pytest.raises(InvalidOffsetError, match="was deleted and created again"):
            async with processor:
                await got.until(lambda got: got.has_old(PARTITIONS))
                await create_again(admin, broker.bootstrap_servers, "orders", PARTITIONS)
        assert not got.new
        assert not broker.committed_offsets("workers")
