"""The turns of a call that waits for records, of consumers and share consumers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.notifier import Notifier
from aioprod.consumer.problems import Problems
from aioprod.consumer.reporting import ReadingReporter
from aioprod.errors import KafkaError

if TYPE_CHECKING:
    from aioprod.config.share_consumer import ShareConsumerConfig

# A call that waits polls at least this often, and several times per max_poll_interval_ms: it must
# not count as an application that has stopped polling.
_POLL_EACH_S = 5.0
_POLLS_PER_LIMIT = 3


class PollTurns:
    """The turns of a call for records: each is one poll, and a wait for news that ends in time for
    the next poll.

    Args:
        config: has the longest time between polls.
        notifier: ends the wait.
        problems: has the errors to raise before a wait.
        reporter: counts the time of waits.
    """

    def __init__(
        self,
        config: ConsumerConfig | ShareConsumerConfig,
        notifier: Notifier,
        problems: Problems,
        reporter: ReadingReporter[Any],
    ) -> None:
        self._turn_s = _turn_s(config)
        self._notifier = notifier
        self._problems = problems
        self._reporter = reporter

    async def begin(self, now: float) -> None:
        """Let other tasks run from time to time."""
        await self._notifier.let_others_run(now)

    def raise_problem(self) -> None:
        """Raise the first error of background work that was not raised yet, if any."""
        problem = self._problems.take_unreported()
        if problem is not None:
            raise problem.with_traceback(None)

    async def wait(self, deadline: float | None) -> bool:
        """Wait for news; return False if the deadline had passed before."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        if deadline is not None and began >= deadline:
            self._reporter.waited(0.0, began)
            return False
        turn = began + self._turn_s
        until = turn if deadline is None or turn < deadline else deadline
        await self._notifier.wait_until(until, loop)
        now = self._notifier.resumed_at
        self._reporter.waited(now - began, now)
        return True

    @property
    def problem(self) -> KafkaError | None:
        """The last error of background work that is not over, if any."""
        latest = self._problems.latest
        return None if latest is None else latest[0]


def _turn_s(config: ConsumerConfig | ShareConsumerConfig) -> float:
    """Return after how many seconds a call that waits does the group's work again: it counts as
    polling, and commits what the application has processed.
    """
    limits = [_POLL_EACH_S, config.max_poll_interval_ms / 1000 / _POLLS_PER_LIMIT]
    if isinstance(config, ConsumerConfig) and config.enable_auto_commit:
        limits.append(max(config.auto_commit_interval_ms, 1) / 1000)
    return min(limits)
