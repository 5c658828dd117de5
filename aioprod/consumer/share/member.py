"""The membership of a share group: when the consumer joins and leaves it, its heartbeats, and the
partitions that the coordinator assigns.
"""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import Callable

from aioprod.cluster.metadata import check_topic_ids
from aioprod.cluster.runtime import ClientRuntime
from aioprod.cluster.share_groups import NEEDED, pick_version
from aioprod.config.share_consumer import ShareConsumerConfig
from aioprod.consumer.group.connections import GroupConnections
from aioprod.consumer.group.epoch_heartbeats import EpochHeartbeats
from aioprod.consumer.group.error_actions import ErrorAction, GroupApi, action_for, refusal_of
from aioprod.consumer.group.leaving import send_leave
from aioprod.consumer.group.poll_watch import PollWatch
from aioprod.consumer.share.acknowledgements import PartitionKey
from aioprod.consumer.share.assignment import ShareAssignment
from aioprod.consumer.share.reporting import ShareReporter
from aioprod.consumer.share.requests import SECOND_VERSION
from aioprod.error_codes import ErrorCode
from aioprod.errors import KafkaError, UnsupportedVersionError
from aioprod.foreign_text import reason_of
from aioprod.logs import Logger, get_logger
from aioprod.net.connection import Connection
from aioprod.protocol.messages.share_fetch import ShareFetchRequest
from aioprod.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from aioprod.running_loop import start_task

log: Logger = get_logger(__name__)

_JOIN_EPOCH = 0
_LEAVE_EPOCH = -1


def new_member_id(runtime: ClientRuntime) -> str:
    """Return 16 random bytes in base 64, as in Java."""
    return base64.urlsafe_b64encode(runtime.rng.randbytes(16)).decode().rstrip("=")


class HeartbeatFields:
    """The fields of the next heartbeat: only those that have changed since the last one that the
    coordinator has answered.

    Args:
        group_id: the group.
        member_id: the member's id for the lifetime of the consumer.
        rack: the rack of the member, if any.

    Attributes:
        member_id: the same.
    """

    def __init__(self, group_id: str, member_id: str, rack: str) -> None:
        self.member_id = member_id
        self._group_id = group_id
        self._rack = rack
        self._epoch = _JOIN_EPOCH
        self._known: frozenset[str] | None = None  # the topics that the coordinator knows
        self._sent: frozenset[str] = frozenset()

    def begin(self) -> None:
        """Join with the next heartbeat."""
        self._epoch, self._known = _JOIN_EPOCH, None

    def request(self, topics: frozenset[str]) -> ShareGroupHeartbeatRequest:
        """Return the next heartbeat."""
        self._sent = topics
        joining = self._epoch == _JOIN_EPOCH
        return ShareGroupHeartbeatRequest(
            self._group_id,
            self.member_id,
            self._epoch,
            self._rack or None if joining else None,
            sorted(topics) if joining or self._known != topics else None,
        )

    def leave(self) -> ShareGroupHeartbeatRequest:
        """Return the heartbeat that leaves the group."""
        return ShareGroupHeartbeatRequest(self._group_id, self.member_id, _LEAVE_EPOCH)

    def answered(
        self, reply: ShareGroupHeartbeatResponse
    ) -> frozenset[tuple[uuid.UUID, int]] | None:
        """Handle the response to the last heartbeat; return the assigned partitions if it has
        them.
        """
        self._known, self._epoch = self._sent, reply.member_epoch
        if reply.assignment is None:
            return None
        return frozenset(
            (each.topic_id, number)
            for each in reply.assignment.topic_partitions
            for number in each.partitions
        )

    def unanswered(self) -> None:
        """Send the topics again: the coordinator may have missed the last heartbeat."""
        self._known = None

    def knows(self, topics: frozenset[str]) -> bool:
        """Return True if the coordinator knows that these are subscribed."""
        return self._known == topics


class ShareMember:
    """One member of a share group. Implements
    :class:`aioprod.consumer.group.epoch_heartbeats.Heartbeater`.

    Args:
        config: the settings.
        runtime: opens the connections.
        member_id: the member's id for the lifetime of the consumer.
        reporter: counts polls, heartbeats and rebalances.
        assignment: has the subscribed topics.
        on_assigned: called with the assigned partitions, by the ids of their topics, when they
            change.
        on_news: called when there is an error for the application.
        on_idle: called when the member leaves because the application does not poll.

    Attributes:
        is_in_group: True if the coordinator has answered since the member began to join.
    """

    def __init__(
        self,
        config: ShareConsumerConfig,
        runtime: ClientRuntime,
        member_id: str,
        reporter: ShareReporter,
        assignment: ShareAssignment,
        on_assigned: Callable[[frozenset[PartitionKey]], None],
        on_news: Callable[[], None],
        on_idle: Callable[[], None],
    ) -> None:
        assert config.group_id is not None
        self.is_in_group: bool = False
        self._config = config
        self._reporter = reporter
        self._assignment = assignment
        self._on_assigned = on_assigned
        self._on_news = on_news
        self._on_idle = on_idle
        self._connections = GroupConnections(config, config.group_id, runtime)
        self._fields = HeartbeatFields(config.group_id, member_id, config.client_rack)
        self._heartbeats = EpochHeartbeats(self._connections, self)
        self._poll_watch = PollWatch(
            config.max_poll_interval_ms / 1000,
            self._poll_overdue,
            lambda: None,
            runtime.last_reply_at,
        )
        self._assigned: frozenset[PartitionKey] = frozenset()
        self._failure: BaseException | None = None  # for the next call of the application
        self._unanswered: KafkaError | None = None  # why the last heartbeat has failed
        self._task: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._sent_at = 0.0

    @property
    def problem(self) -> KafkaError | None:
        """The reason why the group can't be reached or joined now, even while the coordinator is
        looked up.
        """
        trouble = self._connections.trouble if self._task is not None else None
        return self._unanswered or trouble

    @property
    def rebalancing(self) -> bool:
        """True if the member is not in the group, and topics are subscribed."""
        return bool(self._assignment.topics) and not self.is_in_group

    @property
    def is_joining(self) -> bool:
        """True if it sends heartbeats; otherwise the next poll begins that."""
        return self._task is not None

    @property
    def failure(self) -> KafkaError | None:
        """The reason why the membership has ended, until a call has raised it."""
        return self._failure if isinstance(self._failure, KafkaError) else None

    # -- calls of the application ------------------------------------------------------------------

    def topics_changed(self) -> None:
        """Report the subscribed topics to the coordinator."""
        self._heartbeats.due.set()

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
        if self._task is None and self._assignment.topics:
            self._join()
        self._reporter.polled(now)

    async def leave(self) -> None:
        """Leave the group; the next poll joins again."""
        joined = self._task is not None
        self._stop_heartbeats()
        if joined:
            await self._send_leave()

    async def close(self) -> None:
        """End all tasks and connections, without a request to the coordinator."""
        self._stop_heartbeats()
        if self._leaving is not None:
            self._leaving.cancel()
        await self._connections.close()

    # -- joining -----------------------------------------------------------------------------------

    def _join(self) -> None:
        task = start_task(self._send_heartbeats(), name="aioprod-heartbeats")
        task.add_done_callback(self._ended)
        self._task = task
        self._poll_watch.begin()

    async def _send_heartbeats(self) -> None:
        """Join, and send heartbeats until the coordinator has removed the member. Raise errors that
        a retry does not solve.
        """
        log.info(
            "%s: share group %r: joining as member %s",
            self._config.client_id,
            self._connections.group_id,
            self._fields.member_id,
        )
        self._fields.begin()
        await self._heartbeats.run()

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

    def _assign(self, assigned: frozenset[PartitionKey]) -> None:
        if assigned != self._assigned:
            self._assigned = assigned
            self._on_assigned(assigned)

    # -- as Heartbeater ----------------------------------------------------------------------------

    def prepare(self, connection: Connection) -> tuple[ShareGroupHeartbeatRequest, int]:
        """See :class:`aioprod.consumer.group.epoch_heartbeats.Heartbeater`."""
        version = pick_version(connection, ShareGroupHeartbeatRequest)
        fetch_version = pick_version(connection, ShareFetchRequest)
        check_topic_ids(connection, "share groups")
        if fetch_version < SECOND_VERSION:
            self._check_first_version(connection.address)
        self._sent_at = asyncio.get_running_loop().time()
        self._reporter.heartbeat_sent(self._sent_at)
        return self._fields.request(self._assignment.topics), version

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
        self._unanswered = error
        self._fields.unanswered()

    def accept(self, reply: ShareGroupHeartbeatResponse) -> ErrorAction:
        """See :class:`aioprod.consumer.group.epoch_heartbeats.Heartbeater`."""
        now = asyncio.get_running_loop().time()
        self._reporter.heartbeat_answered(now - self._sent_at, now)
        code = ErrorCode.of(reply.error_code)
        api = GroupApi.SHARE_HEARTBEAT
        action = action_for(api, code)
        if action is ErrorAction.DONE:
            self._adopt(reply)
            return action
        group = f"share group {self._connections.group_id!r}"
        error: KafkaError = refusal_of(
            api, code, group, reply.error_message, self._connections.principal
        )
        if code == ErrorCode.UNSUPPORTED_VERSION:
            error = UnsupportedVersionError(
                f"{group}: {reason_of(reply.error_message) or code.name}: {NEEDED}"
            )
        self.unanswered(error)
        if action is ErrorAction.REFUSED:
            raise error
        return action

    def _adopt(self, reply: ShareGroupHeartbeatResponse) -> None:
        """Handle a response without an error."""
        self._unanswered = None
        self.is_in_group = True
        self._heartbeats.set_interval(reply.heartbeat_interval_ms)
        assigned = self._fields.answered(reply)
        if not self._fields.knows(self._assignment.topics):
            self._heartbeats.due.set()
        if assigned is not None and assigned != self._assigned:
            self._reporter.rebalanced()
            self._assign(assigned)

    # -- leaving -----------------------------------------------------------------------------------

    def _poll_overdue(self) -> None:
        if self._task is None:
            return
        log.warning(
            "%s: share group %r: no poll for max_poll_interval_ms=%s; the consumer leaves the "
            "group. Process fewer records between polls (max_poll_records), or increase "
            "max_poll_interval_ms",
            self._config.client_id,
            self._connections.group_id,
            self._config.max_poll_interval_ms,
        )
        self._stop_heartbeats()
        self._on_idle()
        self._leaving = start_task(self._send_leave(), name="aioprod-leave-group")

    async def _send_leave(self) -> None:
        """Send the heartbeat that leaves the group, within 5 seconds. A failure is logged."""
        last = self._fields.leave()
        await send_leave(
            self._connections,
            GroupApi.SHARE_HEARTBEAT,
            lambda connection: (last, connection.pick_version(ShareGroupHeartbeatRequest)),
            f"share group {self._connections.group_id!r}",
        )

    def _stop_heartbeats(self, error: KafkaError | None = None) -> None:
        task, self._task = self._task, None
        self.is_in_group, self._unanswered = False, error
        self._poll_watch.stop()
        if task is not None:
            task.cancel()
        self._assign(frozenset())
