"""``wakeup`` while a rebalance listener runs: it ends as it would, then WakeupError is raised."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from aioprod import RebalanceListener, TopicPartition
from aioprod.errors import WakeupError
from aioprod.testing import EmbeddedCluster
from tests.consumer.number_topics import TOPIC, TP, consumer_of, fill, numbers, take

LIMIT_S = 5.0
GROUP: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}
BOTH = pytest.mark.parametrize("settings", [GROUP, {}], ids=["group", "no group"])


class Slow(RebalanceListener):
    """Begins, waits until it may continue, and ends; says how."""

    def __init__(self, then: Callable[[], Awaitable[object]] | None = None) -> None:
        self.reported: list[str] = []
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.then = then

    def hold(self) -> None:
        """Wait in the next call, too."""
        self.begun.clear()
        self.go_on.clear()

    async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        await self._run("assigned")

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        await self._run("revoked")

    async def _run(self, what: str) -> None:
        self.begun.set()
        try:
            await self.go_on.wait()
            if self.then is not None:
                await self.then()
        except BaseException as error:
            self.reported.append(f"{what}: {type(error).__name__}")
            raise
        self.reported.append(what)


@pytest.fixture
async def filled(broker: EmbeddedCluster) -> AsyncIterator[EmbeddedCluster]:
    """A topic of three numbers."""
    await fill(broker, 3)
    async with asyncio.timeout(LIMIT_S):
        yield broker


async def expect_wakeup(call: Awaitable[object]) -> None:
    with pytest.raises(WakeupError):
        await call


async def turn(times: int = 5) -> None:
    """Let everything run that can."""
    for _ in range(times):
        await asyncio.sleep(0)


@BOTH
async def test_a_listener_ends_before_the_call_is_woken(
    filled: EmbeddedCluster, settings: dict[str, Any]
) -> None:
    listener = Slow()
    async with consumer_of(filled, **settings) as consumer:
        consumer.subscribe([TOPIC], listener=listener)
        call = asyncio.create_task(consumer.getmany(timeout_ms=3_000))
        await listener.begun.wait()
        consumer.wakeup()
        consumer.wakeup()
        await turn()
        assert (call.done(), listener.reported) == (False, [])
        listener.go_on.set()
        await expect_wakeup(call)
        assert listener.reported == ["assigned"]
        assert numbers(await take(consumer, 3)) == [0, 1, 2]
        assert listener.reported == ["assigned"]
    assert listener.reported == ["assigned", "revoked"]


async def test_what_a_listener_calls_is_not_woken(filled: EmbeddedCluster) -> None:
    async with consumer_of(filled, **GROUP) as consumer:
        listener = Slow(lambda: consumer.commit({TP: 2}))
        consumer.subscribe([TOPIC], listener=listener)
        call = asyncio.create_task(consumer.getmany(timeout_ms=3_000))
        await listener.begun.wait()
        consumer.wakeup()
        listener.go_on.set()
        await expect_wakeup(call)
        assert listener.reported == ["assigned"]
        assert (
            committed := (await consumer.committed(TP))[TP]
        ) is not None and committed.offset == 2


async def test_a_listener_that_begins_in_the_same_turn_is_not_broken_off(
    filled: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The waiting call that is woken has work already, which is to call the listener."""
    listener, woken = Slow(), False
    async with consumer_of(filled, **GROUP) as consumer:
        consumer.subscribe([TOPIC], listener=listener)
        calls = consumer._records
        notifier = calls._turns._notifier
        notify = notifier.notify

        def notify_twice() -> None:
            nonlocal woken
            waits = notifier._waiter is not None
            notify()
            if waits and calls._membership.needs_attention and not woken:
                woken = True
                consumer.wakeup()

        monkeypatch.setattr(notifier, "notify", notify_twice)
        call = asyncio.create_task(consumer.getmany(timeout_ms=3_000))
        await listener.begun.wait()
        assert woken
        await turn()
        assert not call.done()
        listener.go_on.set()
        await expect_wakeup(call)
        assert listener.reported == ["assigned"]
        assert numbers(await take(consumer, 3)) == [0, 1, 2]


async def test_unsubscribing_ends_before_the_call_is_woken(filled: EmbeddedCluster) -> None:
    listener = Slow()
    async with consumer_of(filled, **GROUP) as consumer:
        consumer.subscribe([TOPIC], listener=listener)
        listener.go_on.set()
        await take(consumer, 1)
        listener.hold()
        call = asyncio.create_task(consumer.unsubscribe())
        await listener.begun.wait()
        consumer.wakeup()
        listener.go_on.set()
        await expect_wakeup(call)
        assert listener.reported == ["assigned", "revoked"]
        assert not consumer.subscription()
        consumer.subscribe([TOPIC])
        assert numbers(await take(consumer, 3)) == [0, 1, 2]


async def test_a_listener_that_fails_is_informed_of_first(filled: EmbeddedCluster) -> None:
    async def break_down() -> None:
        raise ValueError("the listener's own")

    listener = Slow(break_down)
    async with consumer_of(filled, **GROUP) as consumer:
        consumer.subscribe([TOPIC], listener=listener)
        call = asyncio.create_task(consumer.getmany(timeout_ms=3_000))
        await listener.begun.wait()
        consumer.wakeup()
        listener.go_on.set()
        with pytest.raises(ValueError, match="own"):
            await call
        await expect_wakeup(consumer.getmany(timeout_ms=3_000))
        listener.then = None
        assert numbers(await take(consumer, 3)) == [0, 1, 2]


async def test_closing_is_not_woken(filled: EmbeddedCluster) -> None:
    consumer = consumer_of(filled, group_id="g")
    await consumer.start()
    listener = Slow()
    consumer.subscribe([TOPIC], listener=listener)
    listener.go_on.set()
    await take(consumer, 3)
    listener.hold()
    closing = asyncio.create_task(consumer.close())
    consumer.wakeup()
    await listener.begun.wait()
    consumer.wakeup()
    await turn()
    listener.go_on.set()
    await closing
    assert listener.reported == ["assigned", "revoked"]
    async with consumer_of(filled, **GROUP) as other:
        other.assign([TP])
        assert (committed := (await other.committed(TP))[TP]) is not None and committed.offset == 3
