"""The calls of the application: one task at a time."""

from __future__ import annotations

import asyncio

from aioprod.arguments import check_max_records, check_timeout_ms, check_topics
from aioprod.cluster.runtime import ClientRuntime
from aioprod.config.share_consumer import ShareConsumerConfig
from aioprod.consumer.calls.guard import CallGuard
from aioprod.consumer.notifier import Notifier
from aioprod.consumer.problems import Problems
from aioprod.consumer.share.buffer import ShareBuffer
from aioprod.consumer.share.fetcher import ShareFetcher
from aioprod.consumer.share.in_hand import RecordsInHand
from aioprod.consumer.share.member import ShareMember
from aioprod.consumer.share.outcomes import Outcomes
from aioprod.consumer.share.reporting import ShareReporter
from aioprod.errors import ConsumerStateError, KafkaError, KafkaTimeoutError
from aioprod.preparation import NotPrepared
from aioprod.types import ShareRecord, TopicPartition

# A call that waits polls at least this often, and several times per max_poll_interval_ms: it must
# not count as an application that has stopped polling.
_POLL_EACH_S = 5.0
_POLLS_PER_LIMIT = 3


class ShareCalls:
    """See :class:`aioprod.ShareConsumer`."""

    def __init__(
        self,
        config: ShareConsumerConfig,
        guard: CallGuard,
        runtime: ClientRuntime,
        member: ShareMember,
        fetcher: ShareFetcher,
        buffer: ShareBuffer,
        in_hand: RecordsInHand,
        outcomes: Outcomes,
        problems: Problems,
        notifier: Notifier,
        reporter: ShareReporter,
    ) -> None:
        self._config = config
        self._guard = guard
        self._runtime = runtime
        self._member = member
        self._fetcher = fetcher
        self._buffer = buffer
        self._in_hand = in_hand
        self._outcomes = outcomes
        self._problems = problems
        self._notifier = notifier
        self._reporter = reporter
        self._turn_s = min(_POLL_EACH_S, config.max_poll_interval_ms / 1000 / _POLLS_PER_LIMIT)

    def subscribe(self, topics: object) -> None:
        """Take part in these topics, in place of earlier ones."""
        names = frozenset(check_topics(topics))
        with self._guard.call():
            self._subscribe(names)
            if self._runtime.started:
                for name in names:
                    self._runtime.metadata.touch(name)

    async def unsubscribe(self) -> None:
        """Leave the group, and release what the application has not got."""
        async with self._guard.waiting_call():
            self._subscribe(frozenset())
            await self._member.leave()

    def _subscribe(self, topics: frozenset[str]) -> None:
        self._member.subscribe(topics)
        self._fetcher.subscribe(topics)
        self._reporter.subscribed(topics)
        self._problems.keep(lambda what: not isinstance(what, str) or what in topics)

    def acknowledge(self, record: object, kind: object) -> None:
        """Acknowledge a record; any task may do that."""
        self._guard.check_open()
        self._in_hand.acknowledge(record, kind)

    async def next(self) -> ShareRecord:
        """Return the next record; wait for it without a limit."""
        async with self._guard.waiting_call():
            (record,) = await self._poll(1, None, True)
            return record

    async def getmany(
        self, max_records: int | None, timeout_ms: float | None, fetch: bool
    ) -> list[ShareRecord]:
        """Return the next records; wait only if there are none."""
        most = self._config.max_poll_records if max_records is None else max_records
        check_max_records(most)
        check_timeout_ms(timeout_ms)
        async with self._guard.waiting_call():
            return await self._poll(most, timeout_ms, fetch)

    async def commit(self, timeout_ms: float | None) -> dict[TopicPartition, KafkaError | None]:
        """Send all acknowledgements, and wait for their outcomes."""
        check_timeout_ms(timeout_ms)
        async with self._guard.waiting_call():
            deadline = self._guard.deadline(timeout_ms)
            self._in_hand.accept_all()
            self._fetcher.flush()
            while not self._fetcher.settled:
                if not await self._notifier.wait(deadline):
                    raise self._unconfirmed(timeout_ms)
                self._guard.check_open()
            # Also of those that were sent before: a call that tells less would hide failures.
            return self._outcomes.take()

    def _unconfirmed(self, timeout_ms: float | None) -> KafkaTimeoutError:
        limit_ms = self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        latest = self._problems.latest
        why = f"; the last problem: {latest[0]}" if latest is not None else ""
        return KafkaTimeoutError(
            f"acknowledgements not confirmed within timeout_ms={limit_ms:g}{why}"
        )

    async def _poll(self, most: int, timeout_ms: float | None, fetch: bool) -> list[ShareRecord]:
        loop = asyncio.get_running_loop()
        deadline = None if timeout_ms is None else loop.time() + timeout_ms / 1000
        self._in_hand.settle()
        try:
            while True:
                # Nothing is awaited between here and the wait for news, so that no error is missed,
                # and none behind ``take``: a cancellation would lose what it returns.
                await self._notifier.let_others_run()
                self._guard.check_open()
                self._member.polled()
                self._reporter.polled(loop.time())
                try:
                    taken = self._buffer.take(most)
                    if taken:
                        return self._in_hand.add(taken)
                    waited = await self._wait(deadline, fetch)
                except NotPrepared as needed:
                    waited = await needed.prepare_by(deadline)
                if not waited:
                    return []
        finally:
            self._fetcher.want(False)

    async def _wait(self, deadline: float | None, fetch: bool) -> bool:
        """Wait for records or other news; return False if the deadline has passed."""
        if not self._member.topics:
            raise ConsumerStateError("nothing to read: give topics, or call subscribe()")
        untold = self._problems.take_untold()
        if untold is not None:
            raise untold.with_traceback(None)
        self._fetcher.want(fetch)
        loop = asyncio.get_running_loop()
        began = loop.time()
        turn = began + self._turn_s
        await self._notifier.wait(turn if deadline is None else min(deadline, turn))
        now = loop.time()
        self._reporter.waited(now - began, now)
        return deadline is None or now < deadline
