"""The embedded broker keeps the requests of group members as long as a real Apache Kafka broker
does.

The exchanges are about time: how long the first rebalance waits, which silent members end it, when
sessions of static members end. Times are compared in whole units: a broker may be late by almost
one, and never early.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from aioprod.protocol.messages.create_topics import CreatableTopic
from aioprod.testing import EmbeddedCluster, GroupSettings
from aioprod.testing.real_kafka import RealKafka
from tests.testing.new_topics import create_topics_with_leaders
from tests.testing.raw_group import RawMember, Scene, open_scene, subscription

UNIT_MS = 500
# Sessions and timeouts that begin before their time is taken: between two whole numbers of units.
ONE_MS, TWO_MS, THREE_MS = (int((count + 0.4) * UNIT_MS) for count in (1, 2, 3))
_EARLY_SECONDS = 0.02
_ATTEMPTS = 3
GROUPS = GroupSettings(initial_rebalance_delay_ms=UNIT_MS, min_session_timeout_ms=100)

Exchange = Callable[[Scene], Coroutine[Any, Any, list[object]]]

pytestmark = pytest.mark.kafka


async def timed(call: Coroutine[Any, Any, object]) -> tuple[object, int]:
    """Return a response, and for how many whole units the request was kept."""
    loop = asyncio.get_running_loop()
    begin = loop.time()
    answer = await call
    return answer, int((loop.time() - begin + _EARLY_SECONDS) * 1000 / UNIT_MS)


def later(call: Coroutine[Any, Any, object]) -> asyncio.Task[tuple[object, int]]:
    """Start :func:`timed` as a task."""
    return asyncio.create_task(timed(call))


async def units(count: float) -> None:
    """Let time pass. The tests compare the time itself, not a state."""
    await asyncio.sleep(count * UNIT_MS / 1000)


async def joined(member: RawMember) -> asyncio.Task[tuple[object, int]]:
    """Let a dynamic member ask for an id, and join with it in a task."""
    await member.join()
    return later(member.join())


# -- the first rebalance ---------------------------------------------------------------------------


async def alone(scene: Scene) -> list[object]:
    """A single member waits for the initial delay, but not in the next rebalance."""
    it = await scene.member()
    answers: list[object] = [
        await timed(it.join()),
        await timed(it.join()),
        await it.sync({}),
        await timed(it.join()),
    ]
    return [*answers, await it.leave(), await timed(it.join_twice()), await scene.state()]


async def another_comes_in_time(scene: Scene) -> list[object]:
    first, second = await scene.member(), await scene.member()
    joining = await joined(first)
    await units(0.5)
    other = await joined(second)
    return [await joining, await other, await scene.state()]


async def static_members_come_in_time(scene: Scene) -> list[object]:
    first, second = await scene.member(instance_id="one"), await scene.member(instance_id="two")
    joining = later(first.join())
    await scene.until("PreparingRebalance", 1)
    await units(0.5)
    return [await timed(second.join()), await joining, await scene.state()]


async def the_rebalance_timeout_ends_it(scene: Scene) -> list[object]:
    """Members keep arriving; the first rebalance lasts as long as the longest rebalance timeout."""
    first = await scene.member(instance_id="i", rebalance_timeout_ms=TWO_MS)
    joining = [later(first.join())]
    for number, pause in enumerate((0.7, 1.0)):
        await units(pause)
        other = await scene.member(instance_id=f"i{number}", rebalance_timeout_ms=TWO_MS)
        joining.append(later(other.join()))
    answers = [await each for each in joining]
    return [[kept_back for _, kept_back in answers], await scene.state()]


async def a_restart_in_the_first_rebalance(scene: Scene) -> list[object]:
    """A static member that rejoins is not new: the delay is not extended."""
    first, again = await scene.member(instance_id="one"), await scene.member(instance_id="one")
    joining = later(first.join())
    await units(0.5)
    other = later(again.join())
    return [await joining, await other, await scene.state()]


async def a_member_joins_twice_in_the_first_rebalance(scene: Scene) -> list[object]:
    first, second = await scene.member(), await scene.member()
    joining = await joined(first)
    second.member_id = first.member_id
    await units(0.5)
    other = later(second.join())
    answer = await other
    joining.cancel()
    return [answer, await scene.state()]


async def one_of_two_leaves_in_the_first_rebalance(scene: Scene) -> list[object]:
    first, second = await scene.member(instance_id="one"), await scene.member(instance_id="two")
    joining = later(first.join())
    await scene.until("PreparingRebalance", 1)
    other = later(second.join())
    await scene.until("PreparingRebalance", 2)
    answers: list[object] = [
        await timed(scene.remove(("", "two"))),
        await other,
        await scene.state(),
    ]
    return [*answers, await joining, await scene.state()]


async def all_leave_in_the_first_rebalance(scene: Scene) -> list[object]:
    first = await scene.member(instance_id="one")
    joining = later(first.join())
    await scene.until("PreparingRebalance", 1)
    answers: list[object] = [await scene.remove(("", "one")), await joining, await scene.state()]
    await units(1.3)
    return [*answers, await scene.state(), await timed(first.again(first.join_twice, member_id=""))]


async def a_pending_member_leaves_in_the_first_rebalance(scene: Scene) -> list[object]:
    first, pending = await scene.member(), await scene.member()
    joining = await joined(first)
    await scene.until("PreparingRebalance", 1)
    return [await pending.join(), await pending.leave(), await joining, await scene.state()]


async def a_pending_member_is_given_up_in_the_first_rebalance(scene: Scene) -> list[object]:
    """Its session ends before the initial delay: then all members have joined."""
    first, pending = await scene.member(), await scene.member(session_timeout_ms=150)
    joining = await joined(first)
    await scene.until("PreparingRebalance", 1)
    return [await pending.join(), await joining, await scene.state()]


async def a_pending_member_is_given_up_by_a_stable_group(scene: Scene) -> list[object]:
    """It never was a member: nothing changes for the others."""
    first, pending = await scene.member(), await scene.member(session_timeout_ms=150)
    await scene.stable(first)
    answers: list[object] = [await pending.join()]
    await units(1.5)
    return [*answers, await first.heartbeat(), await pending.join(), await scene.state()]


async def a_pending_member_is_given_up_before_the_assignment(scene: Scene) -> list[object]:
    first, pending = await scene.member(), await scene.member(session_timeout_ms=150)
    answers: list[object] = [await first.join_twice(), await pending.join()]
    await units(1.5)
    return [
        *answers,
        await first.heartbeat(),
        await first.sync({first.member_id: b"all"}),
        await pending.join(),
        await scene.state(),
    ]


async def a_pending_member_does_not_delay_the_first_rebalance(scene: Scene) -> list[object]:
    first, pending = await scene.member(), await scene.member()
    joining = await joined(first)
    return [await pending.join(), await joining, await scene.state(), await first.heartbeat()]


# -- sessions --------------------------------------------------------------------------------------


async def two_in_a_group(scene: Scene, first: RawMember, second: RawMember) -> list[object]:
    """Let two members join; the first one is the leader."""
    await scene.stable(first)
    joining = asyncio.create_task(second.join_twice())
    return [await first.until_rebalance(), await first.join(), await joining]


async def a_static_member_dies(scene: Scene) -> list[object]:
    first, second = (
        await scene.member(instance_id="one"),
        await scene.member(instance_id="two", session_timeout_ms=ONE_MS),
    )
    answers = await two_in_a_group(scene, first, second)
    await scene.synced(first, second)
    answers += [
        await timed(first.until_rebalance()),
        await scene.state(),
        await second.heartbeat(),
        await timed(first.join()),
    ]
    return [*answers, await scene.state()]


async def a_restarted_member_dies(scene: Scene) -> list[object]:
    """A restarted member has the old one's session until its first heartbeat."""
    first, second = (
        await scene.member(instance_id="one"),
        await scene.member(instance_id="two", session_timeout_ms=ONE_MS),
    )
    await two_in_a_group(scene, first, second)
    await scene.synced(first, second)
    await units(0.5)
    again = await scene.member(instance_id="two", session_timeout_ms=THREE_MS)
    answers: list[object] = [
        await timed(again.join()),
        await again.sync(),
        await second.heartbeat(),
        await timed(first.until_rebalance()),
    ]
    return [*answers, await scene.state()]


async def a_restart_before_the_assignment_was_fetched(scene: Scene) -> list[object]:
    """The old incarnation's request stays missing, so the generation ends."""
    settings = {"rebalance_timeout_ms": TWO_MS}
    first, second = (
        await scene.member(instance_id="one", **settings),
        await scene.member(instance_id="two", **settings),
    )
    answers = await two_in_a_group(scene, first, second)
    shares = {first.member_id: b"1", second.member_id: b"2"}
    answers += [await first.sync(shares), await scene.state()]
    again = await scene.member(instance_id="two", **settings)
    answers += [
        await again.join(),
        await again.sync(),
        await again.heartbeat(),
        await scene.state(),
    ]
    await units(3.5)
    return [
        *answers,
        await scene.state(),
        await first.heartbeat(),
        await again.heartbeat(),
        await second.heartbeat(),
    ]


async def a_static_member_does_not_join_again(scene: Scene) -> list[object]:
    """The rebalance waits for the rebalance timeout and continues without the member, which stays
    in the group.
    """
    settings = {"rebalance_timeout_ms": TWO_MS}
    first, second = (
        await scene.member(instance_id="one", **settings),
        await scene.member(instance_id="two", **settings),
    )
    answers = await two_in_a_group(scene, first, second)
    await scene.synced(first, second)
    answers += [
        await timed(first.join()),
        await scene.state(),
        await second.heartbeat(),
        await timed(first.sync({first.member_id: b"all"})),
    ]
    return [*answers, await scene.state(), await timed(second.join()), await second.sync()]


async def a_static_member_dies_in_a_rebalance(scene: Scene) -> list[object]:
    """Its session ends before the rebalance timeout, and so does the rebalance."""
    first, second = (
        await scene.member(instance_id="one"),
        await scene.member(instance_id="two", session_timeout_ms=ONE_MS),
    )
    answers = await two_in_a_group(scene, first, second)
    await scene.synced(first, second)
    return [*answers, await timed(first.join()), await scene.state()]


async def a_member_dies_before_the_assignment(scene: Scene) -> list[object]:
    """A follower that waits for its assignment needs no heartbeats, but the leader does."""
    first = await scene.member(instance_id="one", session_timeout_ms=ONE_MS)
    second = await scene.member(instance_id="two", session_timeout_ms=UNIT_MS)
    answers = await two_in_a_group(scene, first, second)
    return [
        *answers,
        await timed(second.sync()),
        await scene.state(),
        await timed(second.join()),
        await scene.state(),
    ]


async def the_leader_never_sends_the_assignment(scene: Scene) -> list[object]:
    settings = {"rebalance_timeout_ms": TWO_MS}
    first, second = await scene.member(**settings), await scene.member(**settings)
    answers = await two_in_a_group(scene, first, second)
    return [
        *answers,
        await timed(second.sync()),
        await scene.state(),
        await timed(second.join()),
        await scene.state(),
    ]


async def a_follower_never_fetches_its_assignment(scene: Scene) -> list[object]:
    settings = {"rebalance_timeout_ms": TWO_MS}
    first, second = await scene.member(**settings), await scene.member(**settings)
    answers = await two_in_a_group(scene, first, second)
    answers += [
        await timed(first.sync({})),
        await scene.state(),
        await timed(first.until_rebalance()),
        await scene.state(),
    ]
    return [*answers, await second.heartbeat(), await timed(first.join()), await scene.state()]


async def a_leader_restarts(scene: Scene) -> list[object]:
    """A leader restarts in each state of the group and with each kind of JoinGroup."""
    first, second = await scene.member(instance_id="one"), await scene.member(instance_id="two")
    answers = await two_in_a_group(scene, first, second)
    await scene.synced(first, second)
    for version in (5, 8, 9):
        again = await scene.member(instance_id="one")
        answers += [
            version,
            await timed(again.join(version=version)),
            await again.sync(),
            await again.heartbeat(),
            await second.heartbeat(),
        ]
        answers += [
            await first.heartbeat(),
            await first.sync(),
            await first.commit(1),
            await first.leave(),
            await scene.describe(),
        ]
        first = again
    joining_ = later(first.again(first.join_twice, protocols=[("range", subscription("other"))]))
    await scene.until("PreparingRebalance", 2)
    again = await scene.member(instance_id="one")
    other = later(again.join())
    answers += [
        await joining_,
        await scene.state(),
        await second.until_rebalance(),
        await second.join(),
        await other,
    ]
    waiting = later(second.sync())
    answers += [await scene.state()]
    last = await scene.member(instance_id="one")
    other = later(last.join())
    answers += [
        await waiting,
        await scene.state(),
        await again.heartbeat(),
        await second.join(),
        await other,
    ]
    return [*answers, await scene.describe()]


EXCHANGES: list[Exchange] = [
    alone,
    another_comes_in_time,
    static_members_come_in_time,
    the_rebalance_timeout_ends_it,
    a_restart_in_the_first_rebalance,
    a_member_joins_twice_in_the_first_rebalance,
    one_of_two_leaves_in_the_first_rebalance,
    all_leave_in_the_first_rebalance,
    a_pending_member_leaves_in_the_first_rebalance,
    a_pending_member_is_given_up_in_the_first_rebalance,
    a_pending_member_does_not_delay_the_first_rebalance,
    a_pending_member_is_given_up_by_a_stable_group,
    a_pending_member_is_given_up_before_the_assignment,
    a_static_member_dies,
    a_restarted_member_dies,
    a_restart_before_the_assignment_was_fetched,
    a_static_member_does_not_join_again,
    a_static_member_dies_in_a_rebalance,
    a_member_dies_before_the_assignment,
    the_leader_never_sends_the_assignment,
    a_follower_never_fetches_its_assignment,
    a_leader_restarts,
]


@pytest.fixture(scope="module")
def slow_kafka() -> Iterator[str]:
    """A real broker with an initial rebalance delay that allows short sessions."""
    names = {
        "group.initial.rebalance.delay.ms": GROUPS.initial_rebalance_delay_ms,
        "group.min.session.timeout.ms": GROUPS.min_session_timeout_ms,
    }
    with RealKafka(settings={name: str(value) for name, value in names.items()}) as running:
        yield running.bootstrap_servers


async def hold(exchange: Exchange, address: str, run: str) -> list[object]:
    unique = f"{exchange.__name__}-{run}"
    await create_topics_with_leaders(address, CreatableTopic(unique, 2, 1))
    async with open_scene(address, unique, unique) as scene:
        try:
            return await exchange(scene)
        except (AssertionError, TimeoutError) as error:
            return [repr(error)]


async def test_both_brokers_wait_as_long(slow_kafka: str) -> None:
    """Run all exchanges at the same time, because they mostly wait. Those that differ run again: a
    busy machine delays an answer by a unit of time, but not each time.
    """
    exchanges = list(EXCHANGES)
    async with EmbeddedCluster(groups=GROUPS) as broker:
        for _ in range(_ATTEMPTS):
            run = uuid.uuid4().hex
            addresses = (slow_kafka, broker.bootstrap_servers)
            kept_back = [
                asyncio.gather(*(hold(each, address, run) for each in exchanges))
                for address in addresses
            ]
            real, embedded = [await each for each in kept_back]
            differences = [
                (each.__name__, *pair)
                for each, *pair in zip(exchanges, real, embedded, strict=True)
                if pair[0] != pair[1]
            ]
            if not differences:
                return
            names = {name for name, *_ in differences}
            exchanges = [each for each in exchanges if each.__name__ in names]
    raise AssertionError(differences)
