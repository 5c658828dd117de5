"""Commits positions automatically: at intervals, and before partitions are revoked
(``enable.auto.commit``).
"""

import asyncio
from collections.abc import Collection
from typing import NamedTuple

from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.group.offsets import GroupOffsets, Offsets
from aioprod.consumer.subscription import SubscriptionState
from aioprod.errors import (
    BrokerError,
    CommitFailedError,
    KafkaError,
    KafkaTimeoutError,
    RebalanceInProgressError,
)
from aioprod.logs import Logger, get_logger
from aioprod.running_loop import start_task
from aioprod.types import TopicPartition

log: Logger = get_logger(__name__)


class _LastCommit(NamedTuple):
    """A commit of partitions that are about to be revoked."""

    task: asyncio.Task[None]
    offsets: Offsets


class AutoCommit:
    """Commits the positions in the subscription.

    A record counts as consumed when the application asks for the next one. Callers update the
    positions before each call.
    """

    def __init__(
        self, config: ConsumerConfig, subscription: SubscriptionState, offsets: GroupOffsets
    ) -> None:
        self.enabled: bool = config.enable_auto_commit
        self._client_id = config.client_id
        self._interval_s = config.auto_commit_interval_ms / 1000
        self._retry_s = config.retry_backoff_ms / 1000
        self._limit_s = config.default_api_timeout_ms / 1000
        self._subscription = subscription
        self._offsets = offsets
        self._next_at: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._last: _LastCommit | None = None

    def reset(self, now: float) -> None:
        """Start a new interval, after a new assignment."""
        self._next_at = now + self._interval_s

    def maybe_commit(self, now: float) -> None:
        """Start a commit if the interval has passed."""
        if not self.enabled:
            return
        if self._next_at is None:
            self.reset(now)
        elif now >= self._next_at and (self._task is None or self._task.done()):
            self.reset(now)
            if offsets := self._subscription.consumed():
                self._task = start_task(
                    self._commit(offsets, now + self._limit_s), name="aioprod-auto-commit"
                )

    async def commit_before_giving_up(
        self, partitions: Collection[TopicPartition], deadline: float, limit_s: float
    ) -> bool:
        """Commit the positions of partitions that are about to be revoked. Return whether the
        commit has ended by ``deadline``, with or without success.

        If it has not ended, call again: the commit continues, for ``limit_s`` in all.
        """
        if not self.enabled:
            return True
        loop = asyncio.get_running_loop()
        while offsets := self._subscription.consumed(partitions):
            # The commit of an earlier call may be of other partitions.
            if self._last is None or (
                self._last.task.done() and not offsets.items() <= self._last.offsets.items()
            ):
                commit = self._commit(offsets, loop.time() + limit_s)
                task = start_task(commit, name="aioprod-last-auto-commit")
                self._last = _LastCommit(task, offsets)
            await asyncio.wait([self._last.task], timeout=max(0.0, deadline - loop.time()))
            if not self._last.task.done():
                return False
            if offsets.items() <= self._last.offsets.items():
                self._last = None
                break
        return True

    async def close(self) -> None:
        """Cancel commits in flight."""
        last, self._last = self._last, None
        tasks = [task for task in (self._task, last.task if last else None) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1)

    async def _commit(self, offsets: Offsets, deadline: float) -> None:
        try:
            await self._offsets.commit(offsets, deadline)
        except (CommitFailedError, RebalanceInProgressError) as error:
            who = self._client_id
            log.info("%s: auto-commit skipped; records may be read again: %s", who, error)
        except KafkaError as error:
            who = self._client_id
            log.warning("%s: auto-commit failed; records may be read again: %s", who, error)
            retriable = isinstance(error, KafkaTimeoutError) or (
                isinstance(error, BrokerError) and error.code.retriable
            )
            if retriable and self._next_at is not None:
                self._next_at = min(
                    self._next_at, asyncio.get_running_loop().time() + self._retry_s
                )
