"""The embedded broker treats groups of the consumer protocol (KIP-848) like a real Apache Kafka
broker: the same requests get the same errors, epochs and partitions.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from aioprod.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from aioprod.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from aioprod.testing import EmbeddedCluster
from tests.testing.raw_epoch_group import EpochMemberClient, EpochScene, Place
from tests.testing.raw_group import open_scene
from tests.testing.raw_transactions import ask_until

Exchange = Callable[[EpochScene], Coroutine[Any, Any, list[object]]]
SEEDS = int(os.environ.get("AIOPROD_EPOCH_GROUP_SEEDS", "6"))
RANGE: dict[str, Any] = {"server_assignor": "range"}


async def alone(scene: EpochScene) -> list[object]:
    it = scene.member("a")
    answers: list[object] = [await scene.describe(), await it.beat(), await it.leave()]
    answers += [await it.join("t"), await scene.describe(), await scene.scene.listed()]
    owned = [("t", number) for number in range(4)]
    answers += [await it.beat(owned=owned), await it.beat(), await it.beat("t", owned=owned)]
    answers += [await it.beat("t", owned=owned, timeout_ms=60_000)]
    answers += [await it.beat("t", "later"), await scene.describe()]
    answers += [await it.commit(1), await it.commit(2, epoch=it.epoch + 1), await it.fetch()]
    answers += [await it.fetch(epoch=it.epoch - 1), await it.fetch(epoch=it.epoch + 1)]
    answers += [await scene.scene.describe(), await scene.scene.delete(), await it.leave()]
    answers += [await scene.describe(), await scene.scene.listed(), await it.beat()]
    answers += [await it.commit(3), await it.commit(4, epoch=-1), await it.fetch(epoch=-1)]
    return [*answers, await scene.scene.offsets(), await scene.scene.delete()]


async def giving_up_partitions(scene: EpochScene) -> list[object]:
    """The second member gets a partition only when the first has given it up."""
    first, second = scene.member("a"), scene.member("b")
    mine = [("t", number) for number in range(4)]
    answers: list[object] = [await first.join("t", **RANGE), await first.beat(owned=mine)]
    answers += [await second.join("t", **RANGE), await second.beat(owned=[])]
    answers += [await scene.describe(), await first.beat(), await first.beat(owned=mine)]
    answers += [await scene.describe(), await second.beat(), await first.beat(owned=mine[:3])]
    answers += [await first.beat(owned=mine[:2]), await scene.describe(), await second.beat()]
    answers += [await second.beat(owned=mine[2:]), await scene.describe()]
    answers += [await first.leave(), await second.beat(), await second.beat(owned=mine[2:])]
    return [*answers, await scene.describe()]


async def epochs(scene: EpochScene) -> list[object]:
    """A member that missed a response continues; others are fenced."""
    first, second = scene.member("a"), scene.member("b")
    answers: list[object] = [await first.join("t", **RANGE), await second.join("t", **RANGE)]
    half = [("t", 0), ("t", 1)]
    answers += [await first.beat(), await first.beat(owned=half)]
    for epoch, owned in ((1, half), (1, half[:1]), (1, None), (1, [*half, ("t", 2)]), (0, half)):
        first.epoch = epoch
        answers += [await first.beat(owned=owned)]
    for epoch in (3, 99, -3):
        first.epoch = epoch
        answers += [await first.beat(owned=half)]
    stranger = scene.member("c")
    stranger.epoch = 2
    answers += [await stranger.beat(), await stranger.leave(), await scene.describe()]
    return [*answers, await first.join("t", **RANGE), await scene.describe()]


async def not_valid(scene: EpochScene) -> list[object]:
    it = scene.member("a")
    answers: list[object] = [
        await it.join("t", timeout_ms=-1),
        await it.beat("t", timeout_ms=60_000),
        await it.beat("t", owned=[("t", 0)], timeout_ms=60_000),
        await it.join(),
        await it.join("t", group_id=""),
        await it.join("t", group_id=" "),
        await it.join("t", member_id=""),
        await it.join("t", instance_id=""),
        await it.join("t", rack_id=""),
        await it.join("t", server_assignor="sticky"),
        await it.join("t", server_assignor=""),
        await it.leave(-2),
        await it.leave(-3),
    ]
    older = scene.member("", version=0)
    older.epoch = 1
    return [*answers, await older.beat(), await older.leave()]


async def expressions(scene: EpochScene) -> list[object]:
    it = scene.member("a")
    await scene.create("other", 1)
    whole = f"{scene.group_id}[.].*"
    answers: list[object] = [await it.join(subscribed_topic_regex="(")]
    answers += [await it.join(subscribed_topic_regex=text) for text in ("(?=a)", "(a)\\1", "[")]
    answers += [await everything(it, 5, regex=whole)]
    answers += [await everything(it, 0, regex=f"{scene.group_id}[.]o")]
    answers += [await everything(it, 5, "t", regex=f"{scene.group_id}[.]o.*")]
    return [*answers, await everything(it, 4, "t", regex="")]


async def everything(
    it: EpochMemberClient, count: int, *topics: str, regex: str | None = None
) -> object:
    """Rejoin until the only member has that many partitions; return them."""

    async def ask() -> Any:
        names = [it.scene.topic(topic) for topic in topics]
        answer = await it.join(subscribed_topic_names=names, subscribed_topic_regex=regex)
        assert answer[0] == "NONE"
        return answer[3]

    return await ask_until(lambda found: len(found) == count, ask)


async def changing_topics(scene: EpochScene) -> list[object]:
    it = scene.member("a")
    await it.join("t", "later")
    answers: list[object] = [await everything(it, 4, "t", "later")]
    await scene.create("later", 2)
    answers += [await everything(it, 6, "t", "later")]
    grown = CreatePartitionsTopic(scene.topic("later"), 3, None)
    await scene.client.call(CreatePartitionsRequest([grown], 10_000), 3)
    answers += [await everything(it, 7, "t", "later")]
    deleted = DeleteTopicState(scene.topic("later"))
    await scene.client.call(DeleteTopicsRequest([deleted], timeout_ms=10_000), 6)
    return [*answers, await everything(it, 4, "t", "later")]


async def static_members(scene: EpochScene) -> list[object]:
    first, other = scene.member("a", instance_id="i"), scene.member("b", instance_id="i")
    answers: list[object] = [await first.join("t"), await other.join("t"), await other.leave()]
    other.epoch = 1
    answers += [await other.beat(), await other.commit(1), await first.leave(-2)]
    answers += [await scene.describe(), await first.beat(), await first.commit(1)]
    answers += [await other.join("t"), await scene.describe(), await first.leave(-2)]
    first.epoch = 1
    answers += [await first.beat(), await other.commit(2), await other.leave(), await first.beat()]
    answers += [await first.join("t"), await first.join("t"), await scene.describe()]
    third = scene.member("c")
    return [*answers, await third.join("t"), await first.leave(-2), await third.beat()]


async def classic_and_consumer(scene: EpochScene) -> list[object]:
    """An empty group changes its type; the requests of the other type are refused."""
    classic, it = await scene.scene.member(), scene.member("a")
    await scene.scene.stable(classic)
    answers: list[object] = [await scene.describe(), await classic.leave()]
    answers += [await it.join("t"), await scene.scene.describe(), await scene.scene.listed()]
    answers += [await classic.heartbeat(), await classic.sync(), await classic.leave()]
    answers += [await scene.scene.delete_offsets(("unknown", 0)), await it.leave()]
    classic.member_id = ""
    await scene.scene.stable(classic)
    answers += [await scene.scene.listed(), await scene.describe(), await classic.leave()]
    states = [["Empty"], ["Stable"], ["Reconciling"]]
    await it.join("t")
    answers += [await scene.scene.listed(states=each) for each in states]
    answers += [await scene.scene.listed(types=[each]) for each in ("classic", "consumer", "share")]
    return answers


async def configured(scene: EpochScene) -> list[object]:
    """The group's own interval of heartbeats, and session."""
    it, other = scene.member("a"), scene.member("b")
    answers: list[object] = [await it.join("t"), it.interval_ms, await other.join("t")]
    settings = {"consumer.heartbeat.interval.ms": "77", "consumer.session.timeout.ms": "700"}
    assert await scene.configure(settings) == "NONE"
    await ask_until(lambda _: it.interval_ms == 77, it.beat)
    await it.leave()
    answers += [it.interval_ms, await it.join("t"), it.interval_ms]
    started = time.monotonic()
    # Its session still has the former length; that of the first is short.
    found = await ask_until(lambda found: len(found) == 2, scene.describe)
    assert 0.6 < time.monotonic() - started < 5
    return [*answers, found[1][0]]


EXCHANGES: list[Exchange] = [
    alone,
    giving_up_partitions,
    epochs,
    not_valid,
    expressions,
    changing_topics,
    static_members,
    classic_and_consumer,
    configured,
]


async def compare(kafka: str, label: str, exchange: Exchange) -> None:
    unique = f"{label}-{uuid.uuid4().hex}"
    answers: list[list[object]] = []
    async with EmbeddedCluster() as embedded:
        for address in (kafka, embedded.bootstrap_servers):
            async with open_scene(address, unique, f"{unique}.t") as scene:
                described = EpochScene(scene)
                await described.create("t", 4)
                answers.append(await exchange(described))
    real, ours = answers
    for number, (theirs, mine) in enumerate(zip(real, ours, strict=True)):
        assert mine == theirs, f"answer {number}"


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.__name__)
async def test_both_brokers_say_the_same(kafka: str, exchange: Exchange) -> None:
    await compare(kafka, exchange.__name__, exchange)


async def walk(scene: EpochScene, seed: int) -> list[object]:
    """Members that join, change, give up partitions, leave and come back, at random. They say the
    truth, or nothing, about their partitions.
    """
    rng = random.Random(seed)
    await scene.create("u", 3)
    members = [
        scene.member(f"m{number}", instance_id=f"i{number}" if number == 3 else None)
        for number in range(4)
    ]
    owned: dict[str, list[Place]] = {}
    answers: list[object] = []
    for _ in range(60):
        it = rng.choice(members)
        deed = rng.random()
        topics = rng.choice([("t",), ("u",), ("t", "u")])
        if it.member_id not in owned:
            answer = await it.join(*topics, **RANGE)
        elif deed < 0.1:
            answer = await it.leave(-2 if it.instance_id is not None and deed < 0.06 else -1)
        elif deed < 0.2:
            answer = await it.beat(*topics, owned=owned[it.member_id], timeout_ms=60_000)
        elif deed < 0.3:
            answer = await it.beat(owned=owned[it.member_id][1:])
        elif deed < 0.5:
            answer = await it.beat()
        else:
            answer = await it.beat(owned=owned[it.member_id])
        if answer[0] != "NONE" or answer[2] < 0:
            owned.pop(it.member_id, None)
        elif answer[3] is not None or it.member_id not in owned:
            owned[it.member_id] = answer[3] or []
        answers += [(it.member_id, *answer)]
        if rng.random() < 0.2:
            answers += [await scene.describe()]
    return answers


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_both_brokers_walk_the_same_way(kafka: str, seed: int) -> None:
    await compare(kafka, f"walk-{seed}", partial(walk, seed=seed))
