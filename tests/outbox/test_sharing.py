"""Several relays share the shards: each row once, in the order of its key, through take-overs."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioprod import ProducerRecord
from aioprod.outbox import Outbox, OutboxAdmin, OutboxError, OutboxRelay
from aioprod.outbox.shard import Shard
from aioprod.outbox.sharing import changes
from aioprod.outbox.steps import Lease
from aioprod.testing import EmbeddedCluster
from tests.outbox.test_relay import change_shards, nothing, relay_of, rows
from tests.waiting import until

TOPIC = "orders"
SHARDS = 4


@given(
    shards=st.integers(1, 12),
    relays=st.integers(1, 6),
    data=st.data(),
)
@settings(max_examples=200, deadline=None)
def test_relays_agree_on_equal_shares(shards: int, relays: int, data: st.DataObject) -> None:
    """From any state, with any order of their beats, all relays have as many shards, and then none
    moves.
    """
    members = [f"r{number}" for number in range(relays)]
    owners = [data.draw(st.sampled_from(["gone", *members])) for _ in range(shards)]
    leases = [Lease(number, owner, owner != "gone") for number, owner in enumerate(owners)]
    before = list(leases)
    for turn in range(3 * relays + 3):
        me = members[turn % relays]
        mine = [each.shard for each in leases if each.valid and each.owner == me]
        free, surplus = changes(me, leases, members, mine)
        for shard in surplus:
            leases[shard] = Lease(shard, me, False)
        for shard in free:
            assert not leases[shard].valid
            leases[shard] = Lease(shard, me, True)
    counts = [sum(each.valid and each.owner == me for each in leases) for me in members]
    assert sum(counts) == shards and max(counts) - min(counts) <= 1
    for me in members:
        mine = [each.shard for each in leases if each.owner == me]
        assert changes(me, leases, members, mine) == ([], [])
    had = [sum(each.valid and each.owner == me for each in before) for me in members]
    if sum(had) == shards and max(had) - min(had) <= 1:
        assert leases == before


async def fill(database: sqlite3.Connection, number: int, keys: int, first: int = 0) -> None:
    records = [
        ProducerRecord(TOPIC, b"%d" % each, b"k%d" % (each % keys))
        for each in range(first, first + number)
    ]
    with database:
        await Outbox().add_many(database, records)


def check_order(broker: EmbeddedCluster, number: int, keys: int) -> None:
    """Each row exactly once, and those of a key in their order."""
    found: dict[int, list[int]] = {key: [] for key in range(keys)}
    for record in broker.records(TOPIC, committed_only=True):
        assert record.key is not None and record.value is not None
        found[int(record.key[1:])].append(int(record.value))
    assert found == {key: list(range(key, number, keys)) for key in range(keys)}


async def test_relays_share_the_shards_and_take_over(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    broker.create_topic(TOPIC, 3)
    relays = [relay_of(path, broker, shards=SHARDS, lease_ms=1_500) for _ in range(2)]

    def shared(*counts: int) -> Callable[[], bool]:
        return lambda: tuple(len(relay._running) for relay in relays) == counts

    async with relays[1]:
        async with relays[0]:
            await until(shared(2, 2))
            await fill(database, 40, 8)
            await until(lambda: not rows(database))
            assert all(relay.records_sent for relay in relays)
            async with OutboxAdmin(path) as admin:
                backlog = await admin.backlog()
            assert {each.owner for each in backlog.shards} == {each._owner for each in relays}
        await until(shared(0, 4))
    check_order(broker, 40, 8)


async def test_the_number_of_shards_changes_when_no_relay_runs(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    broker.create_topic(TOPIC, 1)
    await fill(database, 5, 2)
    # The first relay keeps its lease on a slow machine, too.
    async with relay_of(path, broker, lease_ms=60_000) as relay:
        await until(lambda: relay.records_sent == 5)
        for other in ({"shards": 2}, {"name": "other"}):
            with pytest.raises(OutboxError, match="shards=1 run; stop them, then start this one"):
                await relay_of(path, broker, lease_ms=60_000, **other).run()
    with database:
        database.execute("UPDATE aioprod_outbox_relay SET ids = '7'")
    with pytest.raises(OutboxError, match="a batch that was not sent; run one and stop it"):
        await relay_of(path, broker, shards=2).run()
    with database:
        database.execute("UPDATE aioprod_outbox_relay SET ids = ''")
    async with relay_of(path, broker, shards=2) as relay:
        await until(lambda: len(relay._running) == 2)
    assert rows(database) == 0


async def test_a_relay_that_slept_through_a_change_of_shards_ends(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    broker.create_topic(TOPIC, 1)
    first = relay_of(path, broker)
    beat, asleep, awake = first._beat, asyncio.Event(), asyncio.Event()

    async def sleeping_beat() -> None:
        await beat()
        if first._running:
            asleep.set()
            await awake.wait()

    first._beat = sleeping_beat  # type: ignore[method-assign]
    await first.start()
    async with asyncio.timeout(10):
        await asleep.wait()
    await until(partial(_has_ended, database))
    async with relay_of(path, broker, shards=2) as second:
        await until(lambda: len(second._running) == 2)
        await fill(database, 6, 3)
        await until(lambda: second.records_sent == 6)
    awake.set()
    with pytest.raises(OutboxError, match="relays with another name or number of shards send"):
        async with asyncio.timeout(10):
            assert first._task is not None
            await first._task
    check_order(broker, 6, 3)


async def test_a_relay_that_pauses_before_it_fences_the_next_one_stops(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    """The next one has sent batches that the first one does not know."""
    broker.create_topic(TOPIC, 1)
    await fill(database, 6, 3)
    first = relay_of(path, broker)
    paused, awake = asyncio.Event(), asyncio.Event()

    def pause_before_start(shard: Shard) -> None:
        start = shard._producer.start

        async def start_later() -> None:
            paused.set()
            await awake.wait()
            await start()

        shard._producer.start = start_later  # type: ignore[method-assign]

    async def paused_beat() -> None:
        if paused.is_set():
            await awake.wait()
        await beat()

    beat, first._beat = first._beat, paused_beat  # type: ignore[method-assign]
    change_shards(first, pause_before_start)
    async with first:
        async with asyncio.timeout(10):
            await paused.wait()
        async with relay_of(path, broker, max_batch_records=2) as second:
            await until(lambda: second.records_sent == 6)
        await until(partial(_has_ended, database))
        awake.set()
        await until(lambda: _sends(first) or not first.healthy)
    check_order(broker, 6, 3)


def _sends(relay: OutboxRelay) -> bool:
    shard, _ = relay._running.get(0, (None, None))
    return shard is not None and shard._claim.epoch == 3


def _has_ended(database: sqlite3.Connection) -> bool:
    (until_ms,) = database.execute("SELECT lease_until_ms FROM aioprod_outbox_relay").fetchone()
    return bool(time.time() * 1000 > until_ms + 1)


class Schedule:
    """Relays that are started, paused, continued and killed at random places.

    Args:
        seed: makes the choices repeatable.
        path: the database.
        broker: a broker.
    """

    def __init__(self, seed: int, path: str, broker: EmbeddedCluster) -> None:
        self.random = random.Random(seed)
        self._path = path
        self._broker = broker
        self._relays: list[OutboxRelay] = []
        self._gates: dict[OutboxRelay, asyncio.Event] = {}
        self._left: list[Any] = []
        self.take_overs = 0

    def _start(self) -> None:
        relay = relay_of(self._path, self._broker, shards=SHARDS, max_batch_records=3)
        gate = self._gates[relay] = asyncio.Event()
        gate.set()

        async def behind_gate(call: Callable[..., Any], *given: Any) -> Any:
            await gate.wait()  # a paused process takes no step
            result = await call(*given)
            await gate.wait()
            return result

        def wrap(owner: Any, name: str) -> None:
            call = getattr(owner, name)
            setattr(owner, name, lambda *given: behind_gate(call, *given))

        def change(shard: Any) -> None:
            self.take_overs += 1
            wrap(shard._steps, "take")
            for name in ("start", "send", "send_offsets_to_transaction", "commit_transaction"):
                wrap(shard._producer, name)
            self._left.append(shard._producer)

        wrap(relay, "_beat")
        change_shards(relay, change)
        self._relays.append(relay)

    async def step(self) -> None:
        choice = self.random.random()
        if len(self._relays) < 3:
            self._start()
            await self._relays[-1].start()
        relay = self.random.choice(self._relays)
        if choice < 0.5:
            self._gates[relay].clear() if choice < 0.25 else self._gates[relay].set()
        elif choice < 0.7:
            await self._kill(relay)
        await asyncio.sleep(self.random.random() * 0.1)

    async def _kill(self, relay: OutboxRelay) -> None:
        """End it without any cleanup."""
        self._relays.remove(relay)
        relay._leave = nothing  # type: ignore[method-assign]
        for shard, _ in relay._running.values():
            shard._close_producer = nothing  # type: ignore[method-assign]
        assert relay._task is not None
        relay._task.cancel()
        await asyncio.wait([relay._task])

    async def end(self) -> None:
        for gate in self._gates.values():
            gate.set()
        for relay in self._relays:
            await relay.stop()
        for producer in self._left:
            await producer.close(0)


@pytest.mark.parametrize("seed", [1, 2])
async def test_random_pauses_and_kills(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection, seed: int
) -> None:
    broker.create_topic(TOPIC, 3)
    schedule = Schedule(seed, path, broker)
    number, keys = 120, 10
    try:
        await fill(database, number, keys)
        async with asyncio.timeout(60):
            while rows(database) or schedule.take_overs <= SHARDS:
                if not rows(database):  # sent by relays that no step has disturbed
                    await fill(database, keys, keys, number)
                    number += keys
                await schedule.step()
    finally:
        await schedule.end()
    check_order(broker, number, keys)
