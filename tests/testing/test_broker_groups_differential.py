"""The embedded broker treats consumer groups like a real Apache Kafka broker: the same requests get
the same errors, generations and members.

What may differ: member ids (compared by labels), the order of members, and which of several members
becomes the leader when the leader leaves.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from aioprod.protocol.messages.create_topics import CreatableTopic
from aioprod.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from aioprod.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from aioprod.protocol.messages.find_coordinator import FindCoordinatorRequest
from aioprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from aioprod.testing import EmbeddedCluster
from tests.testing.new_topics import create_topics_with_leaders
from tests.testing.raw_client import make_batch
from tests.testing.raw_group import Scene, open_scene, subscription
from tests.testing.raw_transactions import ask_until

Exchange = Callable[[Scene], Coroutine[Any, Any, list[object]]]
TWO_WAYS = [("range", b"r"), ("roundrobin", b"rr")]


async def one_member(scene: Scene) -> list[object]:
    it = await scene.member()
    answers: list[object] = [
        await scene.describe(),
        await scene.listed(),
        await it.heartbeat(),
        await it.sync(),
        await it.leave(),
    ]
    answers += [await it.join(), await it.heartbeat(), await it.sync()]
    await scene.until("Empty", 0)  # a real broker answers before the new group is in its log
    answers += [
        await scene.describe(),
        await it.join(),
        await scene.describe(),
        await it.heartbeat(),
        await it.commit(1),
        await it.join(),
    ]
    answers += [
        await it.sync({it.member_id: b"all"}),
        await scene.describe(operations=True),
        await it.sync(),
        await it.heartbeat(),
    ]
    answers += [await it.commit(2), await scene.offsets(), await scene.listed()]
    answers += [await it.join(), await it.heartbeat(), await it.sync({}), await scene.describe()]
    answers += [await it.leave(), await scene.describe(), await scene.listed()]
    answers += [await it.heartbeat(), await it.sync(), await it.commit(3), await it.leave()]
    answers += [await it.join(), await it.again(it.join, member_id=""), await scene.offsets()]
    return answers


async def a_second_member(scene: Scene) -> list[object]:
    first, second = await scene.member(), await scene.member()
    await scene.stable(first)
    joining = asyncio.create_task(second.join_twice())
    answers: list[object] = [
        await first.until_rebalance(),
        await first.sync({}),
        await first.commit(1),
        await scene.describe(),
    ]
    answers += [
        await first.join(),
        await joining,
        await scene.describe(),
        await first.heartbeat(),
        await second.heartbeat(),
        await first.commit(2),
    ]
    waiting = asyncio.create_task(second.sync())
    answers += [
        await first.sync({first.member_id: b"1", second.member_id: b"2", "stranger": b"3"}),
        await waiting,
        await scene.describe(),
    ]
    answers += [
        await second.join(),
        await second.sync(),
        await second.heartbeat(),
        await first.heartbeat(),
    ]
    second.protocols = [("range", subscription(scene.topic, "another"))]
    joining = asyncio.create_task(second.join())
    answers += [
        await first.until_rebalance(),
        await first.join(),
        await joining,
        await first.join(),
        await second.join(),
    ]
    await scene.synced(first, second)
    answers += [await second.leave(), await first.heartbeat(), await scene.describe()]
    answers += [await first.join(), await first.leave(), await scene.describe()]
    return answers


async def a_third_member_while_the_leader_works(scene: Scene) -> list[object]:
    first, second, third = [await scene.member() for _ in range(3)]
    await scene.stable(first)
    joining = asyncio.create_task(second.join_twice())
    answers: list[object] = [await first.until_rebalance(), await first.join(), await joining]
    waiting = asyncio.create_task(second.sync())
    late = asyncio.create_task(third.join_twice())
    answers += [
        await waiting,
        await first.until_rebalance(),
        await first.sync({second.member_id: b"too late"}),
        await second.heartbeat(),
    ]
    joining = asyncio.create_task(second.join())
    answers += [await first.join(), await joining, await late]
    await scene.synced(first, second, third)
    return [*answers, await scene.describe()]


async def versions(scene: Scene) -> list[object]:
    answers: list[object] = []
    for version in range(10):
        it = await scene.member()
        answers += [version, await it.join(version=version)]
        if version >= 4:
            answers.append(await it.join(version=version))
        sync, heartbeat, leave = min(version, 5), min(version, 4), min(version, 5)
        answers += [
            await it.sync({it.member_id: b"all"}, version=sync),
            await it.sync(version=sync),
            await it.heartbeat(version=heartbeat),
        ]
        answers += [
            await scene.describe(version=min(version, 6)),
            await scene.listed(version=min(version, 5)),
        ]
        answers += [
            await it.leave(version=leave),
            await it.leave(version=leave),
            await scene.describe(version=min(version, 6)),
        ]
        answers += [
            await it.heartbeat(version=heartbeat),
            await it.sync(version=sync),
            await it.join(version=version),
        ]
        it.session_timeout_ms = 1
        answers.append(await it.join(version=version))
    answers += [
        await scene.describe(version=version, group_id=scene.group_id + "-unknown")
        for version in range(7)
    ]
    return answers


async def what_is_refused(scene: Scene) -> list[object]:
    it, other = await scene.member(), await scene.member()
    answers: list[object] = [
        await it.again(it.join, session_timeout_ms=limit) for limit in (-1, 0, 5_999, 1_800_001)
    ]
    answers += [
        await it.again(it.join, protocols=[]),
        await it.again(it.join, protocol_type=""),
        await it.again(it.join, member_id="unknown"),
    ]
    await scene.stable(it)
    answers += [await other.again(other.join, **changed) for changed in REFUSED]
    answers += [await it.again(it.join, **changed) for changed in REFUSED]
    for call in (
        it.heartbeat,
        it.sync,
        lambda: it.commit(1),
        lambda: it.commit(1, version=8),
        it.leave,
    ):
        for changed in (
            {"member_id": "unknown"},
            {"generation_id": 0},
            {"generation_id": 2},
            {"generation_id": -1},
            {"instance_id": "i"},
        ):
            if call != it.leave or "generation_id" not in changed:
                answers.append((changed, await it.again(call, **changed)))
    outside = await scene.member()
    answers += [
        await outside.commit(1),
        await outside.heartbeat(),
        await outside.leave(),
        await outside.sync(),
    ]
    answers += [
        await it.sync(protocol=each)
        for each in ((None, None), ("consumer", None), ("other", "range"), ("consumer", "other"))
    ]
    answers += [await it.sync(protocol=(None, None), version=4), await it.heartbeat()]
    scene.group_id = ""
    await scene.ready()  # another partition of __consumer_offsets, which may still be loading
    await scene.delete("")  # other tests commit offsets of it to the real broker
    answers += [
        await it.join(),
        await it.sync(),
        await it.heartbeat(),
        await it.leave(),
        await it.leave(version=2),
        await scene.delete(""),
    ]
    answers += [await scene.delete_offsets((scene.topic, 0))]
    return answers


REFUSED: list[dict[str, object]] = [
    {"protocols": []},
    {"protocols": [("other", b"")]},
    {"protocol_type": "connect"},
    {"protocol_type": ""},
]


async def protocols(scene: Scene) -> list[object]:
    first = await scene.member(protocols=TWO_WAYS)
    others = [
        await scene.member(protocols=each) for each in (TWO_WAYS[::-1], [("roundrobin", b"only")])
    ]
    await scene.stable(first)
    joining = []
    for count, other in enumerate(others, 2):
        joining.append(asyncio.create_task(other.join_twice()))
        await scene.until("PreparingRebalance", count)
    return [await first.heartbeat(), await first.join(), *[await each for each in joining]]


async def static_members(scene: Scene) -> list[object]:
    first = await scene.member(instance_id="one")
    answers: list[object] = [
        await first.join(),
        await first.sync({first.member_id: b"all"}),
        await scene.describe(),
    ]
    again = await scene.member(instance_id="one")
    answers += [
        await again.join(),
        await first.heartbeat(),
        await first.sync(),
        await first.commit(1),
        await first.leave(),
        await first.join(),
    ]
    answers += [
        await again.sync(),
        await again.heartbeat(),
        await again.commit(1),
        await scene.describe(),
    ]
    answers += [
        await again.again(call, instance_id="two")
        for call in (again.heartbeat, again.sync, lambda: again.commit(1), again.leave)
    ]
    answers += [
        await again.again(call, instance_id=None)
        for call in (again.heartbeat, again.sync, lambda: again.commit(1))
    ]
    older = await scene.member(instance_id="one")
    answers += [await older.join(version=8), await older.sync(), await scene.describe()]
    changed = await scene.member(instance_id="one", protocols=[("range", subscription("other"))])
    answers += [
        await changed.join(),
        await changed.sync(),
        await scene.describe(),
        await changed.join(),
    ]
    other = await scene.member(instance_id="one", protocols=[("roundrobin", b"")])
    answers += [await other.join()]
    answers += [
        await scene.remove(
            ("", "one"), ("", "two"), ("", None), ("unknown", None), ("unknown", "one")
        ),
        await scene.describe(),
    ]
    return answers


async def static_follower(scene: Scene) -> list[object]:
    first, second = await scene.member(instance_id="one"), await scene.member(instance_id="two")
    await scene.stable(first)
    joining = asyncio.create_task(second.join())
    answers: list[object] = [await first.until_rebalance(), await first.join(), await joining]
    await scene.synced(first, second)
    restarted = await scene.member(instance_id="two")
    answers += [
        await restarted.join(),
        await restarted.sync(),
        await first.heartbeat(),
        await second.heartbeat(),
    ]
    joining = asyncio.create_task(first.join())  # the leader begins a rebalance
    answers += [await restarted.until_rebalance()]
    third = await scene.member(instance_id="two")
    answers += [await third.join(), await joining, await restarted.heartbeat()]
    waiting = asyncio.create_task(third.sync())
    await scene.until("CompletingRebalance", 2)
    fourth = await scene.member(instance_id="two")
    joining = asyncio.create_task(fourth.join())
    answers += [await waiting, await first.until_rebalance(), await first.join(), await joining]
    await scene.synced(first, fourth)
    answers += [
        await scene.describe(),
        await first.heartbeat(),
        await scene.remove(("", "two")),
        await first.heartbeat(),
    ]
    return answers


async def silent_in_a_rebalance(scene: Scene) -> list[object]:
    """A member that does not rejoin in time is removed; static members stay."""
    first, static = (
        await scene.member(rebalance_timeout_ms=600),
        await scene.member(instance_id="one", rebalance_timeout_ms=600),
    )
    await scene.stable(first)
    joining = asyncio.create_task(static.join())
    answers: list[object] = [await first.until_rebalance(), await first.join(), await joining]
    await scene.synced(first, static)
    third = await scene.member(rebalance_timeout_ms=600)
    answers += [
        await third.join_twice(),
        await first.heartbeat(),
        await static.heartbeat(),
        await scene.describe(),
        await first.join(),
    ]
    answers += [
        await first.heartbeat(),
        await static.again(static.heartbeat, generation_id=third.generation_id),
    ]
    return answers


async def silent_before_the_assignment(scene: Scene) -> list[object]:
    """Members that never ask for their assignment delay no other member."""
    first, second = (
        await scene.member(rebalance_timeout_ms=600),
        await scene.member(rebalance_timeout_ms=600),
    )
    await scene.stable(first)
    joining = asyncio.create_task(second.join_twice())
    answers: list[object] = [await first.until_rebalance(), await first.join(), await joining]
    answers += [
        await second.sync(),
        await second.join(),
        await scene.describe(),
        await first.heartbeat(),
    ]
    return answers


async def leaving(scene: Scene) -> list[object]:
    first, pending, static = (
        await scene.member(),
        await scene.member(),
        await scene.member(instance_id="one"),
    )
    await scene.stable(first)
    answers: list[object] = [await pending.join(), await first.heartbeat(), await scene.describe()]
    answers += [await pending.leave(), await pending.join(), await first.heartbeat()]
    joining = asyncio.create_task(static.join())
    answers += [
        await first.until_rebalance(),
        await first.leave(),
        await joining,
        await scene.describe(),
    ]
    answers += [
        await scene.remove((static.member_id, "one"), (first.member_id, None)),
        await scene.describe(),
    ]
    return answers


async def a_pending_member_is_waited_for(scene: Scene) -> list[object]:
    first, pending = await scene.member(), await scene.member()
    await scene.stable(first)
    answers: list[object] = [await pending.join(), await scene.state()]
    joining = asyncio.create_task(first.join())
    await scene.until("PreparingRebalance", 1)
    answers += [await scene.describe(), await pending.leave(), await joining]
    return answers


async def administration(scene: Scene) -> list[object]:
    it, outside = await scene.member(), await scene.member()
    unknown = scene.group_id + "-unknown"
    answers: list[object] = [
        await scene.delete(),
        await scene.delete_offsets((scene.topic, 0)),
        await outside.commit(5),
        await scene.describe(),
    ]
    answers += [
        await scene.listed(states=states)
        for states in ([], ["Empty"], ["stable", "EMPTY"], ["Dead"])
    ]
    answers += [
        await scene.listed(types=types)
        for types in (["classic"], ["Consumer"], ["CLASSIC", "consumer"])
    ]
    answers += [
        await scene.delete_offsets((scene.topic, 0), (scene.topic, 9), ("unknown", 0)),
        await scene.offsets(),
    ]
    answers += [await outside.commit(6), await outside.commit(7, partition=1)]
    await scene.stable(it)
    answers += [
        await scene.delete(scene.group_id, unknown),
        await scene.delete_offsets((scene.topic, 0), (scene.topic, 9), ("unknown", 0)),
    ]
    await it.again(it.join_twice, protocols=[("range", subscription("other"))])
    answers += [
        await scene.delete_offsets((scene.topic, 0)),
        await scene.offsets(),
        await it.leave(),
    ]
    answers += [
        await scene.delete(version=0),
        await scene.describe(),
        await scene.listed(),
        await scene.offsets(),
        await scene.delete(version=1),
    ]
    worker = await scene.member(protocol_type="connect", protocols=[("default", b"x")])
    await scene.stable(worker)
    answers += [
        await scene.describe(),
        await scene.delete_offsets((scene.topic, 0)),
        await scene.listed(),
        await worker.leave(),
    ]
    answers += [await scene.delete_offsets((scene.topic, 0)), await scene.delete()]
    return answers


async def internal_topics(scene: Scene) -> list[object]:
    """Kafka's internal topics are listed after a coordinator was looked for, and clients can't
    write to them.
    """
    client = scene.client
    for kind in (GROUP, TRANSACTION):
        asked = FindCoordinatorRequest(key=scene.group_id, key_type=kind)
        await ask_until(lambda found: not found.error_code, partial(client.call, asked, 2))
    listed = await client.call(MetadataRequest(topics=None), 12)
    answers: list[object] = [
        sorted((topic.name, topic.is_internal) for topic in listed.topics if topic.name in INTERNAL)
    ]
    # Not of __share_group_state: share groups of other tests may have made it.
    for name in (*INTERNAL, "__other", scene.topic):
        (found,) = (
            await client.call(
                MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=False),
                12,
            )
        ).topics
        (described,) = (
            await client.call(DescribeTopicPartitionsRequest([TopicRequest(name)]), 0)
        ).topics
        answers += [
            (
                name,
                found.error_code,
                found.is_internal,
                bool(found.partitions),
                described.error_code,
                described.is_internal,
            )
        ]
        configs = (
            (await client.call(DescribeConfigsRequest([DescribeConfigsResource(TOPIC, name)]), 4))
            .results[0]
            .configs
        )
        answers += [
            sorted((each.name, each.value) for each in configs if each.config_source == OF_TOPIC)
        ]
        answers += [(await client.produce(name, make_batch([b"x"]))).error_code]
    return answers


GROUP, TRANSACTION = 0, 1
INTERNAL = ("__consumer_offsets", "__transaction_state")
TOPIC, OF_TOPIC = 2, 1

EXCHANGES: list[Exchange] = [
    internal_topics,
    one_member,
    a_second_member,
    a_third_member_while_the_leader_works,
    versions,
    what_is_refused,
    protocols,
    static_members,
    static_follower,
    silent_in_a_rebalance,
    silent_before_the_assignment,
    leaving,
    a_pending_member_is_waited_for,
    administration,
]


@pytest.fixture
async def addresses(kafka: str) -> AsyncIterator[tuple[str, str]]:
    async with EmbeddedCluster() as embedded:
        yield kafka, embedded.bootstrap_servers


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.__name__)
async def test_both_brokers_say_the_same(addresses: tuple[str, str], exchange: Exchange) -> None:
    unique = f"{exchange.__name__}-{uuid.uuid4().hex}"
    answers: list[list[object]] = []
    for address in addresses:
        await create_topics_with_leaders(address, CreatableTopic(unique, 2, 1))
        async with open_scene(address, unique, unique) as scene:
            answers.append(await exchange(scene))
    real, embedded = answers
    assert embedded == real
