"""Members join and leave at random while a producer writes: with commits when partitions are given
away, each record is processed once.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from functools import partial
from typing import Any

import pytest

from aioprod.testing import EmbeddedCluster, GroupSettings
from tests.consumer.group.group_readers import Reader, check_once, come_and_go, make_topic

PARTITIONS = 6
EAGER = {"partition_assignment_strategy": ("range",)}
ROUND_ROBIN = {"partition_assignment_strategy": ("roundrobin",)}
STICKY = {"partition_assignment_strategy": ("sticky",)}
COOPERATIVE = {"partition_assignment_strategy": ("cooperative-sticky",)}
KIP_848 = {"group_protocol": "consumer"}


async def run(
    bootstrap: str,
    settings: dict[str, Any],
    seed: int,
    changes: int,
    topic: str = "",
    join_first: bool = False,
) -> list[Reader]:
    topic = topic or f"t-{uuid.uuid4().hex[:8]}"
    await make_topic(bootstrap, topic, PARTITIONS)
    make = partial(Reader, group_id=f"g-{topic}", **settings)
    written, processed, members = await come_and_go(
        bootstrap,
        topic,
        PARTITIONS,
        changes,
        random.Random(seed),
        [make],
        join_first=join_first,
    )
    print(f"seed {seed}: {len(written)} records, {len(members)} members")
    check_once(written, processed)
    assert not [call for member in members for call in member.calls if call[0] == "lost"]
    return members


async def come_and_go_once(bootstrap: str, settings: dict[str, Any]) -> None:
    members = await run(bootstrap, settings, seed=7, changes=12, join_first=True)
    # The random changes may follow each other so fast that no member gives up a part.
    given_up = next(len(partitions) for name, partitions in members[0].calls if name == "revoked")
    assert given_up == (PARTITIONS // 2 if settings is COOPERATIVE else PARTITIONS)


@pytest.mark.parametrize(
    "settings",
    [EAGER, ROUND_ROBIN, STICKY, COOPERATIVE],
    ids=["range", "roundrobin", "sticky", "cooperative"],
)
async def test_members_come_and_go(broker: EmbeddedCluster, settings: dict[str, Any]) -> None:
    await come_and_go_once(broker.bootstrap_servers, settings)


# Real brokers can't distinguish more kinds apart.
@pytest.mark.parametrize("settings", [EAGER, COOPERATIVE], ids=["range", "cooperative"])
async def test_members_come_and_go_on_real_kafka(kafka: str, settings: dict[str, Any]) -> None:
    await come_and_go_once(kafka, settings)


@pytest.mark.virtual_time
@pytest.mark.parametrize("settings", [EAGER, COOPERATIVE], ids=["range", "cooperative"])
async def test_members_come_and_go_while_their_coordinator_moves(settings: dict[str, Any]) -> None:
    # A member that leaves while the coordinator moves still counts as one until its session is
    # over.
    async with EmbeddedCluster(nodes=3, groups=GroupSettings(min_session_timeout_ms=1)) as cluster:
        topic = f"t-{uuid.uuid4().hex[:8]}"

        async def move_on() -> None:
            for number in range(12):
                await asyncio.sleep(0.25)
                cluster.move_coordinator("group", f"g-{topic}", number % 3 + 1)

        moving = asyncio.create_task(move_on())
        try:
            await run(
                cluster.bootstrap_servers,
                {**settings, "session_timeout_ms": 3_000},
                seed=5,
                changes=10,
                topic=topic,
            )
        finally:
            moving.cancel()


async def test_members_come_and_go_in_a_group_of_the_new_protocol(bootstrap: str) -> None:
    await run(bootstrap, KIP_848, seed=11, changes=8)
