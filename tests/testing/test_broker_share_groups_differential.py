"""The embedded broker treats share groups (KIP-932) like a real Apache Kafka broker: the same
requests get the same errors, records and delivery counts.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
import uuid
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from aioprod.testing import EmbeddedCluster
from tests.testing.raw_client import make_batch
from tests.testing.raw_share_group import Run, ShareMemberClient, ShareScene
from tests.testing.raw_transactions import ask_until

Exchange = Callable[[ShareScene], Coroutine[Any, Any, list[object]]]
SEEDS = int(os.environ.get("AIOPROD_SHARE_GROUP_SEEDS", "4"))
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
EXACT: dict[str, Any] = {"share_acquire_mode": 1}


async def acquiring(scene: ShareScene) -> list[object]:
    """Whole batches, the limit of records, and what is left for another member."""
    await scene.create()
    a, b = await scene.member("a"), await scene.member("b")
    await a.join()
    await scene.write(3, 5, 4, 2)
    answers: list[object] = [await a.fetch(max_records=4), await b.fetch(max_records=1)]
    answers += [await a.fetch(max_records=1), await b.fetch(wait_ms=50)]
    answers += [await a.acknowledge((0, 2, [ACCEPT]), (3, 7, [RELEASE]))]
    answers += [await b.fetch(max_records=2), await a.acknowledge((3, 3, [ACCEPT]))]
    answers += [await b.acknowledge((3, 7, [1, 2, 3, 2, 1])), await scene.offsets(0)]
    answers += [await a.fetch(), await scene.offsets(0)]
    return answers


async def exact(scene: ShareScene) -> list[object]:
    """No more records than asked for (KIP-1206)."""
    await scene.create()
    a, b = await scene.member("a"), await scene.member("b")
    await a.join()
    await scene.write(10, 3)
    answers: list[object] = [await a.fetch(max_records=4, **EXACT)]
    answers += [await b.fetch(max_records=3, **EXACT), await a.fetch(max_records=20, **EXACT)]
    answers += [await a.acknowledge((0, 3, [RELEASE])), await b.fetch(max_records=2, **EXACT)]
    answers += [await a.fetch(max_records=9), await scene.offsets(0)]
    return answers


async def not_valid(scene: ShareScene) -> list[object]:
    await scene.create()
    a, b = await scene.member("a"), await scene.member("b")
    await a.join()
    await scene.write(5, 5)
    answers: list[object] = [await a.acknowledge((0, 0, [ACCEPT])), await a.end()]
    answers += [await a.fetch((0, 0, [ACCEPT])), await a.fetch(max_records=5)]
    wrong: list[tuple[Run, ...]] = [
        ((2, 1, [ACCEPT]),),
        ((0, 2, []),),
        ((0, 2, [ACCEPT, ACCEPT]),),
        ((0, 2, [5]),),
        ((0, 2, [-1]),),
        ((0, 2, [ACCEPT]), (2, 3, [ACCEPT])),
        ((3, 4, [ACCEPT]), (0, 1, [ACCEPT])),
        ((0, 4, [RENEW]),),
        ((0, 9, [ACCEPT]),),
        ((7, 8, [ACCEPT]),),
        ((50, 60, [ACCEPT]),),
    ]
    for runs in wrong:
        answers += [await a.acknowledge(*runs)]
    answers += [await a.acknowledge((0, 0, [ACCEPT]), place=9)]
    answers += [await a.acknowledge((0, 0, [ACCEPT]), topic_id=uuid.UUID(int=77))]
    answers += [await a.acknowledge((0, 0, [ACCEPT]), (1, 9, [ACCEPT]))]
    answers += [await b.fetch(), await b.acknowledge((0, 4, [ACCEPT]))]
    answers += [await a.acknowledge((0, 4, [ACCEPT])), await a.acknowledge((0, 4, [ACCEPT]))]
    return [*answers, await scene.offsets(0)]


async def sessions(scene: ShareScene) -> list[object]:
    await scene.create(2)
    a, b = await scene.member("a"), await scene.member("b")
    await a.join(2)
    await scene.write(3)
    answers: list[object] = [await a.fetch(share_session_epoch=5), await a.fetch()]
    answers += [await a.fetch(share_session_epoch=7), await a.acknowledge(share_session_epoch=7)]
    answers += [await a.acknowledge(share_session_epoch=0)]
    answers += [
        await a.fetch(places=[0, 1], wait_ms=50),
        await a.fetch((0, 0, [ACCEPT]), wait_ms=50),
    ]
    answers += [await a.fetch(topics=[], wait_ms=50)]
    answers += [await a.fetch(places=[5], wait_ms=50), await a.fetch(topic_id=uuid.UUID(int=7))]
    answers += [await a.fetch(group_id=None), await a.fetch(member_id=None)]
    answers += [await a.end(), await b.fetch(), await b.end(), await b.end()]
    answers += [await a.fetch(), await a.fetch((1, 1, [ACCEPT]), share_session_epoch=-1)]
    return [*answers, await b.fetch(), await scene.offsets(0)]


async def cut_connections(scene: ShareScene) -> list[object]:
    """The records of a member whose connection has ended are available."""
    await scene.create()
    a, b = await scene.member("a"), await scene.member("b")
    await a.join()
    await scene.write(4)
    answers: list[object] = [await a.fetch(), await a.acknowledge((1, 1, [ACCEPT]))]
    await a.cut()
    answers += [await b.fetch_all(3), await a.acknowledge((0, 0, [ACCEPT]))]
    a.session = 2
    return [*answers, await a.acknowledge((0, 0, [ACCEPT])), await scene.offsets(0)]


async def counts(scene: ShareScene, limit: int) -> list[object]:
    """Records that are released again and again come in ever smaller parts, and end archived."""
    await scene.create(share_delivery_count_limit=str(limit))
    a = await scene.member("a")
    await a.join()
    await scene.write(10, 6)
    answers: list[object] = []
    for _ in range(60):
        answer = await a.fetch(wait_ms=50)
        answers += [answer]
        offsets = [offset for offset, _ in answer[1][0][3]] if answer[1] else []
        if not offsets:
            break
        answers += [await a.acknowledge(*((each, each, [RELEASE]) for each in offsets))]
    return [*answers, await scene.offsets(0)]


async def renewing(scene: ShareScene) -> list[object]:
    await scene.create()
    a = await scene.member("a")
    await a.join()
    await scene.write(3)
    nothing: dict[str, Any] = {"min_bytes": 0, "max_bytes": 0, "max_records": 0, "wait_ms": 0}
    answers: list[object] = [await a.fetch()]
    answers += [await a.acknowledge((0, 2, [RENEW]), is_renew_ack=True)]
    answers += [await a.acknowledge((0, 2, [RENEW, ACCEPT, RENEW]), is_renew_ack=True)]
    answers += [await a.fetch((0, 0, [RENEW]), is_renew_ack=True)]
    answers += [await a.fetch((0, 0, [RENEW]), is_renew_ack=True, **nothing)]
    answers += [await a.fetch((0, 0, [RENEW]), wait_ms=50), await a.acknowledge((0, 0, [RELEASE]))]
    answers += [await a.acknowledge((0, 0, [RENEW]), is_renew_ack=True)]
    await scene.configure(share_renew_acknowledge_enable="false")
    # Kafka's broker responds before it applies the setting.
    async with asyncio.timeout(10):
        while (last := await a.acknowledge((2, 2, [RENEW]), is_renew_ack=True))[1] == ["NONE"]:
            pass
    return [*answers, last]


async def time_outs(scene: ShareScene) -> list[object]:
    await scene.create(share_record_lock_duration_ms="1000")
    a, b = await scene.member("a"), await scene.member("b")
    await a.join()
    await scene.write(3)
    answers: list[object] = [await a.fetch(), await a.acknowledge((1, 1, [ACCEPT]))]
    answers += [await b.fetch_all(2), await a.acknowledge((0, 0, [ACCEPT]))]
    return [*answers, await b.acknowledge((0, 2, [ACCEPT, GAP, ACCEPT])), await scene.offsets(0)]


async def deleted_records(scene: ShareScene) -> list[object]:
    """The start of the log moves into acquired and into available records."""
    await scene.create()
    a = await scene.member("a")
    await a.join()
    await scene.write(4, 4, 4)
    answers: list[object] = [await a.fetch(max_records=4)]
    await scene.delete_records(2)
    answers += [await a.acknowledge((0, 1, [ACCEPT])), await a.fetch(max_records=1)]
    answers += [await a.acknowledge((0, 3, [RELEASE]))]
    await scene.delete_records(8)
    return [*answers, await a.fetch_all(4)]


async def by_age(scene: ShareScene, duration: str) -> list[object]:
    """The group begins with the records that are not older than this."""
    await scene.create(share_auto_offset_reset=f"by_duration:{duration}")
    hour_ms = 3_600_000
    now_ms = int(time.time() * 1000)
    for age_ms in (50 * hour_ms, 2 * hour_ms, hour_ms // 2, 0):
        batch = make_batch([b"0", b"1"], timestamps=[now_ms - age_ms] * 2)
        assert not (await scene.client.produce(scene.topic, batch)).error_code
    a = await scene.member("a")
    await a.join()
    answers: list[object] = [await a.fetch(wait_ms=50), await scene.offsets(0)]
    batch = make_batch([b"later"], timestamps=[now_ms + hour_ms // 2])
    assert not (await scene.client.produce(scene.topic, batch)).error_code
    return [*answers, await a.fetch(), await scene.offsets(0)]


async def offsets(scene: ShareScene) -> list[object]:
    await scene.create(2)
    a = await scene.member("a")
    answers: list[object] = [await scene.offsets(), await scene.offsets(0), await scene.describe()]
    answers += [await scene.forget(), await scene.delete(), await scene.listed()]
    await a.join(2)
    await scene.write(6)
    answers += [await scene.describe(), await scene.listed(), await scene.delete()]
    answers += [await a.fetch(places=[0, 1]), await a.acknowledge((0, 3, [ACCEPT]))]
    answers += [await scene.offsets(0), await scene.alter({0: 1}), await scene.forget()]
    answers += [await scene.offsets(0, topic="no-such-topic"), await a.end(), await a.leave()]
    answers += [await scene.describe(), await scene.alter({0: 2, 5: 1})]
    answers += [await scene.offsets(0), await scene.alter({0: 0}, "no-such-topic")]
    answers += [await scene.forget(scene.topic, "no-such-topic")]
    answers += [await scene.offsets(0), await scene.listed(), await scene.delete()]
    return [*answers, await scene.describe(), await scene.delete(), await scene.listed()]


async def heartbeats(scene: ShareScene) -> list[object]:
    await scene.create(2)
    a = await scene.member("a")
    topics = [scene.topic]
    wrong: list[dict[str, Any]] = [
        {"member_id": ""},
        {"group_id": ""},
        {"rack_id": ""},
        {"topics": None},
        {"topics": []},
        {"member_epoch": -2},
        {"member_epoch": -1},
        {"member_epoch": 3},
    ]
    answers: list[object] = [await a.beat(**{"topics": topics, **each}) for each in wrong]
    await a.join(2)
    answers += [await a.beat(), await a.beat(topics=topics), await a.beat(topics=[])]
    now = a.epoch
    for epoch in (now + 1, now - 20, 99):
        a.epoch = epoch
        answers += [await a.beat()]
    b = await scene.member("b")
    b.epoch = 1
    answers += [await b.beat(), await b.leave(), await a.leave(), await a.beat()]
    return [*answers, await scene.describe()]


async def shared_partitions(scene: ShareScene) -> list[object]:
    """Return the number of members of each partition, and of partitions of each member."""
    await scene.create(3)
    members = [await scene.member(f"m{number}") for number in range(4)]
    for each in members:
        await each.beat(topics=[scene.topic])

    async def spread() -> list[tuple[int, ...]]:
        for each in members:
            await each.beat()
        found = (await scene.describe())[3]
        return sorted(each[5] for each in found)

    whole = await ask_until(lambda found: len(found) == 4 and all(found), spread)
    sizes = sorted(map(len, whole))
    return [sizes, {number for each in whole for number in each}]


EXCHANGES: list[Exchange] = [
    acquiring,
    exact,
    not_valid,
    sessions,
    cut_connections,
    partial(counts, limit=5),
    partial(counts, limit=2),
    partial(by_age, duration="PT1H"),
    partial(by_age, duration="PT0S"),
    partial(by_age, duration="P7D"),
    renewing,
    time_outs,
    deleted_records,
    offsets,
    heartbeats,
    shared_partitions,
]


async def compare(kafka: str, exchange: Exchange) -> None:
    unique = uuid.uuid4().hex
    answers: list[list[object]] = []
    async with EmbeddedCluster() as embedded:
        for address in (kafka, embedded.bootstrap_servers):
            async with ShareScene(address, unique) as scene:
                answers.append(await exchange(scene))
    real, ours = answers
    for number, (theirs, mine) in enumerate(zip(real, ours, strict=True)):
        assert mine == theirs, f"answer {number}"


def _name(exchange: Exchange) -> str:
    if isinstance(exchange, partial):
        return f"{exchange.func.__name__}-{'-'.join(map(str, exchange.keywords.values()))}"
    return exchange.__name__


@pytest.mark.parametrize("exchange", EXCHANGES, ids=_name)
async def test_both_brokers_say_the_same(kafka: str, exchange: Exchange) -> None:
    await compare(kafka, exchange)


async def walk(scene: ShareScene, seed: int) -> list[object]:
    """Members that acquire and acknowledge, at random."""
    rng = random.Random(seed)
    await scene.create(share_delivery_count_limit=str(rng.choice([2, 3, 5, 10])))
    members = [await scene.member(f"m{number}") for number in range(3)]
    await members[0].join()
    has: dict[ShareMemberClient, set[int]] = {each: set() for each in members}
    answers: list[object] = []
    await scene.write(3)
    for _ in range(50):
        it, deed = rng.choice(members), rng.random()
        if deed < 0.2:
            await scene.write(*(rng.randint(1, 9) for _ in range(rng.randint(1, 3))))
        elif deed < 0.5:
            mode = EXACT if rng.random() < 0.5 else {}
            size = rng.choice([1, 4, 500])
            answer = await it.fetch(
                max_records=rng.randint(1, 12), batch_size=size, wait_ms=20, **mode
            )
            answers += [answer]
            has[it] |= {offset for _, *_, got, _ in answer[1] for offset, _ in got}
        elif has[it] and it.session:
            count = rng.randint(1, len(has[it]))
            chosen = sorted(rng.sample(sorted(has[it]), count))
            runs: list[Run] = [(each, each, [rng.choice([0, 1, 1, 2, 2, 2, 3])]) for each in chosen]
            has[it] -= set(chosen)
            answers += [await it.acknowledge(*runs)]
    return [*answers, await scene.offsets(0)]


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_both_brokers_walk_the_same_way(kafka: str, seed: int) -> None:
    await compare(kafka, partial(walk, seed=seed))
