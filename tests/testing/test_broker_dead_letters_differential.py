"""The embedded broker writes dead letters of share groups (KIP-1191) like a real Apache Kafka
broker, and loses the same ones.
"""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from aioprod.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
)
from aioprod.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from aioprod.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from aioprod.protocol.record_reader import read_records
from aioprod.protocol.record_writer import RecordBatchWriter
from aioprod.testing import EmbeddedCluster
from tests.testing.new_topics import create_topics_with_leaders
from tests.testing.raw_admin import BROKER, TOPIC
from tests.testing.raw_client import fetch_request
from tests.testing.raw_share_group import Run, ShareMemberClient, ShareScene
from tests.testing.raw_transactions import ask_until, name

Letter = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
Exchange = Callable[["DeadScene"], Coroutine[Any, Any, list[object]]]
ACCEPT, RELEASE, REJECT = 1, 2, 3
GAP = 0
ENABLED = {"errors.deadletterqueue.group.enable": "true"}
SEEDS = int(os.environ.get("AIOPROD_SHARE_GROUP_SEEDS", "4"))
NEWEST = 1_700_000_000_000  # the timestamp of records that are not dead letters


class DeadScene(ShareScene):
    """A topic, its group, and a topic for the group's dead letters.

    Attributes:
        dead: the name of that topic.
    """

    def __init__(self, address: str, unique: str) -> None:
        super().__init__(address, unique)
        self.dead = f"dlq.{unique}"

    async def create_dead(self, partitions: int = 1, **configs: str) -> None:
        """Create the topic for dead letters."""
        settings = ENABLED | {key.replace("_", "."): text for key, text in configs.items()}
        wanted = CreatableTopic(
            self.dead,
            partitions,
            1,
            configs=[CreatableTopicConfig(*each) for each in settings.items()],
        )
        await create_topics_with_leaders(self.address, wanted)

    async def bury(self, limit: int = 2, **configs: str) -> None:
        """Configure the group, whose records die after this number of deliveries."""
        settings = {
            "errors_deadletterqueue_topic_name": self.dead,
            "errors_deadletterqueue_copy_record_enable": "true",
            "share_delivery_count_limit": str(limit),
            **configs,
        }
        assert await self.configure(**settings) == "NONE"

    async def change(self, kind: int, resource: str, **configs: str | None) -> None:
        """Set or delete settings of a topic or of all brokers."""
        changes = [AlterableConfig(key, int(text is None), text) for key, text in configs.items()]
        asked = AlterConfigsResource(kind, resource, changes)
        answer = await self.client.call(IncrementalAlterConfigsRequest([asked]), 1)
        assert name(answer.responses[0].error_code) == "NONE"

        async def described() -> dict[str, str | None]:
            wanted = DescribeConfigsResource(kind, resource or "1", list(configs))
            found = (await self.client.call(DescribeConfigsRequest([wanted]), 4)).results[0]
            return {each.name: each.value for each in found.configs}

        await ask_until(
            lambda found: all(text in (None, found[key]) for key, text in configs.items()),
            described,
        )

    async def write_with_headers(self, count: int, partition: int = 0, size: int = 1) -> None:
        """Write a batch of records with keys and headers."""
        writer = RecordBatchWriter(NEWEST)
        for number in range(count):
            headers = [("color", b"red"), ("color", None), ("__dlq.errors.offset", b"mine")]
            key = None if number == 2 else b"key %d" % number
            value = None if number == 1 else b"v" * size
            writer.append(NEWEST, key, value, headers[:number])
        answer = await self.client.produce(self.topic, writer.build(), partition=partition)
        assert not answer.error_code

    async def _read(self, partitions: int) -> list[tuple[list[Letter], int]]:
        request = fetch_request(self.dead, *([0] * partitions))
        (topic,) = (await self.client.call(request, 12)).responses
        return [
            (
                [
                    (data.partition_index, each.key, each.value, list(each.headers))
                    for each in read_records(data.records or b"")
                    if each.timestamp > NEWEST
                ],
                data.error_code,
            )
            for data in topic.partitions
        ]

    async def letters(self, count: int, partitions: int = 1) -> list[Letter]:
        """Wait until there is this number of dead letters; return all, in any order."""

        async def read() -> list[Letter]:
            return [each for letters, _ in await self._read(partitions) for each in letters]

        found: list[Letter] = await ask_until(lambda found: len(found) >= count, read)
        return sorted(found, key=repr)

    async def finished(self, lag: int) -> None:
        """Wait until the group has only this number of records to do."""
        await ask_until(lambda found: found[1][0][2] == lag, lambda: self.offsets(0))


async def rejected(scene: DeadScene) -> list[object]:
    """One by one, several at once, and with a gap; from three partitions to two."""
    await scene.create(3)
    await scene.create_dead(2)
    await scene.bury()
    a = await scene.member("a")
    await a.join(3)
    for place in range(3):
        await scene.write_with_headers(5, place)
    await scene.write_with_headers(4, size=1000)
    answers: list[object] = []
    got: set[tuple[int, int]] = set()
    while len(got) < 19:
        for place, *_, found, _ in (await a.fetch(places=[0, 1, 2]))[1]:
            got |= {(place, offset) for offset, _ in found}
    for place in range(3):
        answers += [await a.acknowledge((0, 2, [REJECT]), (3, 3, [ACCEPT]), place=place)]
    answers += [await a.acknowledge((4, 4, [REJECT]), place=2)]
    answers += [await a.acknowledge((4, 8, [REJECT, GAP, REJECT, ACCEPT, RELEASE]))]
    await scene.finished(1)
    return [*answers, await scene.letters(12, 2)]


async def delivered_too_often(scene: DeadScene) -> list[object]:
    """Records are released, their locks end, their session ends, and their connection ends."""
    await scene.create()
    await scene.create_dead()
    await scene.bury(
        share_record_lock_duration_ms="1000", errors_deadletterqueue_copy_record_enable="false"
    )
    a, b, c = [await scene.member(short) for short in "abc"]
    await a.join()
    await scene.write_with_headers(3)
    answers: list[object] = []
    for _ in range(2):
        answers += [await a.fetch(), await a.acknowledge((0, 2, [RELEASE]))]
    answers += [await scene.letters(3)]
    await scene.write_with_headers(2)
    for _ in range(2):
        answers += [await a.fetch(), await a.end()]
    answers += [await scene.letters(5)]
    await scene.write_with_headers(2)
    for it in (b, c):
        answers += [await it.fetch_all(2)]
        await it.cut()
    answers += [await scene.letters(7)]
    await scene.write_with_headers(2)
    answers += [await a.fetch_all(2), await a.fetch_all(2), await scene.letters(9)]
    await scene.finished(0)
    return answers


async def lost(scene: DeadScene) -> list[object]:
    """The topic does not exist, has another prefix, does not take dead letters, or not this one."""
    await scene.create()
    a = await scene.member("a")
    await a.join()
    answers: list[object] = []

    async def reject(size: int = 1) -> None:
        await scene.write_with_headers(3, size=size)
        found = await a.fetch_all(3)
        # One by one: Kafka gives up the rest of a run with one that can't be written.
        answers.extend([await a.acknowledge((each, each, [REJECT])) for each in sorted(found)])
        await scene.finished(0)

    await reject()  # no topic is named
    await scene.bury()
    await reject()  # it does not exist
    await scene.create_dead()
    await scene.bury(errors_deadletterqueue_topic_name=scene.topic)
    await reject()
    await scene.bury(errors_deadletterqueue_topic_name=f"{scene.topic}.dlq.")
    await reject()
    await scene.bury()
    await scene.change(TOPIC, scene.dead, **{"errors.deadletterqueue.group.enable": "false"})
    await reject()
    await scene.change(TOPIC, scene.dead, **ENABLED, **{"max.message.bytes": "500"})
    await reject(size=600)  # the larger ones have no key and no value
    await reject(size=300)  # too large with their headers
    await scene.change(TOPIC, scene.dead, **{"max.message.bytes": "5000"})
    await reject()
    return [*answers, await scene.letters(7)]


async def compacted(scene: DeadScene) -> list[object]:
    """Dead letters without a key can't be in a compacted topic."""
    await scene.create()
    await scene.create_dead(cleanup_policy="compact", message_timestamp_type="LogAppendTime")
    await scene.bury()
    a = await scene.member("a")
    await a.join()
    await scene.write_with_headers(4)
    await a.fetch()
    answers: list[object] = [await a.acknowledge((each, each, [REJECT])) for each in range(4)]
    await scene.finished(0)
    return [*answers, await scene.letters(3)]


async def created(scene: DeadScene) -> list[object]:
    """Brokers create the topic, and want another prefix."""
    prefix, auto = (
        "errors.deadletterqueue.topic.name.prefix",
        "errors.deadletterqueue.auto.create.topics.enable",
    )
    scene.dead = f"dead.{scene.topic}"
    await scene.create()
    await scene.bury()
    a = await scene.member("a")
    await a.join()
    await scene.write_with_headers(2)
    await a.fetch()
    await scene.change(BROKER, "", **{prefix: "dead.", auto: "true"})
    answers: list[object] = []
    try:
        answers += [await a.acknowledge((0, 1, [REJECT]))]
        answers += [await scene.letters(2)]
    finally:
        await scene.change(BROKER, "", **{prefix: None, auto: None})
    asked = DescribeConfigsResource(TOPIC, scene.dead, None)
    described = (await scene.client.call(DescribeConfigsRequest([asked]), 4)).results[0]
    return [
        *answers,
        sorted((each.name, each.value) for each in described.configs if each.config_source == 1),
    ]


EXCHANGES: list[Exchange] = [rejected, delivered_too_often, lost, compacted, created]


async def compare(kafka: str, exchange: Exchange) -> None:
    unique = uuid.uuid4().hex
    answers: list[list[object]] = []
    async with EmbeddedCluster() as embedded:
        for address in (kafka, embedded.bootstrap_servers):
            async with DeadScene(address, unique) as scene:
                answers.append(await exchange(scene))
    real, ours = answers
    for number, (theirs, mine) in enumerate(zip(real, ours, strict=True)):
        assert mine == theirs, f"answer {number}"


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.__name__)
async def test_both_brokers_write_the_same(kafka: str, exchange: Exchange) -> None:
    await compare(kafka, exchange)


async def walk(scene: DeadScene, seed: int) -> list[object]:
    """Members that acquire and acknowledge, at random; some records die."""
    rng = random.Random(seed)
    await scene.create()
    await scene.create_dead()
    limit = rng.choice([2, 3])
    await scene.bury(limit)
    members = [await scene.member(f"m{number}") for number in range(2)]
    await members[0].join()
    has: dict[ShareMemberClient, set[int]] = {each: set() for each in members}
    dead = 0
    counts: dict[int, int] = {}
    for step in range(40):
        it = rng.choice(members)
        if step % 8 == 0:
            await scene.write_with_headers(6)
        elif has[it]:
            chosen = rng.sample(sorted(has[it]), rng.randint(1, len(has[it])))
            runs: list[Run] = [
                (each, each, [rng.choice([ACCEPT, RELEASE, RELEASE, REJECT])])
                for each in sorted(chosen)
            ]
            has[it] -= set(chosen)
            assert await it.acknowledge(*runs) == ("NONE", ["NONE"])
            counted = {first: kind for first, _, (kind,) in runs}
            dead += sum(
                kind == REJECT or (kind == RELEASE and counts[first] == limit)
                for first, kind in counted.items()
            )
        else:
            for *_, got, _ in (await it.fetch(max_records=4, share_acquire_mode=1, wait_ms=20))[1]:
                counts |= dict(got)
                has[it] |= {offset for offset, _ in got}
    return [counts, await scene.letters(dead)]


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_both_brokers_walk_the_same_way(kafka: str, seed: int) -> None:
    await compare(kafka, partial(walk, seed=seed))
