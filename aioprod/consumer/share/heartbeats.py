"""The heartbeats of a member of a share group: what they tell the coordinator, and what its
responses mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aioprod.cluster.metadata import check_topic_ids
from aioprod.cluster.share_groups import NEEDED, pick_version
from aioprod.config.share_consumer import ShareConsumerConfig
from aioprod.consumer.group.connections import GroupConnections
from aioprod.consumer.group.epoch_heartbeats import EpochHeartbeats
from aioprod.consumer.group.error_actions import ErrorAction, GroupApi, action_for, refusal_of
from aioprod.consumer.group.leaving import tell_leaving
from aioprod.consumer.share.acknowledgements import PartitionKey
from aioprod.consumer.share.member_session import MemberSession
from aioprod.consumer.share.reporting import ShareReporter
from aioprod.consumer.share.requests import SECOND_VERSION
from aioprod.error_codes import ErrorCode
from aioprod.errors import KafkaError, UnsupportedVersionError
from aioprod.foreign_text import reason_of
from aioprod.logs import get_logger
from aioprod.net.connection import Connection
from aioprod.protocol.messages.share_fetch import ShareFetchRequest
from aioprod.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

log = get_logger(__name__)


class ShareHeartbeats:
    """Implements :class:`aioprod.consumer.group.epoch_heartbeats.Heartbeater`.

    Args:
        config: the settings.
        connections: the way to the coordinator.
        member_id: the member's id for the lifetime of the consumer.
        reporter: hears of heartbeats.
        on_assigned: called with the partitions of each response that has them, by the ids of their
            topics.

    Attributes:
        topics: the subscribed topics.
        problem: why the last heartbeat has failed; None if it has not.
        is_in_group: whether the coordinator has answered since the member began to join.
    """

    def __init__(
        self,
        config: ShareConsumerConfig,
        connections: GroupConnections,
        member_id: str,
        reporter: ShareReporter,
        on_assigned: Callable[[frozenset[PartitionKey]], None],
    ) -> None:
        self.topics: frozenset[str] = frozenset()
        self.problem: KafkaError | None = None
        self.is_in_group = False
        self._config = config
        self._connections = connections
        self._session = MemberSession(connections.group_id, member_id, config.client_rack)
        self._reporter = reporter
        self._on_assigned = on_assigned
        self._beats = EpochHeartbeats(connections, self)
        self._sent_at = 0.0

    def subscribe(self, topics: frozenset[str]) -> None:
        """Take part in other topics."""
        self.topics = topics
        self._beats.due.set()

    async def run(self) -> None:
        """Join, and send heartbeats until the coordinator has removed the member. Raise errors that
        a retry does not solve.
        """
        log.info(
            "share group %r: joining as member %s",
            self._connections.group_id,
            self._session.member_id,
        )
        self._session.begin()
        await self._beats.run()

    def stopped(self, error: KafkaError | None = None) -> None:
        """Note that none is sent any more, and the error that is the reason, if any."""
        self.is_in_group, self.problem = False, error

    async def leave(self) -> None:
        """Send the heartbeat that leaves the group, within 5 seconds. A failure is logged."""
        last = self._session.leave()
        await tell_leaving(
            self._connections,
            GroupApi.SHARE_HEARTBEAT,
            lambda connection: (last, connection.pick_version(ShareGroupHeartbeatRequest)),
            f"share group {self._connections.group_id!r}",
        )

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
        self.problem = error
        self._session.unanswered()

    def accept(self, reply: ShareGroupHeartbeatResponse) -> ErrorAction:
        """See :class:`aioprod.consumer.group.epoch_heartbeats.Heartbeater`."""
        now = asyncio.get_running_loop().time()
        self._reporter.heartbeat_answered(now - self._sent_at, now)
        code = ErrorCode.of(reply.error_code)
        api = GroupApi.SHARE_HEARTBEAT
        action = action_for(api, code)
        if action is ErrorAction.DONE:
            self.problem = None
            self.is_in_group = True
            self._beats.set_interval(reply.heartbeat_interval_ms)
            assigned = self._session.answered(reply)
            if not self._session.knows(self.topics):
                self._beats.due.set()
            if assigned is not None:
                self._on_assigned(assigned)
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
