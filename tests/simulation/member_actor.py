"""Starts, calls and ends the members of groups and of share groups."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any

from aioprod import Consumer, ShareConsumer
from aioprod.testing.simulation.hosts import HOST
from tests.simulation.member_plans import LifePlan
from tests.simulation.run_context import RunContext

# `close` waits this long for each of its last tasks, beyond its limit.
CLOSE_SLACK_SECONDS = 4.0


class MemberActor(ABC):
    """Runs one member.

    Attributes:
        calm: whether the last fault has ended: no call is cancelled any more.
        running: whether it has started and neither left nor died.
        leftovers: tasks and sockets that were left after closing.
    """

    def __init__(self, context: RunContext, life: LifePlan) -> None:
        self.calm = False
        self.running = False
        self.leftovers: list[str] = []
        self._life = life
        self._context = context
        self._rng: random.Random = context.loop.random(f"member {life.name}")
        self._ending = asyncio.Event()  # leaves or dies
        self._nudged = asyncio.Event()  # it ends, or the faults have ended
        self._dead = False
        self._own_timers: list[asyncio.TimerHandle] = []  # not the client's

    @abstractmethod
    def _make(self) -> Consumer | ShareConsumer:
        """Return the consumer."""

    @abstractmethod
    async def _live(self) -> None:
        """Work until asked to end."""

    async def run(self) -> None:
        """Start, work until asked to end, and leave or die."""
        await asyncio.sleep(self._life.after)
        consumer = self._make()
        if self._life.leaves_after is not None:
            self._later(self._life.leaves_after, self.end)
        while not (self.running or self._ending.is_set()):
            self.running = await self._call("start", consumer.start()) is None
            await self._wait(0.05)
        if self.running:
            await self._live()
        self.running = False
        if self._life.dies:
            await self._die(consumer)
        else:
            await self._close(consumer)
        for timer in self._own_timers:
            timer.cancel()
        self._look_for_leftovers(consumer)

    def calm_down(self) -> None:
        """Work without tricks from now on."""
        self.calm = True
        self._nudged.set()

    def end(self) -> None:
        """Leave."""
        self._ending.set()
        self._nudged.set()

    def _later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._own_timers.append(self._context.loop.call_later(seconds, callback))

    async def _die(self, consumer: Consumer | ShareConsumer) -> None:
        """End as a killed process, or a machine that is switched off, does."""
        self._dead = True
        network = self._context.loop.network
        if self._rng.random() < 0.5:
            network.cut(self._life.name)
        grave = network.vanish(self._life.name)
        # Nothing gets out; this only ends its tasks.
        await consumer.close(0)
        grave.heal()

    async def _close(self, consumer: Consumer | ShareConsumer) -> None:
        timeout_ms = self._life.close_timeout_ms
        limit = timeout_ms / 1000 + CLOSE_SLACK_SECONDS
        await self._context.call(
            self._life.name, "close", consumer.close(timeout_ms), limit, must_succeed=True
        )

    def _look_for_leftovers(self, consumer: Consumer | ShareConsumer) -> None:
        if isinstance(consumer, ShareConsumer):
            runtime = consumer._core.runtime
        else:
            runtime = consumer._lifecycle.runtime
        if runtime.brokers.connected:
            self.leftovers.append("connections are open")
        for _, _, handle in self._context.loop._timers:
            host = handle._context.get(HOST)  # type: ignore[attr-defined]
            # What is on its way in the network is not the client's.
            if host == self._life.name and not (handle.cancelled() or "Pipe." in repr(handle)):
                self.leftovers.append(f"a timer is left: {handle!r}")

    async def _call(
        self, name: str, work: Coroutine[Any, Any, Any], limit: float = 10.0
    ) -> BaseException | None:
        """Make a call, and perhaps cancel it; return the error that it raised."""
        cancel_after = None
        if not self.calm and self._rng.random() < self._life.cancel_share:
            cancel_after = self._rng.choice([0.0, 1e-6, 3e-6, self._rng.uniform(0, 0.3)])
        return await self._context.call(
            self._life.name, name, work, limit, cancel_after=cancel_after
        )

    async def _wait(self, seconds: float) -> None:
        """Wait, but no longer than until it ends, or until the faults have ended."""
        try:
            async with asyncio.timeout(seconds):
                await (self._ending if self.calm else self._nudged).wait()
        except TimeoutError:
            pass
