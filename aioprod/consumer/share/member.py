"""The membership of a share group: heartbeats, and the partitions that the coordinator assigns."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import uuid
from collections.abc import Callable

from aioprod.cluster.runtime import ClientRuntime
from aioprod.cluster.share_groups import NEEDED, pick_version
from aioprod.config.share_consumer import ShareConsumerConfig
from aioprod.consumer.group.connections import GroupConnections
from aioprod.consumer.group.epoch_heartbeats import EpochHeartbeats
from aioprod.consumer.group.error_actions import ErrorAction, GroupApi, action_for, refusal_of
from aioprod.consumer.group.poll_watch import PollWatch
from aioprod.consumer.share.member_session import MemberSession
from aioprod.consumer.share.reporting import ShareReporter
from aioprod.consumer.share.requests import SECOND_VERSION
from aioprod.error_codes import ErrorCode
from aioprod.errors import KafkaError, UnsupportedVersionError
from aioprod.net.connection import Connection
from aioprod.protocol.messages.share_fetch import ShareFetchRequest
from aioprod.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

log = logging.getLogger(__name__)

# To wait longer for the coordinator is useless: the session times out anyway.
_LEAVE_LIMIT_S = 5.0


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
        on_assigned: called when the assigned partitions change.
        on_news: called when there is an error for the application.
        on_idle: called when the member leaves because the application does not poll.

    Attributes:
        topics: the subscribed topics.
        assigned: the assigned partitions, by the ids of their topics.
    """

    def __init__(
        self,
        config: ShareConsumerConfig,
        runtime: ClientRuntime,
        member_id: str,
        reporter: ShareReporter,
        on_assigned: Callable[[], None],
        on_news: Callable[[], None],
        on_idle: Callable[[], None],
    ) -> None:
        assert config.group_id is not None
        self.topics: frozenset[str] = frozenset()
        self.assigned: frozenset[tuple[uuid.UUID, int]] = frozenset()
        self._problem: KafkaError | None = None
        self._config = config
        self._session = MemberSession(config.group_id, member_id, config.client_rack)
        self._reporter = reporter
        self._on_assigned = on_assigned
        self._on_news = on_news
        self._on_idle = on_idle
        self._connections = GroupConnections(config, config.group_id, runtime)
        self._beats = EpochHeartbeats(self._connections, self)
        self._poll_watch = PollWatch(
            config.max_poll_interval_ms / 1000,
            self._poll_overdue,
            lambda: None,
            runtime.heard_at,
        )
        self._failure: BaseException | None = None  # for the next call of the application
        self._sent_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._is_in_group = False  # the coordinator has answered
        self._leaving: asyncio.Task[None] | None = None

    @property
    def problem(self) -> KafkaError | None:
        """Why the group can't be reached or joined now; also while the coordinator is looked up."""
        return self._problem or (self._connections.trouble if self._task is not None else None)

    @property
    def rebalancing(self) -> bool:
        """Whether the member is to be in the group, and is not."""
        return bool(self.topics) and not self._is_in_group

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
        self.topics = topics
        if self._task is not None:
            self._beats.due.set()

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
            await self._tell_leaving()

    async def close(self) -> None:
        """End all tasks and connections, without a word to the coordinator."""
        self._stop_heartbeats()
        if self._leaving is not None:
            self._leaving.cancel()
        await self._connections.close()

    # -- heartbeats --------------------------------------------------------------------------------

    def _join(self) -> None:
        log.info(
            "share group %r: joining as member %s",
            self._connections.group_id,
            self._session.member_id,
        )
        self._session.begin()
        task = asyncio.get_running_loop().create_task(self._beats.run(), name="aioprod-heartbeats")
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
        self._stop_heartbeats()
        if isinstance(error, KafkaError):
            self._problem = error
        self._on_news()  # the waiting call raises the error, or joins again

    def prepare(self, connection: Connection) -> tuple[ShareGroupHeartbeatRequest, int]:
        """See :class:`aioprod.consumer.group.epoch_heartbeats.Heartbeater`."""
        version = pick_version(connection, ShareGroupHeartbeatRequest)
        fetch_version = pick_version(connection, ShareFetchRequest)
        if fetch_version < SECOND_VERSION:
            self._check_first_version(connection.address)
        self._sent_at = asyncio.get_running_loop().time()
        self._reporter.heartbeat_sent(self._sent_at)
        return self._session.request(self.topics), version

    def _check_first_version(self, address: object) -> None:
        config = self._config
        too_new = ""
        if config.share_acquire_mode == "record_limit":
            too_new = "share_acquire_mode='record_limit': Kafka 4.2 is needed (KIP-1206)"
        elif config.max_lock_renewal_ms:
            limit_ms = config.max_lock_renewal_ms
            too_new = f"max_lock_renewal_ms={limit_ms}: Kafka 4.2 is needed (KIP-1222)"
        if too_new:
            raise UnsupportedVersionError(f"{address} does not support {too_new}")

    def unanswered(self, error: KafkaError) -> None:
        """See :class:`aioprod.consumer.group.epoch_heartbeats.Heartbeater`."""
        self._problem = error
        self._session.unanswered()

    def accept(self, reply: ShareGroupHeartbeatResponse) -> ErrorAction:
        """See :class:`aioprod.consumer.group.epoch_heartbeats.Heartbeater`."""
        now = asyncio.get_running_loop().time()
        self._reporter.heartbeat_answered(now - self._sent_at, now)
        code = ErrorCode.of(reply.error_code)
        api = GroupApi.SHARE_HEARTBEAT
        action = action_for(api, code)
        if action is ErrorAction.DONE:
            self._problem = None
            self._is_in_group = True
            self._beats.set_interval(reply.heartbeat_interval_ms)
            assigned = self._session.answered(reply)
            if not self._session.knows(self.topics):
                self._beats.due.set()
            if assigned is not None and assigned != self.assigned:
                self._reporter.rebalanced()
                self._assign(assigned)
            return action
        group = f"share group {self._connections.group_id!r}"
        error: KafkaError = refusal_of(
            api, code, group, reply.error_message, self._connections.principal
        )
        if code == ErrorCode.UNSUPPORTED_VERSION:
            error = UnsupportedVersionError(
                f"{group}: {reply.error_message or code.name}: {NEEDED}"
            )
        self.unanswered(error)
        if action is ErrorAction.REFUSED:
            raise error
        return action

    def _assign(self, assigned: frozenset[tuple[uuid.UUID, int]]) -> None:
        if assigned != self.assigned:
            self.assigned = assigned
            self._on_assigned()

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
            self._tell_leaving(), name="aioprod-leave-group"
        )

    async def _tell_leaving(self) -> None:
        request = self._session.leave()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LEAVE_LIMIT_S):
                    await self._connections.ask(
                        lambda connection: (
                            request,
                            connection.pick_version(ShareGroupHeartbeatRequest),
                        )
                    )
        except KafkaError as error:
            log.info(
                "share group %r: leaving failed; its partitions wait for the session timeout: %s",
                self._connections.group_id,
                error,
            )

    def _stop_heartbeats(self) -> None:
        task, self._task = self._task, None
        self._is_in_group, self._problem = False, None
        self._poll_watch.stop()
        if task is not None:
            task.cancel()
        self._assign(frozenset())
