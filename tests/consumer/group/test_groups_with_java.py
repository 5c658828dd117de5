"""Groups of our members and of Java's, each in a process: they join, leave and are killed while
records are written and their topic grows.

Each record is processed once: a killed member has processed what it had committed.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from aioprod import Admin, Producer, TopicPartition
from aioprod.testing import EmbeddedCluster, GroupSettings
from aioprod.testing.jars import KAFKA_VERSIONS
from aioprod.testing.real_kafka import RealKafka
from tests.consumer.group.group_readers import check_once, make_topic
from tests.consumer.group.process_members import (
    LIMIT_S,
    ProcessMember,
    compile_java_member,
    java_command,
    our_command,
)
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.interop, pytest.mark.timeout(240)]

PARTITIONS = 5
SESSION_MS = 3_000
BROKER_SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
}
COMMON = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "false",
    "metadata.max.age.ms": "500",
    "retry.backoff.ms": "20",
}
CLASSIC = {"session.timeout.ms": str(SESSION_MS), "heartbeat.interval.ms": "100"}


@dataclass(frozen=True)
class Broker:
    """The broker of a group, and the version of Java's client that goes with it."""

    bootstrap: str
    version: str


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_java_member(tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="module", params=["embedded", *KAFKA_VERSIONS])
def server(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """An embedded broker, then real ones, with short sessions."""
    if request.param == "embedded":
        with EmbeddedCluster.in_thread(
            groups=GroupSettings(min_session_timeout_ms=1_000)
        ) as running:
            yield Broker(running.bootstrap_servers, KAFKA_VERSIONS[0])
    else:
        with RealKafka(version=request.param, settings=BROKER_SETTINGS) as real:
            yield Broker(real.bootstrap_servers, request.param)


@dataclass
class Group:
    """A topic that is written all the time, and the processes that read it with one group."""

    server: Broker
    classes: Path
    directory: Path
    settings: dict[str, str]
    topic: str = field(default_factory=lambda: f"t-{uuid.uuid4().hex[:8]}")
    partitions: int = PARTITIONS
    written: list[bytes] = field(default_factory=list)
    ever: list[ProcessMember] = field(default_factory=list)
    present: list[ProcessMember] = field(default_factory=list)

    async def __aenter__(self) -> Group:
        await make_topic(self.server.bootstrap, self.topic, self.partitions)
        self._producer = await Producer(
            self.server.bootstrap, linger_ms=1, metadata_max_age_ms=500
        ).__aenter__()
        self._admin = await Admin(bootstrap_servers=self.server.bootstrap).__aenter__()
        self._stopping = False
        self._writing = asyncio.create_task(self._write())
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._stopping = True
        await asyncio.gather(
            *(member.end() for member in self.ever), self._writing, return_exceptions=True
        )
        await self._admin.close()
        await self._producer.close()

    async def _write(self) -> None:
        while not self._stopping:
            for _ in range(20):
                value = str(len(self.written)).encode()
                self.written.append(value)
                await self._producer.send(
                    self.topic, value, partition=len(self.written) % self.partitions
                )
            await asyncio.sleep(0.02)

    def start(self, kind: str, instance: str = "") -> ProcessMember:
        settings = {
            "bootstrap.servers": self.server.bootstrap,
            "group.id": f"g-{self.topic}",
            **COMMON,
            **self.settings,
        }
        if instance:
            settings["group.instance.id"] = instance
        name = f"{len(self.ever)}-{kind}{instance}"
        command = (
            our_command(self.topic, settings)
            if kind == "ours"
            else java_command(self.classes, self.server.version, self.topic, settings)
        )
        member = ProcessMember(name, command, self.directory / f"{name}.log")
        self.ever.append(member)
        self.present.append(member)
        return member

    async def leave(self, member: ProcessMember) -> None:
        self.present.remove(member)
        await member.leave()

    async def kill(self, member: ProcessMember) -> None:
        self.present.remove(member)
        await member.kill()
        member.forget_uncommitted(await self.committed(member.keeps))

    async def committed(self, partitions: set[int]) -> dict[int, int]:
        """Offsets of the partitions that a killed member had: what it had sent may be on its way
        still, and no other member commits there yet.
        """
        before: dict[int, int] | None = None
        places = [TopicPartition(self.topic, number) for number in partitions]
        async with asyncio.timeout(SESSION_MS / 1000):
            while True:
                found = await self._admin.list_consumer_group_offsets(f"g-{self.topic}", places)
                offsets = {
                    tp.partition: each.offset for tp, each in found.items() if each is not None
                }
                if offsets == before:
                    return offsets
                before = offsets
                await asyncio.sleep(0.1)

    async def grow(self, count: int) -> None:
        (await self._admin.create_partitions({self.topic: self.partitions + count})).check()
        async with asyncio.timeout(LIMIT_S):
            while (  # noqa: ASYNC110
                len(await self._producer.partitions_for(self.topic) or ()) < self.partitions + count
            ):
                await asyncio.sleep(0.05)
        self.partitions += count

    @property
    def processed(self) -> list[bytes]:
        return [
            value.encode()
            for member in self.ever
            for records in member.read.values()
            for _, value in records
        ]

    async def progress(self, count: int = 300) -> None:
        """Wait until this number of further records were processed."""
        goal = len(self.processed) + count
        await until(lambda: len(self.processed) >= goal, LIMIT_S)

    async def finish(self) -> None:
        """Have all that was written be processed, and all members leave; judge them."""
        self._stopping = True
        await self._writing
        try:
            await until(lambda: len(self.processed) >= len(self.written), LIMIT_S)
        except TimeoutError:
            missing = sorted(set(self.written) - set(self.processed), key=int)
            raise AssertionError(
                f"missing {len(missing)} of {len(self.written)}: {missing[:20]}; {self.story()}"
            ) from None
        await asyncio.gather(*(self.leave(member) for member in list(self.present)))
        print(self.story())
        assert not [member.name for member in self.ever if member.numbers("lost")]
        check_once(self.written, self.processed)

    def story(self) -> str:
        """Describe what the members reported, and which records several of them have read, or one
        twice.
        """
        reads: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
        for member in self.ever:
            for partition, records in member.read.items():
                for offset, _ in records:
                    reads[partition, offset].append(member.name)
        doubled = [f"{place}: {names}" for place, names in sorted(reads.items()) if len(names) > 1]
        return "\n".join(
            [
                *(f"{member.name}: {member.events} {member.refused}" for member in self.ever),
                *doubled,
            ]
        )


async def come_and_go(group: Group, rng: random.Random, changes: int) -> None:
    """Members of both kinds come, leave and are killed at random; there are always some."""
    for change in range(changes):
        present = group.present
        if len(present) < 2 or (len(present) < 4 and rng.random() < 0.4):
            await group.start("java" if change % 2 else "ours").assigned()
        elif rng.random() < 0.4:
            await group.kill(rng.choice(present))
        else:
            await group.leave(rng.choice(present))
        if change == changes // 2:
            await group.grow(2)
        await group.progress(rng.randint(0, 300))


@pytest.fixture(params=["cooperative-sticky", "sticky"])
async def group(
    request: pytest.FixtureRequest, server: Broker, classes: Path, tmp_path: Path
) -> AsyncIterator[Group]:
    async with Group(
        server, classes, tmp_path, {**CLASSIC, "partition.assignment.strategy": request.param}
    ) as running:
        yield running


@pytest.mark.parametrize("seed", [1, 2])
async def test_they_come_and_go_and_are_killed(group: Group, seed: int) -> None:
    rng = random.Random(seed)
    kinds = ("ours", "java") if seed % 2 else ("java", "ours")
    for kind in kinds:
        group.start(kind)
    await group.progress()
    await come_and_go(group, rng, 10)
    await group.finish()


async def shared_out(group: Group) -> list[set[int]]:
    """Wait until all partitions are with the members that are present, in equal shares; returns
    these.
    """
    async with asyncio.timeout(LIMIT_S):
        while True:
            shares = [member.keeps for member in group.present]
            sizes = sorted(map(len, shares))
            if (
                sizes[-1] - sizes[0] <= 1
                and set().union(*shares) == set(range(group.partitions))
                and sum(sizes) == group.partitions
            ):
                return shares
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(("leading", "following"), [("java", "ours"), ("ours", "java")])
async def test_who_leads_gives_all_their_share_and_takes_no_more_than_it_must(
    group: Group, leading: str, following: str
) -> None:
    leader = group.start(leading)
    await shared_out(group)
    group.start(following)
    before = await shared_out(group)
    third = group.start(following)
    after = await shared_out(group)
    # The client that reads the other's bytes knows what each had.
    assert all(later <= earlier for later, earlier in zip(after, before, strict=False)), (
        before,
        after,
    )
    assert [3] in leader.numbers("leads")
    assert not [
        member for member in group.present if member is not leader and member.numbers("leads")
    ]
    await group.progress()
    second_before, third_before = group.present[1].keeps, third.keeps
    await group.leave(leader)
    after = await shared_out(group)
    assert after[0] >= second_before and after[1] >= third_before
    assert [2] in [numbers for member in group.present for numbers in member.numbers("leads")]
    await group.progress()
    await group.finish()


@pytest.mark.parametrize("leading", ["java", "ours"])
async def test_static_members_are_started_again_without_a_rebalance(
    group: Group, leading: str
) -> None:
    """Also the leader, which still sees that the topic grows (KIP-814)."""
    group.settings["session.timeout.ms"] = "20000"
    kinds = [leading, "java" if leading == "ours" else "ours"]
    present: dict[str, ProcessMember] = {}
    for kind in kinds:
        present[kind] = group.start(kind, f"{kind}-1")
        await shared_out(group)
    for kind, away in [
        (kinds[0], group.leave),
        (kinds[1], group.kill),
        (kinds[0], group.kill),
        (kinds[1], group.leave),
    ]:
        await group.progress()
        other = next(member for each, member in present.items() if each != kind)
        kept_back, reported = present[kind].keeps, list(other.events)
        await away(present[kind])
        present[kind] = group.start(kind, f"{kind}-1")
        await present[kind].assigned()
        assert present[kind].keeps == kept_back
        await group.progress()
        assert other.events == reported
    await group.grow(2)
    await shared_out(group)
    await group.progress()
    await group.finish()


@pytest.mark.parametrize("is_embedded", [True, False], ids=["embedded", KAFKA_VERSIONS[0]])
async def test_a_group_of_the_new_protocol(
    classes: Path, tmp_path: Path, is_embedded: bool
) -> None:
    """KIP-848."""
    rng = random.Random(3)
    short = GroupSettings(consumer_session_timeout_ms=SESSION_MS)
    with (
        EmbeddedCluster.in_thread(groups=short)
        if is_embedded
        else RealKafka(settings=BROKER_SETTINGS)
    ) as broker:
        async with Group(
            Broker(broker.bootstrap_servers, KAFKA_VERSIONS[0]),
            classes,
            tmp_path,
            {"group.protocol": "consumer"},
        ) as group:
            for kind in ("ours", "java"):
                group.start(kind)
            await group.progress()
            await come_and_go(group, rng, 10)
            await group.finish()
