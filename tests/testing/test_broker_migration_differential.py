"""Classic members and members of the consumer protocol in one group (online migration, KIP-848):
the embedded broker gives the same responses as a real Apache Kafka broker.
"""

from __future__ import annotations

import asyncio
import os
import random
import uuid
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from aioprod.testing import EmbeddedCluster
from tests.testing.raw_epoch_group import EpochMemberClient, EpochScene, Place
from tests.testing.raw_group import open_scene
from tests.testing.raw_migration import MigratingMember
from tests.testing.raw_transactions import ask_until

SEEDS = int(os.environ.get("AIOPROD_MIGRATION_SEEDS", "4"))
PARTITIONS = 12
RANGE: dict[str, Any] = {"server_assignor": "range"}


class MigrationScene(EpochScene):
    """A group with members of both protocols. Members are static, so that assignors sort them."""

    async def classic(self, instance: str | None, **settings: Any) -> MigratingMember:
        version = settings.pop("version", 3)
        member = await self.scene.member(instance_id=instance, **settings)
        return MigratingMember(self, member, version=version)

    async def stable(self, *members: MigratingMember) -> None:
        """Let classic members join one after the other, and share the topic."""
        for count, new in enumerate(members, start=1):
            new.subscribe()
            joining = asyncio.create_task(new.raw.join_twice())
            for each in members[: count - 1]:
                await each.raw.until_rebalance()
            await asyncio.gather(joining, *(each.raw.join() for each in members[: count - 1]))
            raw = [each.raw for each in members[:count]]
            await asyncio.gather(
                *(each.sync(share=raw if each.raw.is_leader else ()) for each in members[:count])
            )

    async def described(self) -> list[object]:
        """Describe the group as one of the consumer protocol, with labels for members."""
        group, *members = await self.describe()
        return [
            group,
            *sorted(
                (self.scene.label(each[0]) if len(each[0]) > 9 else each[0], *each[1:])
                for each in members
            ),
        ]

    async def kind(self) -> list[object]:
        return [await self.scene.listed(), (await self.scene.describe())[0]]


Exchange = Callable[[MigrationScene], Coroutine[Any, Any, list[object]]]


async def there_and_back(scene: MigrationScene) -> list[object]:
    """Two classic members, then one of the consumer protocol, which leaves again."""
    a, b, c = (
        await scene.classic("i1"),
        await scene.classic("i2"),
        scene.member("c", instance_id="i3"),
    )
    await scene.stable(a, b)
    answers: list[object] = [a.owned, b.owned, await scene.kind()]
    answers += [await c.join("t", **RANGE), await scene.described(), await scene.kind()]
    answers += [await c.beat(owned=[]), await a.raw.heartbeat(), await a.sync()]
    answers += [await a.raw.commit(3), await a.join(), await a.sync(), await scene.described()]
    answers += [await a.raw.heartbeat(), await c.beat(), await a.until_idle(), await b.until_idle()]
    answers += [await c.beat(), await scene.described(), await a.until_idle(), await b.until_idle()]
    answers += [await c.beat(owned=[]), await scene.described(), await scene.kind()]
    for each in (a, b):
        answers += [await each.raw.commit(5), await each.until_idle()]
        answers += [await each.raw.again(partial(each.raw.commit, 7), generation_id=99)]
    answers += [await c.commit(4), await scene.scene.offsets(), await c.leave()]
    answers += [await scene.kind(), await scene.described(), await a.raw.heartbeat()]
    answers += [await b.raw.heartbeat(), await c.beat()]
    joined = await asyncio.gather(a.join(), b.join())
    answers += [[each[0] for each in joined], {each[1] for each in joined}]
    raw = [a.raw, b.raw]
    await asyncio.gather(*(each.sync(share=raw if each.raw.is_leader else ()) for each in (a, b)))
    return [*answers, a.owned, b.owned, await scene.kind(), await a.raw.heartbeat()]


async def joining(scene: MigrationScene) -> list[object]:
    """A classic member joins a group of the consumer protocol; what is refused."""
    c, a = scene.member("c"), await scene.classic(None)
    answers: list[object] = [await c.join("t", **RANGE)]
    a.subscribe()
    answers += [(await a.raw.join())[0], (await a.raw.join())[:6], await a.sync()]
    right = a.raw.protocols
    wrong: list[dict[str, Any]] = [
        {"protocol_type": "connect"},
        {"protocol_type": ""},
        {"protocols": []},
        {"protocols": [("range", b"")]},
        {"protocols": [("range", b"\\0")]},
        {"session_timeout_ms": 1},
        {"instance_id": "unknown"},
    ]
    for change in wrong:
        answers += [(await a.raw.again(a.raw.join, **change))[0]]
        a.raw.generation_id = max(a.raw.generation_id, 0)
    b = await scene.classic(None)
    for protocols in ([("roundrobin", right[0][1])], [("sticky", right[0][1]), *right]):
        b.raw.protocols = protocols
        answers += [(await b.raw.join(version=3))[:6]]
    group, *members = await scene.describe()
    return [*answers, group, [len(each[9]) for each in members]]


async def not_valid(scene: MigrationScene) -> list[object]:
    """Requests that do not fit the member or its epoch."""
    c, a, s = scene.member("c"), await scene.classic(None), await scene.classic("i1")
    answers: list[object] = [await c.join("t", **RANGE), await a.join(), await s.join()]
    answers += [await a.sync(), await s.sync()]
    for each in (a, s):
        raw = each.raw
        for change in (
            {"generation_id": raw.generation_id + 1},
            {"generation_id": raw.generation_id - 1},
            {"generation_id": -1},
            {"member_id": "other"},
            {"member_id": ""},
            {"member_id": "c", "instance_id": None},
            {"instance_id": "i9"},
        ):
            answers += [
                await raw.again(raw.heartbeat, **change),
                await raw.again(raw.sync, **change),
            ]
            answers += [await raw.again(partial(raw.commit, 1), **change)]
        for names in (("connect", "range"), ("consumer", "sticky"), (None, None)):
            answers += [await raw.again(partial(raw.sync, protocol=names))]
    x = scene.member(a.raw.member_id)
    x.epoch = a.raw.generation_id
    answers += [(await x.beat())[0]]
    remove = scene.scene.remove
    answers += [await remove(("c", None), ("unknown", None), ("", "i9"), ("other", "i1"))]
    answers += [await remove(("", "i1"), (a.raw.member_id, None)), await scene.described()]
    return [*answers, await c.leave(), await scene.kind()]


async def restarts(scene: MigrationScene) -> list[object]:
    """Static members come back with the other protocol, and keep their partitions."""
    a, b, c = (
        await scene.classic("i1"),
        await scene.classic("i2"),
        scene.member("c", instance_id="i1"),
    )
    await scene.stable(a, b)
    answers: list[object] = [await c.join("t", **RANGE), await scene.described()]
    answers += [await a.raw.heartbeat(), await b.until_idle(), await c.beat(owned=[])]
    answers += [await b.until_idle(), await c.beat(), await scene.described()]
    d = scene.member("d", instance_id="i2")
    answers += [await d.join("t", **RANGE), await b.raw.heartbeat(), await scene.described()]
    answers += [await d.beat(), await c.beat(), await scene.described()]
    again = await scene.classic("i1")
    answers += [await again.join(), await again.sync(), await c.beat(), await scene.described()]
    last = await scene.classic("i2")
    answers += [await last.join(), await scene.kind(), await scene.described()]
    answers += [await again.raw.heartbeat(), await last.raw.heartbeat(), await d.beat()]
    return [*answers, await last.sync(), await again.sync()]


async def refused_upgrades(scene: MigrationScene) -> list[object]:
    """Groups of others than consumers stay classic, and those whose new member is refused."""
    a, c = await scene.classic(None, protocol_type="connect"), scene.member("c")
    await scene.stable(a)
    answers: list[object] = [
        await c.join("t"),
        await scene.kind(),
        await a.raw.heartbeat(),
        await a.raw.leave(),
    ]
    b = await scene.classic(None)
    b.raw.protocols = [("range", b"\\0")]
    answers += [(await b.raw.join_twice())[0], await b.raw.sync({b.raw.member_id: b""})]
    answers += [await c.join("t"), await scene.kind(), await b.raw.heartbeat(), await b.raw.leave()]
    d = await scene.classic(None)
    await scene.stable(d)
    answers += [await c.join(subscribed_topic_regex="("), await scene.kind()]
    answers += [await d.raw.heartbeat(), await c.beat(), await c.leave(), await scene.kind()]
    return answers


async def rebalancing(scene: MigrationScene) -> list[object]:
    """The group is upgraded while classic members wait for each other."""
    a, b, c = await scene.classic(None), await scene.classic(None), scene.member("c")
    await scene.stable(a, b)
    b.subscribe("t", "other")
    waiting = asyncio.create_task(b.raw.join())
    answers: list[object] = [await a.raw.until_rebalance()]
    answers += [await c.join("t", **RANGE), (await waiting)[0], await scene.kind()]
    answers += [len(await scene.described()), len(a.owned), len(b.owned)]
    answers += [
        (await b.join("t"))[:2],
        (await a.join())[:2],
        (await a.sync())[0],
        (await b.sync())[0],
    ]
    return answers


async def too_slow(scene: MigrationScene) -> list[object]:
    """Members that do not rejoin, or do not ask for their partitions, in their time."""
    c = scene.member("c", instance_id="i9")
    answers: list[object] = [await c.join("t", **RANGE)]
    for syncs in (True, False):
        a = await scene.classic("i1", rebalance_timeout_ms=500)
        answers += [await a.join()]
        if syncs:
            answers += [
                await a.sync(),
                await c.beat(owned=[]),
                await c.beat(),
                await scene.described(),
            ]
            other = scene.member("e", instance_id="i0")
            answers += [await other.join("t", **RANGE), await a.raw.heartbeat()]
        await ask_until(lambda found: not any("i1" in each for each in found[1:]), scene.describe)
        answers += [await a.raw.heartbeat(), await a.sync()]
        if syncs:
            answers += [await other.leave(), await c.beat(owned=[])]
    return [*answers, await scene.kind()]


async def removed(scene: MigrationScene) -> list[object]:
    """An administrator removes the last member of the consumer protocol, and members at once."""
    a, b = await scene.classic("i1"), await scene.classic("i2")
    c, d = scene.member("c", instance_id="i3"), scene.member("d")
    await scene.stable(a, b)
    answers: list[object] = [await c.join("t", **RANGE), await a.until_idle(), await b.until_idle()]
    answers += [await d.join("t", **RANGE)]
    remove = scene.scene.remove
    answers += [await remove(("d", None), ("", "i2")), await scene.kind(), await scene.described()]
    answers += [await a.until_idle(), await b.raw.heartbeat()]
    answers += [await remove(("", "i3")), await scene.kind(), await scene.described()]
    answers += [await a.raw.heartbeat(), await a.join(), await c.beat(), await scene.kind()]
    return answers


EXCHANGES: list[Exchange] = [
    there_and_back,
    joining,
    not_valid,
    restarts,
    refused_upgrades,
    rebalancing,
    too_slow,
    removed,
]


async def compare(kafka: str, exchange: Exchange) -> None:
    unique = f"migration-{uuid.uuid4().hex}"
    answers: list[list[object]] = []
    async with EmbeddedCluster() as embedded:
        for address in (kafka, embedded.bootstrap_servers):
            async with open_scene(address, unique, f"{unique}.t") as scene:
                migrating = MigrationScene(scene)
                await migrating.create("t", PARTITIONS)
                answers.append(await exchange(migrating))
    real, ours = answers
    for number, (theirs, mine) in enumerate(zip(real, ours, strict=True)):
        assert mine == theirs, f"answer {number}"


async def walk(scene: MigrationScene, seed: int) -> list[object]:
    """Four static members join, go on, leave, and come back with either protocol, at random."""
    rng = random.Random(seed)
    owner = scene.member("owner", instance_id="i9")  # so that the group stays of its type
    answers: list[object] = [await owner.join("t", **RANGE)]
    present: dict[int, MigratingMember | EpochMemberClient] = {}
    owned: dict[int, list[Place]] = {}
    for step in range(60):
        number, deed = rng.randrange(4), rng.random()
        it = present.get(number)
        if not it or deed < 0.1:
            if rng.random() < 0.5:
                present[number] = classic = await scene.classic(f"i{number}")
                answers += [await classic.join(), await classic.sync()]
            else:
                member = scene.member(f"m{number}-{step}", instance_id=f"i{number}")
                answer = await member.join("t", **RANGE)
                if answer[0] == "NONE":
                    present[number], owned[number] = member, answer[3] or []
                answers += [answer]
        elif isinstance(it, MigratingMember):
            if deed < 0.2:
                answers += [await it.raw.leave()]
                del present[number]
            elif deed < 0.3:
                answers += [await it.sync(), await it.raw.commit(step)]
            elif deed < 0.35:
                answers += [await it.join(owned=it.owned[1:])]
            else:
                answers += [await it.until_idle()]
        elif deed < 0.2:
            answers += [await it.leave()]
            del present[number]
        else:
            answer = await it.beat(owned=owned[number]) if deed < 0.9 else await it.beat()
            if answer[0] != "NONE":
                del present[number]
            elif answer[3] is not None:
                owned[number] = answer[3]
            answers += [answer]
        if deed > 0.8:
            answers += [await owner.beat(owned=[]), await scene.described()]
    return answers


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_both_brokers_walk_the_same_way(kafka: str, seed: int) -> None:
    await compare(kafka, partial(walk, seed=seed))


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.__name__)
async def test_both_brokers_say_the_same(kafka: str, exchange: Exchange) -> None:
    await compare(kafka, exchange)
