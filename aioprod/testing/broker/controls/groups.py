"""Consumer groups: their state, members and offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aioprod.counts import counted
from aioprod.error_codes import ErrorCode
from aioprod.errors import KafkaTimeoutError
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.groups.view import ConsumerGroup, show
from aioprod.testing.broker.store import Store
from aioprod.types import TopicPartition


class GroupControls:
    """The consumer groups of an embedded cluster."""

    def __init__(self, store: Store) -> None:
        self._groups = store.groups
        self._offsets = store.offsets
        self._topics = store.topics

    @property
    def group_ids(self) -> list[str]:
        """The ids of all groups, sorted."""
        return sorted(self._groups.groups)

    def group(self, group_id: str) -> ConsumerGroup:
        """Return a consumer group's current state, members and offsets.

        Raises:
            BrokerError: if the group does not exist (GROUP_ID_NOT_FOUND).
        """
        group = self._groups.groups.get(group_id)
        if group is None:
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        names = {topic.topic_id: name for name, topic in self._topics.items()}
        return show(group, self.committed_offsets(group_id), names)

    async def wait_for_group(
        self,
        group_id: str,
        state: str = "Stable",
        *,
        member_count: int | None = None,
        timeout_seconds: float = 10.0,
    ) -> ConsumerGroup:
        """Wait until a consumer group is in the given state, and return the group.

        Args:
            group_id: the group's id.
            state: one of the states of :class:`ConsumerGroup`.
            member_count: the number of members to wait for; None for any number.
            timeout_seconds: the longest time to wait.

        Raises:
            KafkaTimeoutError: if the group is not in that state after ``timeout_seconds``.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        while True:
            present = self._groups.groups.get(group_id)
            if (
                present is not None
                and present.state == state
                and member_count in (None, len(present.members))
            ):
                return self.group(group_id)
            remaining = deadline - loop.time()
            if remaining <= 0:
                found = (
                    "there is no such group"
                    if present is None
                    else f"it is {present.state} with {counted(len(present.members), 'member')}"
                )
                raise KafkaTimeoutError(
                    f"group {group_id!r} is not {state} after {timeout_seconds} s: {found}"
                )
            await self._groups.wait_for_change(remaining)

    def committed_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a consumer group, without those of open transactions."""
        group = self._offsets.groups.get(group_id)
        return (
            {}
            if group is None
            else {place: committed.offset for place, committed in group.committed.items()}
        )

    def expire_member(self, group_id: str, member_id: str) -> None:
        """End a member's session at once, as if it had sent no heartbeat for session.timeout.ms.

        Raises:
            BrokerError: if the group or the member does not exist.
        """
        self._groups.expire_member(group_id, member_id)

    def rebalance_group(self, group_id: str) -> None:
        """Make all members of a consumer group rejoin; with the consumer protocol, begin a new
        epoch.

        Raises:
            BrokerError: if the group has no members.
        """
        self._groups.rebalance(group_id)

    def set_group_members(
        self, group_id: str, generation_id: int, members: Mapping[str, str | None]
    ) -> None:
        """Set the members of a consumer group without clients, so that commits by other members are
        refused (KIP-447).

        Args:
            group_id: the group's id.
            generation_id: the group's generation.
            members: the group.instance.id, or None, of each member id.
        """
        self._groups.set_members(group_id, generation_id, members)
