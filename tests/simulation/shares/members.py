"""A member of a simulated share group: it reads, works, acknowledges, and comes and goes as its
plan says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from aioprod import AcknowledgeType, ShareConsumer, ShareRecord, TopicPartition
from aioprod.errors import KafkaError, KafkaTimeoutError
from aioprod.testing.broker.share_groups.records import Acknowledge
from tests.simulation.history import error_name
from tests.simulation.member_actor import MemberActor
from tests.simulation.run_context import RunContext
from tests.simulation.shares.history import Handed, MemberTrace, Place, Reported, Said, ShareHistory
from tests.simulation.shares.scenario import GROUP, TOPICS, Kind, SharePlan

ACCEPT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE
REJECT, RENEW = AcknowledgeType.REJECT, AcknowledgeType.RENEW
_POLL_MS = 200
_POLL_LIMIT_SECONDS = _POLL_MS / 1000 + 1.0
_MOST_KEPT = 12
# After the last fault: the rest is to be done within a limit.
_LAST_SLOW_RECORDS = 4


class ShareActor(MemberActor):
    """Runs one member.

    Attributes:
        trace: the history that the checkers judge.
    """

    def __init__(self, context: RunContext, history: ShareHistory, plan: SharePlan) -> None:
        super().__init__(context, plan)
        self.plan = plan
        self.trace = history.members[plan.name] = MemberTrace(
            plan.name,
            explicit=plan.kind in (Kind.EXPLICIT, Kind.KEEPS),
            renews=plan.settings.get("max_lock_renewal_ms", 0) / 1000,
            dies=plan.dies,
            leftovers=self.leftovers,
        )
        self.consumer: ShareConsumer
        self._history = history
        self._kept: dict[Place, ShareRecord] = {}
        self._due: dict[Place, float] = {}  # when a record that is kept is done
        self._slow_left = _LAST_SLOW_RECORDS
        self._since_commit: dict[
            TopicPartition, str | None
        ] = {}  # what was reported to the callback

    def _make(self) -> ShareConsumer:
        self.consumer = ShareConsumer(
            bootstrap_servers=self._context.bootstrap_servers,
            topics=self.plan.topics,
            group_id=GROUP,
            client_id=self.plan.name,
            rng=self._context.loop.random(f"consumer {self.plan.name}"),
            acknowledgement_commit_callback=self._reported,
            **self.plan.settings,
        )
        return self.consumer

    async def _live(self) -> None:
        step: Callable[[], Coroutine[Any, Any, None]] = {
            Kind.ITERATES: self._iterate,
            Kind.POLLS: self._poll_and_commit,
            Kind.EXPLICIT: self._poll_and_acknowledge,
            Kind.KEEPS: self._keep,
        }[self.plan.kind]
        while not self._ending.is_set():
            if not self.calm and self._rng.random() < self.plan.resubscribe_share:
                self.consumer.subscribe([self._rng.choice(TOPICS)])
                await step()
                self.consumer.subscribe(self.plan.topics)
            await step()
            await self._wait(self._rng.uniform(0.001, 0.02))

    # -- implicit mode -----------------------------------------------------------------------------

    async def _iterate(self) -> None:
        async def take_some() -> None:
            for _ in range(10):
                self._allow()
                try:
                    async with asyncio.timeout(_POLL_MS / 1000):
                        record = await anext(self.consumer)
                except TimeoutError:
                    return
                self._take([record])
                await asyncio.sleep(self._duration())

        await self._poll(take_some(), 10 * (_POLL_MS / 1000 + 2 * self._history.lock_s))

    async def _poll_and_commit(self) -> None:
        async def take() -> None:
            self._allow()
            self._take(await self._getmany())

        await self._poll(take(), _POLL_LIMIT_SECONDS)
        if self._kept:
            await asyncio.sleep(self._duration())
        if self._rng.random() < 0.5:
            self._allow()
            await self._commit()

    def _allow(self) -> None:
        """The next call may accept what the last one has returned."""
        for place in self._kept:
            self._history.add(Said(self.plan.name, place, Acknowledge.ACCEPT))

    # -- explicit mode -----------------------------------------------------------------------------

    async def _poll_and_acknowledge(self) -> None:
        async def take() -> None:
            self._take(await self._getmany())

        await self._poll(take(), _POLL_LIMIT_SECONDS)
        for place in list(self._kept):
            await asyncio.sleep(self._duration() / 4)
            if self._rng.random() < 0.1:
                self._acknowledge(place, RENEW)
                await self._commit()
            self._acknowledge(place, self._choose())
        if self._rng.random() < 0.5:
            await self._commit()

    async def _keep(self) -> None:
        """Ask for further records, or for none, while records are unacknowledged."""
        fetch = len(self._kept) < _MOST_KEPT and self._rng.random() < 0.7

        async def take() -> None:
            self._take(await self._getmany(fetch=fetch))

        await self._poll(take(), _POLL_LIMIT_SECONDS)
        now = self._context.loop.time()
        for place in list(self._kept):
            if self._due.setdefault(place, now + 3 * self._duration()) <= now:
                self._acknowledge(place, self._choose())
        if self._rng.random() < 0.1:
            await self._commit()

    def _choose(self) -> AcknowledgeType:
        if self._rng.random() >= self.plan.refused_share:
            return ACCEPT
        return self._rng.choice([RELEASE, RELEASE, REJECT])

    def _acknowledge(self, place: Place, kind: AcknowledgeType) -> None:
        self._history.add(Said(self.plan.name, place, Acknowledge(kind)))
        try:
            self.consumer.acknowledge(self._kept[place], kind)
        except KafkaError as error:
            self.trace.failures.append(f"acknowledge: {error_name(error)}")
        if kind is not RENEW:
            del self._kept[place]
            self._due.pop(place, None)

    # -- calls -------------------------------------------------------------------------------------

    async def _getmany(self, *, fetch: bool = True) -> list[ShareRecord]:
        most = self._rng.choice([None, None, 1, 3])
        return await self.consumer.getmany(most, _POLL_MS, fetch=fetch)

    async def _poll(self, work: Coroutine[Any, Any, None], limit: float) -> None:
        error = await self._call("poll", work, limit)
        if isinstance(error, KafkaError):
            self.trace.failures.append(f"poll: {error_name(error)}")

    async def _commit(self) -> None:
        limit = self.plan.settings["default_api_timeout_ms"] / 1000 + 1.0
        error = await self._call("commit", self._compare_outcomes(), limit)
        if isinstance(error, KafkaError) and not isinstance(error, KafkaTimeoutError):
            self.trace.failures.append(f"commit: {error_name(error)}")

    async def _compare_outcomes(self) -> None:
        """Commit. It must not hide a failure that was reported to the callback."""
        outcomes = await self.consumer.commit()
        found = {tp: None if error is None else error_name(error) for tp, error in outcomes.items()}
        reported, self._since_commit = self._since_commit, {}
        if found != reported:
            self.trace.failures.append(f"commit: returned {found}, but the callback got {reported}")

    def _take(self, records: Sequence[ShareRecord]) -> None:
        """Note the records of a call. In implicit mode those of the call before are accepted."""
        if not self.trace.explicit:
            self._kept.clear()
        for record in records:
            place = record[:3]
            self._history.add(Handed(self.plan.name, place, record.delivery_count))
            self._kept[place] = record
            self._due.pop(place, None)

    def _duration(self) -> float:
        """Return how long a record takes; some about as long as a lock."""
        if self._slow_left and self._rng.random() < self.plan.slow_share:
            self._slow_left -= self.calm
            return self._history.lock_s * self._rng.uniform(0.3, 2)
        return self._rng.uniform(0, 2 * self.plan.pause)

    def _reported(
        self, offsets: Mapping[TopicPartition, frozenset[int]], error: KafkaError | None
    ) -> None:
        text = None if error is None else error_name(error)
        for tp, found in offsets.items() if not self._dead else ():
            self._since_commit[tp] = self._since_commit.get(tp) or text
            for offset in sorted(found):
                self._history.add(Reported(self.plan.name, (*tp, offset), text))
