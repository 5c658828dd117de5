"""The calls of the application: one task at a time."""

from __future__ import annotations

import asyncio

from aioprod.arguments import check_max_records, check_timeout_ms, check_topics
from aioprod.cluster.runtime import ClientRuntime
from aioprod.config.share_consumer import ShareConsumerConfig
from aioprod.consumer.calls.guard import CallGuard
from aioprod.consumer.calls.turns import PollTurns
from aioprod.consumer.notifier import Notifier
from aioprod.consumer.problems import Problems
from aioprod.consumer.share.assignment import ShareAssignment
from aioprod.consumer.share.buffer import ShareBuffer
from aioprod.consumer.share.fetcher import ShareFetcher
from aioprod.consumer.share.member import ShareMember
from aioprod.consumer.share.outcomes import Outcomes
from aioprod.consumer.share.unacknowledged import UnacknowledgedRecords
from aioprod.errors import ConsumerStateError, KafkaError, KafkaTimeoutError
from aioprod.preparation import NotPrepared
from aioprod.types import ShareRecord, TopicPartition


class TopicCalls:
    """``subscribe`` and ``unsubscribe`` of :class:`aioprod.ShareConsumer`."""

    def __init__(
        self,
        guard: CallGuard,
        runtime: ClientRuntime,
        member: ShareMember,
        assignment: ShareAssignment,
        fetcher: ShareFetcher,
    ) -> None:
        self._guard = guard
        self._runtime = runtime
        self._member = member
        self._assignment = assignment
        self._fetcher = fetcher

    def subscribe(self, topics: object) -> None:
        """Take part in these topics, in place of earlier ones."""
        names = frozenset(check_topics(topics))
        with self._guard.call():
            self._subscribe(names)
            if self._runtime.started:
                for name in names:
                    self._runtime.metadata.touch(name)

    async def unsubscribe(self) -> None:
        """Leave the group, and release the records that were not returned."""
        async with self._guard.waiting_call():
            self._subscribe(frozenset())
            await self._member.leave()

    def _subscribe(self, topics: frozenset[str]) -> None:
        self._assignment.subscribe(topics)
        self._member.topics_changed()
        self._fetcher.topics_changed()


class RecordCalls:
    """The calls of :class:`aioprod.ShareConsumer` that return records."""

    def __init__(
        self,
        config: ShareConsumerConfig,
        guard: CallGuard,
        member: ShareMember,
        assignment: ShareAssignment,
        fetcher: ShareFetcher,
        buffer: ShareBuffer,
        unacknowledged: UnacknowledgedRecords,
        turns: PollTurns,
    ) -> None:
        self._max_poll_records = config.max_poll_records
        self._guard = guard
        self._member = member
        self._assignment = assignment
        self._fetcher = fetcher
        self._buffer = buffer
        self._unacknowledged = unacknowledged
        self._turns = turns

    async def next(self) -> ShareRecord:
        """Return the next record; wait for it without a limit."""
        async with self._guard.waiting_call():
            (record,) = await self._poll(1, None, True)
            return record

    async def getmany(
        self, max_records: int | None, timeout_ms: float | None, fetch: bool
    ) -> list[ShareRecord]:
        """Return the next records; wait only if there are none."""
        most = self._max_poll_records if max_records is None else max_records
        check_max_records(most)
        check_timeout_ms(timeout_ms)
        async with self._guard.waiting_call():
            return await self._poll(most, timeout_ms, fetch)

    async def _poll(self, most: int, timeout_ms: float | None, fetch: bool) -> list[ShareRecord]:
        loop = asyncio.get_running_loop()
        deadline = None if timeout_ms is None else loop.time() + timeout_ms / 1000
        self._unacknowledged.before_next()
        try:
            while True:
                # Nothing is awaited between here and the wait for news, so that no error is missed,
                # and nothing after ``take``, because a cancellation would lose its result.
                await self._turns.begin(loop.time())
                self._guard.check_open()
                self._member.polled()
                try:
                    taken = self._buffer.take(most)
                    if taken:
                        return self._unacknowledged.add(taken)
                    waited = await self._wait(deadline, fetch)
                except NotPrepared as needed:
                    waited = await needed.prepare_by(deadline)
                if not waited:
                    return []
        finally:
            self._fetcher.want(False)

    async def _wait(self, deadline: float | None, fetch: bool) -> bool:
        """Wait for records or other news; return False if the deadline has passed."""
        if not self._assignment.topics:
            raise ConsumerStateError("nothing to read: give topics, or call subscribe()")
        self._turns.raise_problem()
        self._fetcher.want(fetch)
        return await self._turns.wait(deadline)


class AcknowledgementCalls:
    """The calls of :class:`aioprod.ShareConsumer` that acknowledge records."""

    def __init__(
        self,
        config: ShareConsumerConfig,
        guard: CallGuard,
        fetcher: ShareFetcher,
        unacknowledged: UnacknowledgedRecords,
        outcomes: Outcomes,
        problems: Problems,
        notifier: Notifier,
    ) -> None:
        self._default_timeout_ms = config.default_api_timeout_ms
        self._guard = guard
        self._fetcher = fetcher
        self._unacknowledged = unacknowledged
        self._outcomes = outcomes
        self._problems = problems
        self._notifier = notifier

    def acknowledge(self, record: object, kind: object) -> None:
        """Acknowledge a record; any task may call it."""
        self._guard.check_open()
        self._unacknowledged.acknowledge(record, kind)

    async def commit(self, timeout_ms: float | None) -> dict[TopicPartition, KafkaError | None]:
        """Send all acknowledgements, and wait for their outcomes."""
        check_timeout_ms(timeout_ms)
        async with self._guard.waiting_call():
            deadline = self._guard.deadline(timeout_ms)
            self._unacknowledged.accept_all()
            self._fetcher.flush()
            while self._fetcher.acknowledging:
                if not await self._notifier.wait(deadline):
                    raise self._unconfirmed(timeout_ms)
                self._guard.check_open()
            # Also of those that were sent before: without them, the call would hide failures.
            return self._outcomes.take()

    def _unconfirmed(self, timeout_ms: float | None) -> KafkaTimeoutError:
        limit_ms = self._default_timeout_ms if timeout_ms is None else timeout_ms
        latest = self._problems.latest
        why = f"; the last problem: {latest[0]}" if latest is not None else ""
        return KafkaTimeoutError(
            f"acknowledgements not confirmed within timeout_ms={limit_ms:g}{why}"
        )
