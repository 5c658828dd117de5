"""The session of a member of a share group with its coordinator. Each heartbeat has only the fields
that have changed since the last answered one.
"""

from __future__ import annotations

import uuid

from aioprod.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

_JOIN_EPOCH = 0
_LEAVE_EPOCH = -1


class MemberSession:
    """One member's session.

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
        self._told: frozenset[str] | None = None  # the topics that the coordinator knows
        self._sent: frozenset[str] = frozenset()

    def begin(self) -> None:
        """Join with the next heartbeat."""
        self._epoch, self._told = _JOIN_EPOCH, None

    def request(self, topics: frozenset[str]) -> ShareGroupHeartbeatRequest:
        """Return the next heartbeat."""
        self._sent = topics
        joining = self._epoch == _JOIN_EPOCH
        return ShareGroupHeartbeatRequest(
            self._group_id,
            self.member_id,
            self._epoch,
            self._rack or None if joining else None,
            sorted(topics) if joining or self._told != topics else None,
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
        self._told, self._epoch = self._sent, reply.member_epoch
        if reply.assignment is None:
            return None
        return frozenset(
            (each.topic_id, number)
            for each in reply.assignment.topic_partitions
            for number in each.partitions
        )

    def unanswered(self) -> None:
        """Send the topics again: the coordinator may have missed the last heartbeat."""
        self._told = None

    def knows(self, topics: frozenset[str]) -> bool:
        """Whether the coordinator knows that these are subscribed."""
        return self._told == topics
