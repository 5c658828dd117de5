"""Random exchanges of static and dynamic members with the embedded and a real broker.

After each step, both brokers have answered the same requests in the same way, and the group has the
same state, members and assignments. The embedded broker goes first: the real one must answer the
same requests within a time limit, and no others before the next step.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest

from aioprod.protocol.messages.create_topics import CreatableTopic
from aioprod.testing import EmbeddedCluster
from tests.testing.new_topics import create_topics_with_leaders
from tests.testing.raw_client import LIMIT_SECONDS
from tests.testing.raw_group import RawMember, Scene, open_scene

Action = Callable[[RawMember], Coroutine[Any, Any, object]]

SEEDS = 8
KNOWN_SEED = 24  # these exchanges cover everything in MET
STEPS = 50
_MOST_PLAYERS = 4
# Nothing here depends on time.
PATIENT = {
    "session_timeout_ms": 600_000,
    "rebalance_timeout_ms": 600_000,
}
MET = [
    *(
        "FENCED_INSTANCE_ID",
        "ILLEGAL_GENERATION",
        "MEMBER_ID_REQUIRED",
        "REBALANCE_IN_PROGRESS",
        "UNKNOWN_MEMBER_ID",
    ),
    "True, 'i",  # the leader comes back, and is asked to skip the assignment
]
_GRACE_SECONDS = 0.03  # what is not answered by then waits


class Player:
    """A member of the embedded broker's group and its counterpart in the real one's."""

    def __init__(self, number: int, sides: list[RawMember]) -> None:
        self.name = f"{number}/{sides[0].instance_id}"
        self.sides = sides
        self.waiting: list[asyncio.Task[object]] = []

    @property
    def is_waiting(self) -> bool:
        return bool(self.waiting)

    @property
    def is_syncing(self) -> bool:
        return any(task.get_name().endswith(": sync") for task in self.waiting)

    def say(self, side: int, what: str, action: Action) -> None:
        """Send a request on one side, as a task that ends with the response."""
        task = asyncio.create_task(action(self.sides[side]), name=f"{self.name}: {what}")
        assert len(self.waiting) == side, "the embedded side begins"
        self.waiting.append(task)


class Exchange:
    """A random exchange with two groups, the embedded broker's first."""

    def __init__(self, seed: int, broker: EmbeddedCluster, scenes: list[Scene]) -> None:
        self.random = random.Random(seed)
        self.broker = broker
        self.scenes = scenes
        self.players: list[Player] = []
        self.old: list[Player] = []  # replaced incarnations that still send requests
        self.trace: list[str] = []
        self._made = 0

    async def step(self) -> None:
        """Send one request, or the first one of a new incarnation."""
        player, what, action = await self._choose()
        self.trace.append(f"{player.name}: {what}")
        player.say(0, what, action)
        # Each takes a turn through the embedded broker. uvloop reads sockets in its own order, so
        # that two turns do not bring what was answered to other players.
        for _ in range(4):
            found = await self.scenes[0].describe()
        answered = {each for each in self._everyone() if each.is_waiting and each.waiting[0].done()}
        player.say(1, what, action)
        if player not in answered:
            await asyncio.sleep(_GRACE_SECONDS)
        real = [each.waiting[1] for each in answered]
        if real:
            await asyncio.wait(real, timeout=LIMIT_SECONDS / 2)
        await self._compare(answered)
        assert await self._until_described(found) == found

    async def _compare(self, answered: set[Player]) -> None:
        outcomes: list[dict[str, object]] = [{}, {}]
        for each in self._everyone():
            for side, task in enumerate(each.waiting):
                if task.done():
                    outcomes[side][task.get_name()] = task.result()
        self.trace.append(f"    {outcomes[0]}")
        assert outcomes[1] == outcomes[0]
        for each in answered:
            outcome = each.waiting[0].result()
            each.waiting.clear()
            if each in self.players and "UNKNOWN_MEMBER_ID" in (
                outcome,
                outcome[0] if isinstance(outcome, tuple) else None,
            ):
                for member in each.sides:
                    member.member_id = ""  # like clients

    async def _until_described(self, wanted: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        try:
            async with asyncio.timeout(LIMIT_SECONDS / 2):
                while (found := await self.scenes[1].describe()) != wanted:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
        except TimeoutError:
            pass  # the caller compares
        return found

    def _everyone(self) -> list[Player]:
        return self.players + self.old

    # -- what is done next -------------------------------------------------------------------------

    async def _choose(self) -> tuple[Player, str, Action]:
        free = [each for each in self.players if not each.is_waiting]
        old = [each for each in self.old if not each.is_waiting]
        dice = self.random.random()
        if len(self.players) < _MOST_PLAYERS and (dice < 0.1 or not free + old):
            return await self._newcomer(self.random.choice([None, f"i{self._made}"]))
        if dice < 0.2 or not free + old:
            return await self._restart()
        if dice < 0.7 and (helpful := self._helpful(free, old)):
            return self.random.choice(helpful)
        return self._talk(self.random.choice(old if old and (dice < 0.75 or not free) else free))

    def _helpful(self, free: list[Player], old: list[Player]) -> list[tuple[Player, str, Action]]:
        """Choose a step that brings the group to its next state: most exchanges would stop in a
        rebalance.
        """
        state = self.broker.group(self.scenes[0].group_id).state
        if state == "PreparingRebalance":
            gone = [
                each for each in old if each.sides[0].instance_id is None and self._may_go(each)
            ]
            return [self._join(each) for each in free] + [self._leave(each) for each in gone]
        return [self._sync(each) for each in free] if state == "CompletingRebalance" else []

    async def _newcomer(self, instance_id: str | None) -> tuple[Player, str, Action]:
        player = Player(
            self._made,
            [await scene.member(instance_id=instance_id, **PATIENT) for scene in self.scenes],
        )
        self._made += 1
        self.players.append(player)
        return self._join(player)

    async def _restart(self) -> tuple[Player, str, Action]:
        """Start a new incarnation of a member that may still wait for a response; usually a static
        one.
        """
        static = [each for each in self.players if each.sides[0].instance_id is not None]
        before = self.random.choice(
            static if static and self.random.random() < 0.8 else self.players
        )
        self.players.remove(before)
        self.old.append(before)
        return await self._newcomer(before.sides[0].instance_id)

    def _talk(self, player: Player) -> tuple[Player, str, Action]:
        if not player.sides[0].member_id and player in self.players:
            return self._join(player)
        choices = (
            [self._join] * 5
            + [self._sync] * 6
            + [self._heartbeat] * 2
            + [self._commit, self._remove]
        )
        if self._may_go(player):
            choices += [self._leave]
        return self.random.choice(choices)(player)

    def _may_go(self, player: Player) -> bool:
        """Return whether several members could become the leader if this one leaves, because
        Kafka's choice is arbitrary.
        """
        group = self.broker.group(self.scenes[0].group_id)
        led_by = group.members.get(group.leader_id or "")
        it = player.sides[0]
        is_leader = led_by is not None and (
            led_by.member_id == it.member_id
            or (it.instance_id is not None and led_by.instance_id == it.instance_id)
        )
        return not is_leader or len(group.members) <= 2

    def _join(self, player: Player) -> tuple[Player, str, Action]:
        metadata = self.random.choice([b"a", b"a", b"a", b"b"])
        version = (
            self.random.choice([5, 8, 9, 9, 9, 9])
            if player.sides[0].instance_id is not None
            else self.random.choice([4, 9])
        )
        for side in player.sides:
            side.protocols = [("range", metadata)]
        return player, f"join version {version} {metadata!r}", lambda it: it.join(version=version)

    def _sync(self, player: Player) -> tuple[Player, str, Action]:
        return player, "sync", lambda it: it.sync(it.scene.shares if it.is_leader else {})

    def _heartbeat(self, player: Player) -> tuple[Player, str, Action]:
        if self.random.random() < 0.3:
            return (
                player,
                "late heartbeat",
                lambda it: it.again(it.heartbeat, generation_id=it.generation_id - 1),
            )
        return player, "heartbeat", RawMember.heartbeat

    def _commit(self, player: Player) -> tuple[Player, str, Action]:
        return player, "commit", lambda it: it.commit(1)

    def _leave(self, player: Player) -> tuple[Player, str, Action]:
        return player, "leave", RawMember.leave

    def _remove(self, player: Player) -> tuple[Player, str, Action]:
        """Remove a static member as an administrator; it may be waiting for the others to join.

        Kafka never answers a member that waits for its assignment then, but the embedded broker
        does.
        """
        instances = [
            each.sides[0].instance_id
            for each in self.players
            if self._may_go(each) and not each.is_syncing
        ]
        instance_id = self.random.choice(
            [*(each for each in instances if each is not None), "unknown"]
        )
        return (
            player,
            f"remove {instance_id}",
            lambda it: it.scene.remove(("", instance_id), client=it.client),
        )

    def close(self) -> None:
        """Give up the pending requests."""
        for each in self._everyone():
            for task in each.waiting:
                task.cancel()


async def run_exchange(seed: int, broker: EmbeddedCluster, kafka: str) -> str:
    """Run an exchange and return what happened."""
    unique = f"random-{seed}-{uuid.uuid4().hex}"
    async with AsyncExitStack() as stack:
        scenes = []
        for address in (broker.bootstrap_servers, kafka):
            await create_topics_with_leaders(address, CreatableTopic(unique, 2, 1))
            scenes.append(await stack.enter_async_context(open_scene(address, unique, unique)))
        exchange = Exchange(seed, broker, scenes)
        try:
            for _ in range(STEPS):
                await exchange.step()
        except AssertionError as error:
            error.add_note(f"seed {seed}\n" + "\n".join(exchange.trace))
            raise
        finally:
            exchange.close()
    return "\n".join(exchange.trace)


@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
async def test_random_exchanges_go_the_same_way(kafka: str, known: bool) -> None:
    """Some exchanges that are known to cover everything, and some new ones."""
    first_seed = KNOWN_SEED if known else random.randrange(1_000_000)
    print(f"seeds from {first_seed}")
    async with EmbeddedCluster() as broker, asyncio.TaskGroup() as group:
        running = [
            group.create_task(run_exchange(first_seed + each, broker, kafka))
            for each in range(SEEDS)
        ]
    said = "\n".join(each.result() for each in running)
    assert not known or [each for each in MET if each not in said] == []
