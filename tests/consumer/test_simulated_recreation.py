"""Topics that are deleted and created again at random moments, in virtual time, while brokers stop,
freeze, are late and lose connections. Readers get, for each topic that a name had, the records from
the first one on without a gap, and the group has no position in a topic that its members have not
read up to.

A seed that fails is repeated by its number.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest

from aioprod import Consumer, KafkaError, Producer, TopicPartition
from aioprod.cluster.metadata import Metadata
from aioprod.consumer.recreated_topics import RecreatedTopics
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, GroupSettings, delay, drop_after, drop_before, throttle
from aioprod.testing.simulation import SimulatedLoop
from tests.selection import by_default_each
from tests.waiting import until

TOPIC = "orders"
SEEDS = range(int(os.environ.get("AIOPROD_RECREATION_SEEDS", "6")))
WAYS: dict[str, dict[str, Any]] = {
    "assigned": {},
    "classic": {"group_id": "g", "heartbeat_interval_ms": 500, "session_timeout_ms": 6_000},
    "KIP-848": {"group_id": "g", "group_protocol": "consumer"},
}
APIS = [
    ApiKey.FETCH,
    ApiKey.METADATA,
    ApiKey.LIST_OFFSETS,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
]
LIVES = 4
RECORDS = 40


@dataclass
class World:
    """A cluster, its readers, and what they got: offsets by life of the topic and partition."""

    cluster: EmbeddedCluster
    rng: random.Random
    life: int = 0
    partitions: int = 0
    got: defaultdict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    findings: list[str] = field(default_factory=list)

    async def write_lives(self) -> None:
        """Delete the topic and create it again, and write to it meanwhile."""
        for self.life in range(LIVES):
            self.partitions = self.rng.randrange(1, 4)
            self.cluster.create_topic(TOPIC, self.partitions, replication_factor=3)
            async with Producer(self.cluster.bootstrap_servers, linger_ms=0) as producer:
                for number in range(
                    RECORDS if self.life == LIVES - 1 else self.rng.randrange(RECORDS)
                ):
                    value = b"%d:%d" % (self.life, number)
                    await producer.send_and_wait(TOPIC, value, partition=number % self.partitions)
                    await asyncio.sleep(self.rng.choice([0, 0, 0.1]))
            await asyncio.sleep(self.rng.choice([0, 0.2, 3]))
            if self.life < LIVES - 1:
                self.cluster.delete_topic(TOPIC)
                await asyncio.sleep(self.rng.choice([0, 0, 0.3, 3]))

    async def disturb(self) -> None:
        """One trouble after the other."""
        rng, cluster = self.rng, self.cluster
        for _ in range(8):
            await asyncio.sleep(rng.uniform(0.1, 2))
            node = rng.choice(list(cluster.node_ids))
            match rng.randrange(3):
                case 0:
                    cluster.freeze_node(node)
                    await asyncio.sleep(rng.uniform(0.1, 2))
                    cluster.unfreeze_node(node)
                case 1:
                    await cluster.stop_node(node)
                    await asyncio.sleep(rng.uniform(0.1, 2))
                    await cluster.start_node(node)
                case _:
                    action = rng.choice(
                        [drop_before(), drop_after(), delay(rng.uniform(0, 2)), throttle(300)]
                    )
                    cluster.on(rng.choice(APIS), action, times=rng.randrange(1, 4))
        cluster.clear_rules()

    async def read(self, settings: dict[str, Any]) -> None:
        """Read forever."""
        async with Consumer(
            bootstrap_servers=self.cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=self.rng.choice([50, 500]),
            metadata_max_age_ms=1_000,
            fetch_max_wait_ms=100,
            request_timeout_ms=3_000,
            allow_auto_create_topics=False,
            **settings,
        ) as consumer:
            if settings:
                consumer.subscribe([TOPIC])
            else:
                consumer.assign([TopicPartition(TOPIC, number) for number in range(3)])
            while True:
                with contextlib.suppress(KafkaError):
                    for record in await consumer.getmany(timeout_ms=200):
                        life = int((record.value or b"").split(b":")[0])
                        self.got[life, record.partition].append(record.offset)

    async def watch(self) -> None:
        """Look at the group's positions all the time."""
        while True:
            await asyncio.sleep(0.02)
            if TOPIC in self.cluster.topics:
                for tp, position in self.cluster.committed_offsets("g").items():
                    read = set(self.got[self.life, tp.partition])
                    missing = set(range(position)) - read
                    if missing:
                        self.findings.append(
                            f"life {self.life}: {position} of {tp.partition} is committed, but "
                            f"{sorted(missing)[:5]} were not read"
                        )

    def is_done(self) -> bool:
        return (
            self.life == LIVES - 1
            and sum(len(set(self.got[self.life, number])) for number in range(self.partitions))
            == RECORDS
        )

    def gaps(self) -> list[str]:
        """Find records that were skipped."""
        return [
            f"life {life}, partition {number}: read {sorted(set(offsets))}"
            for (life, number), offsets in self.got.items()
            if set(offsets) != set(range(max(offsets, default=-1) + 1))
        ]


async def world(seed: int, way: str) -> list[str]:
    rng = random.Random(f"{way}-{seed}")
    groups = GroupSettings(consumer_session_timeout_ms=6_000, consumer_heartbeat_interval_ms=500)
    async with EmbeddedCluster(nodes=3, groups=groups, auto_create_topics=False) as cluster:
        run = World(cluster, rng)
        readers = [
            asyncio.create_task(run.read(WAYS[way])) for _ in range(1 if way == "assigned" else 2)
        ]
        watch = asyncio.create_task(run.watch())
        try:
            await asyncio.gather(run.write_lives(), run.disturb())
            await until(run.is_done, 120)
            return run.findings + run.gaps()
        except TimeoutError:
            return [*run.findings, *run.gaps(), "the last topic is not read to its end"]
        finally:
            for task in (watch, *readers):
                task.cancel()
            await asyncio.wait([watch, *readers])


def judge(seed: int, way: str) -> list[str]:
    loop = SimulatedLoop(seed, hostile=seed % 3 == 2, time_limit_seconds=3_000)
    return loop.run(world(seed, way))


@pytest.mark.parametrize(
    ("seed", "way"),
    [
        pytest.param(seed, way, marks=by_default_each(2, seed + place))
        for place, way in enumerate(WAYS)
        for seed in SEEDS
    ],
)
def test_no_topic_is_read_with_gaps(seed: int, way: str) -> None:
    assert judge(seed, way) == []


def ids_of_present_topics(self: Metadata, names: Any) -> Any:
    """Commits by name while the topic does not exist: the offset may become one of the next."""
    return self.snapshot.topic_ids(names)


def keep_positions(self: RecreatedTopics, before: Any, snapshot: Any) -> None:
    """Reads on at the old offset."""


# The seeds that found the bug, first.
PLANTED: list[tuple[str, type, str, Any, tuple[int, ...]]] = [
    ("assigned", RecreatedTopics, "apply", keep_positions, (0,)),
    ("classic", Metadata, "last_topic_ids", ids_of_present_topics, (4,)),
    ("KIP-848", Metadata, "last_topic_ids", ids_of_present_topics, (1,)),
]


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: f"{planted[0]}-{planted[2]}")
def test_planted_bugs_are_found(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    way, kind, method, bug, likely = planted
    monkeypatch.setattr(kind, method, bug)
    assert any(judge(seed, way) for seed in (*likely, *range(6)))
