"""A member of a simulated group: it polls, commits, and comes and goes as its plan says."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aioprod import Consumer, ShareConsumer
from aioprod.consumer import ConsumerStatus, RebalanceListener
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, KafkaError, KafkaTimeoutError, WakeupError
from aioprod.types import ConsumerRecord, SubscriptionPattern, TopicPartition
from tests.simulation.groups.history import (
    ASSIGNED,
    LOST,
    REVOKED,
    GroupHistory,
    MemberTrace,
)
from tests.simulation.groups.scenario import GROUP, NAMES, PATTERN, MemberPlan
from tests.simulation.history import CANCELLED, OK, error_name
from tests.simulation.member_actor import CLOSE_SLACK_SECONDS, MemberActor
from tests.simulation.run_context import RunContext

_LISTENER_COMMIT_MS = 1_000
_CALM_PAUSE_SECONDS = 0.05
_CALM_POLL_MS = 200


class GroupActor(MemberActor, RebalanceListener):
    """Runs one member.

    Attributes:
        trace: the history that the checkers judge.
        positions: where it would commit each of its partitions.
        reached: where it read last, of all partitions that it had.
    """

    def __init__(self, context: RunContext, history: GroupHistory, plan: MemberPlan) -> None:
        super().__init__(context, plan)
        self.plan = plan
        self.trace = MemberTrace(
            plan.name,
            plan.commits == "auto",
            plan.is_cooperative,
            plan.instance,
            leftovers=self.leftovers,
        )
        self.positions: dict[TopicPartition, int] = {}
        self.reached: dict[TopicPartition, int] = {}
        self.consumer: Consumer
        self._history = history
        history.members[plan.name] = self.trace
        self._callback: str | None = None
        self._resume_at: float | None = None

    # -- life --------------------------------------------------------------------------------------

    async def run(self) -> None:
        """See :meth:`MemberActor.run`."""
        await super().run()
        if self._callback is not None:
            self.leftovers.append(f"a callback ({self._callback}) has not ended")

    def _make(self) -> Consumer:
        self.consumer = Consumer(
            bootstrap_servers=self._context.bootstrap_servers,
            group_id=GROUP,
            client_id=self.plan.name,
            clock=self._context.loop.wall_clock,
            rng=self._context.loop.random(f"consumer {self.plan.name}"),
            **self.plan.settings,
        )
        return self.consumer

    async def _live(self) -> None:
        self._subscribe(self.plan.topics)
        while not self._ending.is_set():
            if await self._poll():
                return  # another member has its instance id
            await self._maybe_commit()
            self._maybe_resume()
            if self.calm:
                await self._wait(_CALM_PAUSE_SECONDS)
                continue
            if self._rng.random() < self.plan.trick_share:
                await self._trick()
            if self._rng.random() < self.plan.busy_share:
                await self._wait(self.plan.settings["max_poll_interval_ms"] / 1000 * 1.3)
            elif self.plan.pause:
                await self._wait(self._rng.uniform(0, self.plan.pause))

    def _subscribe(self, topics: Sequence[str]) -> None:
        if self.plan.subscribes == NAMES:
            self.consumer.subscribe(topics, listener=self)
            return
        regex = "|".join(topics)
        own = self.plan.subscribes == PATTERN
        pattern = re.compile(regex) if own else SubscriptionPattern(regex)
        self.consumer.subscribe(pattern=pattern, listener=self)

    async def _die(self, consumer: Consumer | ShareConsumer) -> None:
        self._history.gone(self.plan.name)
        await super()._die(consumer)

    async def _close(self, consumer: Consumer | ShareConsumer) -> None:
        # Without any time, only what can be sent at once is sent: not if it has to connect again,
        # after an error or if the connection was idle.
        reconnects = bool(self.state) or "connections_max_idle_ms" in self.plan.settings
        self.trace.hurried = not self.plan.close_timeout_ms and reconnects
        self._history.began(self.plan.name, "close")
        await super()._close(consumer)

    # -- polls -------------------------------------------------------------------------------------

    async def _poll(self) -> bool:
        """Ask for records; return whether this member is fenced."""
        plan, timeout_ms = self.plan, _CALM_POLL_MS if self.calm else self.plan.poll_timeout_ms
        self._history.began(plan.name, plan.polls)
        if not self.calm and self._rng.random() < plan.cancel_share / 4:
            self._later(self._rng.uniform(0, 0.05), self._wake)
        poll = {"getmany": self._getmany, "getone": self._getone, "iterate": self._iterate}
        # A listener may commit and wait besides.
        limit = timeout_ms / 1000 + 2 * _LISTENER_COMMIT_MS / 1000 + 1.0
        error = await self._call(plan.polls, poll[plan.polls](timeout_ms), limit)
        if isinstance(error, BrokerError) and error.code == ErrorCode.FENCED_INSTANCE_ID:
            self._history.poll_failed(self.trace, error_name(error))
            return True
        if error is not None and not isinstance(
            error, asyncio.CancelledError | WakeupError | KafkaTimeoutError
        ):
            self._history.poll_failed(self.trace, error_name(error))
        return False

    def _wake(self) -> None:
        if self.running:
            self.consumer.wakeup()

    async def _getmany(self, timeout_ms: int) -> None:
        self._take(await self.consumer.getmany(timeout_ms=timeout_ms))

    async def _getone(self, timeout_ms: int) -> None:
        self._take([await self.consumer.getone(timeout_ms=timeout_ms)])

    async def _iterate(self, timeout_ms: int) -> None:
        """Take several records by ``async for``, for a while."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                for _ in range(10):
                    record = await anext(self.consumer)
                    self._take([record])
                    self._history.began(self.plan.name, "iterate")
        except TimeoutError:
            pass

    def _take(self, found: Sequence[ConsumerRecord]) -> None:
        records = [
            (TopicPartition(each.topic, each.partition), each.offset, int(each.value or b"-1"))
            for each in found
        ]
        for tp, offset, _ in records:
            self.positions[tp] = self.reached[tp] = offset + 1
        if records:
            self._history.handed(self.plan.name, records)

    # -- commits -----------------------------------------------------------------------------------

    async def _maybe_commit(self) -> None:
        commits = self.plan.commits
        if commits == "auto" or not (self.calm or self._rng.random() < 0.4):
            return
        offsets = self._mine()
        given = None if self._rng.random() < 0.5 else offsets
        if commits == "sync":
            await self._commit(offsets, given)
            return
        number = self._history.committing(self.plan.name, offsets)
        try:
            future = self.consumer.commit_async(given)
        except KafkaError as error:
            self._history.committed(self.plan.name, number, error_name(error))
            return
        assert isinstance(future, asyncio.Future)
        future.add_done_callback(lambda done: self._committed(number, done))

    def _committed(self, number: int, done: asyncio.Future[None]) -> None:
        if self._dead:
            return
        error = None if done.cancelled() else done.exception()
        outcome = CANCELLED if done.cancelled() else OK if error is None else error_name(error)
        self._history.committed(self.plan.name, number, outcome)

    async def _commit(
        self, offsets: dict[TopicPartition, int], given: dict[TopicPartition, int] | None
    ) -> None:
        number = self._history.committing(self.plan.name, offsets)
        limit = self.plan.settings["default_api_timeout_ms"] / 1000 + 1.0
        error = await self._call("commit", self.consumer.commit(given), limit)
        self._history.committed(self.plan.name, number, OK if error is None else error_name(error))

    def _mine(self) -> dict[TopicPartition, int]:
        """The positions of the assigned partitions of which it has read something."""
        assigned = self.consumer.assignment()
        return {tp: offset for tp, offset in self.positions.items() if tp in assigned}

    # -- tricks ------------------------------------------------------------------------------------

    async def _trick(self) -> None:
        tricks: list[Callable[[], Awaitable[Any]]] = [
            self._pause,
            self._seek,
            self._ask,
            self._resubscribe,
            self._unsubscribe,
        ]
        await self._rng.choice(tricks)()

    async def _pause(self) -> None:
        """Pause a partition for a while."""
        if assigned := sorted(self.consumer.assignment()):
            self.consumer.pause(self._rng.choice(assigned))
            self._resume_at = self._context.loop.time() + self._rng.uniform(0, 2)

    def _maybe_resume(self) -> None:
        due = self._resume_at
        if due is not None and (self.calm or due <= self._context.loop.time()):
            self._resume_at = None
            self.consumer.resume(*self.consumer.paused())

    async def _seek(self) -> None:
        """Read some records again."""
        if mine := sorted(self._mine().items()):
            tp, position = self._rng.choice(mine)
            offset = self._rng.randint(max(0, position - 5), position)
            self.consumer.seek(tp, offset)
            self.positions[tp] = offset
            self._history.sought(self.plan.name, tp, offset)

    async def _ask(self) -> None:
        """Ask for a position, and for what is committed."""
        if assigned := sorted(self.consumer.assignment()):
            tp = self._rng.choice(assigned)
            limit = self.plan.settings["default_api_timeout_ms"] / 1000 + 1.0
            await self._call("position", self.consumer.position(tp), limit)
            await self._call("committed", self.consumer.committed(tp), limit)

    async def _resubscribe(self) -> None:
        topics = self._rng.choice([("t",), ("u",), self.plan.topics])
        self._history.note(f"{self.plan.name} subscribes to {' '.join(topics)}", self.plan.name)
        self._subscribe(topics)
        if self._rng.random() < 0.5:
            await self._poll()
        self._subscribe(self.plan.topics)

    async def _unsubscribe(self) -> None:
        self._history.began(self.plan.name, "unsubscribe")
        limit = self.plan.settings["default_api_timeout_ms"] / 1000 + CLOSE_SLACK_SECONDS
        await self._call("unsubscribe", self.consumer.unsubscribe(), limit)
        self._subscribe(self.plan.topics)

    # -- the listener ------------------------------------------------------------------------------

    async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        """Forget old positions."""
        for tp in partitions:
            self.positions.pop(tp, None)
        await self._reported(ASSIGNED, partitions)

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        """Commit, unless that is automatic."""
        await self._reported(REVOKED, partitions)

    async def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        """Note it."""
        await self._reported(LOST, partitions)

    async def _reported(self, kind: str, partitions: list[TopicPartition]) -> None:
        if self._dead:
            return
        reported = frozenset(partitions)
        if self._callback is not None:
            self.leftovers.append(f"{kind} while {self._callback} is running")
        self._callback = kind
        self._history.reported(
            self.plan.name,
            kind,
            reported,
            self.consumer.group_metadata().generation_id,
            self.consumer.assignment(),
        )
        try:
            if kind == REVOKED and self.plan.commits != "auto":
                await self._commit_last(reported)
            if not self.calm and self._rng.random() < 0.1:
                await asyncio.sleep(self._rng.uniform(0, 0.1))
        finally:
            self._callback = None
            if not self._dead:
                self._history.ended(self.plan.name, kind, reported)

    async def _commit_last(self, partitions: frozenset[TopicPartition]) -> None:
        offsets = {tp: at for tp, at in self._mine().items() if tp in partitions}
        number = self._history.committing(self.plan.name, offsets)
        outcome = CANCELLED
        try:
            await self.consumer.commit(timeout_ms=_LISTENER_COMMIT_MS)
            outcome = OK
        except KafkaError as error:
            outcome = error_name(error)
        finally:
            if not self._dead:
                self._history.committed(self.plan.name, number, outcome)

    @property
    def state(self) -> str:
        """Describe the consumer's problem; empty if it reads."""
        state = self.consumer.state
        return "" if state.status is ConsumerStatus.READING else f"{state.status}: {state.error!r}"
