"""The membership of a share group: when the consumer joins and leaves it, and the partitions that
the coordinator assigns.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable

from aioprod.cluster.runtime import ClientRuntime
from aioprod.config.share_consumer import ShareConsumerConfig
from aioprod.consumer.group.connections import GroupConnections
from aioprod.consumer.group.poll_watch import PollWatch
from aioprod.consumer.share.acknowledgements import PartitionKey
from aioprod.consumer.share.heartbeats import ShareHeartbeats
from aioprod.consumer.share.reporting import ShareReporter
from aioprod.errors import KafkaError
from aioprod.logs import get_logger

log = get_logger(__name__)


def new_member_id(runtime: ClientRuntime) -> str:
    """Return 16 random bytes in base 64, as in Java."""
    return base64.urlsafe_b64encode(runtime.rng.randbytes(16)).decode().rstrip("=")


class ShareMember:
    """One member of a share group.

    Args:
        config: the settings.
        runtime: opens the connections.
        member_id: the member's id for the lifetime of the consumer.
        reporter: hears of heartbeats and rebalances.
        on_assigned: called with the assigned partitions, by the ids of their topics, when they
            change.
        on_news: called when there is an error for the application.
        on_idle: called when the member leaves because the application does not poll.
    """

    def __init__(
        self,
        config: ShareConsumerConfig,
        runtime: ClientRuntime,
        member_id: str,
        reporter: ShareReporter,
        on_assigned: Callable[[frozenset[PartitionKey]], None],
        on_news: Callable[[], None],
        on_idle: Callable[[], None],
    ) -> None:
        assert config.group_id is not None
        self._config = config
        self._reporter = reporter
        self._on_assigned = on_assigned
        self._on_news = on_news
        self._on_idle = on_idle
        self._connections = GroupConnections(config, config.group_id, runtime)
        self._heartbeats = ShareHeartbeats(
            config, self._connections, member_id, reporter, self._reassigned
        )
        self._poll_watch = PollWatch(
            config.max_poll_interval_ms / 1000,
            self._poll_overdue,
            lambda: None,
            runtime.heard_at,
        )
        self._assigned: frozenset[PartitionKey] = frozenset()
        self._failure: BaseException | None = None  # for the next call of the application
        self._task: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None

    @property
    def topics(self) -> frozenset[str]:
        """The subscribed topics."""
        return self._heartbeats.topics

    @property
    def problem(self) -> KafkaError | None:
        """Why the group can't be reached or joined now; also while the coordinator is looked up."""
        trouble = self._connections.trouble if self._task is not None else None
        return self._heartbeats.problem or trouble

    @property
    def rebalancing(self) -> bool:
        """Whether the member is to be in the group, and is not."""
        return bool(self.topics) and not self._heartbeats.is_in_group

    @property
    def is_joining(self) -> bool:
        """Whether it sends heartbeats; the next poll begins that otherwise."""
        return self._task is not None

    @property
    def failure(self) -> KafkaError | None:
        """Why the membership has ended, until a call has raised it."""
        return self._failure if isinstance(self._failure, KafkaError) else None

    # -- calls of the application ------------------------------------------------------------------

    def subscribe(self, topics: frozenset[str]) -> None:
        """Take part in other topics."""
        self._heartbeats.subscribe(topics)

    def polled(self) -> None:
        """Note that the application asks for records: join, unless the member is in the group.

        Raises:
            KafkaError: if the membership has ended with an error that a retry does not solve; the
                next call joins again.
        """
        now = asyncio.get_running_loop().time()
        self._poll_watch.polled(now)
        if self._failure is not None:
            error, self._failure = self._failure, None
            raise error.with_traceback(None)
        if self._task is None and self.topics:
            self._join()

    async def leave(self) -> None:
        """Leave the group; the next poll joins again."""
        joined = self._task is not None
        self._stop_heartbeats()
        if joined:
            await self._heartbeats.leave()

    async def close(self) -> None:
        """End all tasks and connections, without a word to the coordinator."""
        self._stop_heartbeats()
        if self._leaving is not None:
            self._leaving.cancel()
        await self._connections.close()

    # -- joining -----------------------------------------------------------------------------------

    def _join(self) -> None:
        task = asyncio.get_running_loop().create_task(
            self._heartbeats.run(), name="aioprod-heartbeats"
        )
        task.add_done_callback(self._ended)
        self._task = task
        self._poll_watch.begin()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task is not self._task:
            return
        error = (
            KafkaError("the consumer's heartbeat task was cancelled from outside")
            if task.cancelled()
            else task.exception()
        )
        self._failure = error
        self._stop_heartbeats(error if isinstance(error, KafkaError) else None)
        self._on_news()  # the waiting call raises the error, or joins again

    def _reassigned(self, assigned: frozenset[PartitionKey]) -> None:
        """Adopt what the coordinator has assigned."""
        if assigned != self._assigned:
            self._reporter.rebalanced()
            self._assign(assigned)

    def _assign(self, assigned: frozenset[PartitionKey]) -> None:
        if assigned != self._assigned:
            self._assigned = assigned
            self._on_assigned(assigned)

    # -- leaving -----------------------------------------------------------------------------------

    def _poll_overdue(self) -> None:
        if self._task is None:
            return
        log.warning(
            "share group %r: no poll for max_poll_interval_ms=%s; the consumer leaves the group. "
            "Process fewer records between polls (max_poll_records), or increase "
            "max_poll_interval_ms",
            self._connections.group_id,
            self._config.max_poll_interval_ms,
        )
        self._stop_heartbeats()
        self._on_idle()
        self._leaving = asyncio.get_running_loop().create_task(
            self._heartbeats.leave(), name="aioprod-leave-group"
        )

    def _stop_heartbeats(self, error: KafkaError | None = None) -> None:
        task, self._task = self._task, None
        self._heartbeats.stopped(error)
        self._poll_watch.stop()
        if task is not None:
            task.cancel()
        self._assign(frozenset())
