"""The calls of the embedded broker that are about consumer groups, on its loop and from other
threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from anyio.from_thread import BlockingPortal

from aioprod.error_codes import ErrorCode
from aioprod.errors import KafkaTimeoutError
from aioprod.testing.broker.groups.view import ConsumerGroup, show
from aioprod.testing.broker.store import Store, StoreError
from aioprod.types import TopicPartition


class GroupControls:
    """Of :class:`aioprod.testing.EmbeddedCluster`."""

    _store: Store

    @property
    def group_ids(self) -> list[str]:
        """The ids of all consumer groups, sorted; also of those that only committed offsets."""
        return sorted(self._store.groups.groups)

    def group(self, group_id: str) -> ConsumerGroup:
        """A consumer group's state, members and offsets as they are now. Raises BrokerError
        (GROUP_ID_NOT_FOUND) where there is none such.
        """
        group = self._store.groups.groups.get(group_id)
        if group is None:
            raise StoreError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        return show(group, self.committed_offsets(group_id))

    async def wait_for_group(
        self,
        group_id: str,
        state: str = "Stable",
        *,
        member_count: int | None = None,
        timeout_seconds: float = 10.0,
    ) -> ConsumerGroup:
        """Return a consumer group as soon as it is in this state (see :class:`ConsumerGroup`), with
        so many members if a number is given.

        Raises KafkaTimeoutError where it is not in that time; the text tells how the group is
        instead.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        while True:
            present = self._store.groups.groups.get(group_id)
            if (
                present is not None
                and present.state == state
                and member_count in (None, len(present.members))
            ):
                return self.group(group_id)
            left = deadline - loop.time()
            if left <= 0:
                found = (
                    "there is no such group"
                    if present is None
                    else f"it is {present.state} with {len(present.members)} members"
                )
                raise KafkaTimeoutError(
                    f"group {group_id!r} is not {state} after {timeout_seconds} s: {found}"
                )
            await self._store.groups.wait_for_change(left)

    def committed_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        """The offsets that a consumer group has committed; those of open transactions are not among
        them.
        """
        group = self._store.offsets.groups.get(group_id)
        return (
            {}
            if group is None
            else {place: committed.offset for place, committed in group.committed.items()}
        )

    def expire_member(self, group_id: str, member_id: str) -> None:
        """End a member's session at once, as when it sent no heartbeat for session.timeout.ms.
        Raises BrokerError where there is none such.
        """
        self._store.groups.expire_member(group_id, member_id)

    def rebalance_group(self, group_id: str) -> None:
        """Have all members of a consumer group join again. Raises BrokerError where it has none."""
        self._store.groups.rebalance(group_id)

    def set_group_members(
        self, group_id: str, generation_id: int, members: Mapping[str, str | None]
    ) -> None:
        """Give a consumer group members (member id to group.instance.id or None) without clients,
        so that commits by others are refused (KIP-447).
        """
        self._store.groups.set_members(group_id, generation_id, members)


class ThreadedGroupControls:
    """Of :class:`aioprod.testing.ThreadedCluster`."""

    _broker: GroupControls
    _portal: BlockingPortal

    @property
    def group_ids(self) -> list[str]:
        """See :attr:`EmbeddedCluster.group_ids`."""
        return self._portal.call(lambda: self._broker.group_ids)

    def group(self, group_id: str) -> ConsumerGroup:
        """See :meth:`EmbeddedCluster.group`."""
        return self._portal.call(self._broker.group, group_id)

    def wait_for_group(
        self,
        group_id: str,
        state: str = "Stable",
        *,
        member_count: int | None = None,
        timeout_seconds: float = 10.0,
    ) -> ConsumerGroup:
        """See :meth:`EmbeddedCluster.wait_for_group`."""

        async def wait() -> ConsumerGroup:
            return await self._broker.wait_for_group(
                group_id, state, member_count=member_count, timeout_seconds=timeout_seconds
            )

        return self._portal.call(wait)

    def committed_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        """See :meth:`EmbeddedCluster.committed_offsets`."""
        return self._portal.call(self._broker.committed_offsets, group_id)

    def expire_member(self, group_id: str, member_id: str) -> None:
        """See :meth:`EmbeddedCluster.expire_member`."""
        self._portal.call(self._broker.expire_member, group_id, member_id)

    def rebalance_group(self, group_id: str) -> None:
        """See :meth:`EmbeddedCluster.rebalance_group`."""
        self._portal.call(self._broker.rebalance_group, group_id)

    def set_group_members(
        self, group_id: str, generation_id: int, members: Mapping[str, str | None]
    ) -> None:
        """See :meth:`EmbeddedCluster.set_group_members`."""
        self._portal.call(self._broker.set_group_members, group_id, generation_id, members)
