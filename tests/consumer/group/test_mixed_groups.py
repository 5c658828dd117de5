"""Groups of our consumers and of other projects' clients: whichever leads, each record is
processed once.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest

from aioprod import Admin, BrokerError
from tests.consumer.group.foreign_readers import AiokafkaReader, ConfluentReader
from tests.consumer.group.group_readers import (
    Reader,
    Writer,
    all_processed,
    check_once,
    come_and_go,
    make_topic,
    raise_failures,
)
from tests.testing.librdkafka_groups import commit_beginnings

PARTITIONS = 6
PAIRS = [
    pytest.param(AiokafkaReader, "range", id="aiokafka-range"),
    pytest.param(AiokafkaReader, "roundrobin", id="aiokafka-roundrobin"),
    pytest.param(ConfluentReader, "roundrobin", id="librdkafka-roundrobin"),
    pytest.param(ConfluentReader, "cooperative-sticky", id="librdkafka-cooperative"),
]


async def prepare(bootstrap: str, topic: str, makers: Iterable[Any]) -> None:
    """Create the topic, and make its group ready for members of these kinds."""
    await make_topic(bootstrap, topic, PARTITIONS)
    if any(maker.func is ConfluentReader for maker in makers):
        await commit_beginnings(bootstrap, f"g-{topic}", topic, PARTITIONS)


async def run(bootstrap: str, foreign: Any, seed: int, changes: int, **settings: Any) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    await prepare(bootstrap, topic, [foreign])
    makers = [
        partial(Reader, group_id=f"g-{topic}", **settings),
        partial(foreign, group_id=f"g-{topic}"),
    ]
    if seed % 2:  # who comes first leads
        makers.reverse()
    written, processed, members = await come_and_go(
        bootstrap, topic, PARTITIONS, changes, random.Random(seed), makers
    )
    print(f"seed {seed}: {len(written)} records, {len(members)} members")
    check_once(written, processed)


@pytest.mark.real_time  # librdkafka's are in threads
@pytest.mark.parametrize(("foreign", "strategy"), PAIRS)
async def test_ours_and_theirs(bootstrap: str, foreign: Any, strategy: str) -> None:
    seed = 2 if strategy == "range" else 5
    await run(
        bootstrap,
        partial(foreign, strategy=strategy),
        seed,
        6,
        partition_assignment_strategy=(strategy,),
    )


@pytest.mark.parametrize(("foreign", "strategy"), [PAIRS[0], PAIRS[1], PAIRS[3]])
async def test_ours_and_theirs_on_kafka_3_9(kafka_3_9: str, foreign: Any, strategy: str) -> None:
    await run(
        kafka_3_9,
        partial(foreign, strategy=strategy),
        5,
        5,
        partition_assignment_strategy=(strategy,),
    )


@pytest.mark.real_time
async def test_ours_and_librdkafka_in_a_group_of_the_new_protocol(bootstrap: str) -> None:
    settings: dict[str, Any] = {"group.protocol": "consumer"}
    foreign = partial(ConfluentReader, **settings)
    await run(bootstrap, foreign, 4, 5, group_protocol="consumer")


NEW: dict[str, Any] = {"group.protocol": "consumer"}
MIGRATIONS = [
    pytest.param(
        partial(Reader, partition_assignment_strategy=("range",)),
        partial(Reader, group_protocol="consumer"),
        id="ours-eager",
    ),
    pytest.param(
        partial(Reader, partition_assignment_strategy=("cooperative-sticky",)),
        partial(ConfluentReader, **NEW),
        id="ours-cooperative-librdkafka",
        marks=[pytest.mark.interop, pytest.mark.real_time],
    ),
    pytest.param(
        partial(ConfluentReader, strategy="range"),
        partial(Reader, group_protocol="consumer"),
        id="librdkafka-eager-ours",
        marks=[pytest.mark.interop, pytest.mark.real_time],
    ),
]


@pytest.mark.parametrize(("classic", "consumer"), MIGRATIONS)
async def test_members_of_both_protocols(bootstrap: str, classic: Any, consumer: Any) -> None:
    """The group is migrated online, there and back (KIP-848), and reads each record once.
    librdkafka's cooperative classic members are left out: at a real broker, their group does not
    finish.

    One change at a time: when the group becomes classic again, Kafka refuses the commits of members
    that had not learned of the last epoch.
    """
    topic = f"t-{uuid.uuid4().hex[:8]}"
    group, processed = f"g-{topic}", list[bytes]()
    await prepare(bootstrap, topic, [classic, consumer])
    present: list[Any] = []
    ever: list[Any] = []
    kinds = []
    async with Admin(bootstrap) as admin, asyncio.timeout(60):
        writer = Writer(bootstrap, topic, PARTITIONS)
        try:
            for change in [classic, classic, consumer, 0, consumer, 1, 1, classic]:
                if isinstance(change, int):
                    await present.pop(change).leave()
                else:
                    present.append(change(bootstrap, topic, processed, group_id=group))
                    ever.append(present[-1])
                kinds.append(await finished(admin, group, present))
            await writer.stop()
            await all_processed(writer.written, processed)
        finally:
            writer.task.cancel()
            await asyncio.gather(*(each.leave() for each in ever), return_exceptions=True)
    check_once(writer.written, processed)
    assert kinds == ["classic"] * 2 + ["consumer"] * 4 + ["classic"] * 2


async def finished(admin: Admin, group: str, present: list[Any]) -> str:
    """Wait until all members have their partitions; return the group's type."""
    while True:
        raise_failures(present)
        with contextlib.suppress(BrokerError):  # its type changes meanwhile
            listed = (await admin.list_groups(states=["Stable"])).get(group)
            found = await admin.describe_consumer_groups(group)
            if listed and found.state == "Stable" and len(found.members) == len(present):
                return listed.type
        await asyncio.sleep(0.02)
