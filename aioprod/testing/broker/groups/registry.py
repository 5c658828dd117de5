"""The groups of all nodes by id, their timers, and the tasks that wait for changes."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from functools import partial
from typing import TypeVar

from aioprod.earliest_timer import EarliestTimer
from aioprod.testing.broker.cluster import GROUP, NO_NODE, Cluster
from aioprod.testing.broker.epoch_groups.group import EpochGroup
from aioprod.testing.broker.groups.group import Group
from aioprod.testing.broker.share_groups.group import ShareGroup

AnyGroup = Group | EpochGroup | ShareGroup
GroupT = TypeVar("GroupT", Group, EpochGroup, ShareGroup)


class GroupRegistry(ABC):
    """The groups of all nodes, each coordinated by one of them.

    Attributes:
        groups: the groups by id. Call :meth:`changed` after changing one.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.groups: dict[str, AnyGroup] = {}
        self._cluster = cluster
        self._homes: dict[str, int] = {}  # the coordinator of each group
        self._timers: dict[str, EarliestTimer] = {}
        self._watchers: set[asyncio.Future[None]] = set()
        cluster.watchers.append(self._follow_cluster)

    @abstractmethod
    def _expire(self, group: AnyGroup, now: float) -> None:
        """Handle the deadlines of a group that have passed."""

    @abstractmethod
    def _move(self, group: AnyGroup, now: float) -> None:
        """Move a group to another coordinator, with the state that would be in the log."""

    def _add(self, group: GroupT) -> GroupT:
        self.groups[group.group_id] = group
        self._homes[group.group_id] = self._cluster.coordinator_node(GROUP, group.group_id)
        return group

    def _forget(self, group: AnyGroup) -> None:
        group.deadlines.clear()
        self._arm(group)
        del self.groups[group.group_id], self._homes[group.group_id]

    def _replace(self, group: Group | EpochGroup, other: Group | EpochGroup) -> None:
        """Replace a group with one of the other type."""
        group.deadlines.clear()
        self._arm(group)
        self.groups[group.group_id] = other
        self.changed(other)

    def changed(self, group: AnyGroup) -> None:
        """Set the group's timer, and wake the tasks that wait for a change."""
        self._arm(group)
        self._wake()

    async def wait_for_change(self, timeout_seconds: float) -> None:
        """Wait for the next change of any group, or until the timeout."""
        change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.add(change)
        try:
            await asyncio.wait([change], timeout=timeout_seconds)
        finally:
            self._watchers.discard(change)

    def _wake(self) -> None:
        for watcher in self._watchers:
            if not watcher.done():
                watcher.set_result(None)

    def _arm(self, group: AnyGroup) -> None:
        timer = self._timers.get(group.group_id)
        due = min(group.deadlines.values(), default=None) if self._home(group) != NO_NODE else None
        if due is not None:
            if timer is None:
                timer = EarliestTimer(partial(self._fire, group))
                self._timers[group.group_id] = timer
            # Heartbeats only postpone deadlines, so a timer that fires too early is set again.
            timer.set(due)
        elif timer is not None:
            timer.stop()
            del self._timers[group.group_id]

    def _fire(self, group: AnyGroup, now: float) -> None:
        del self._timers[group.group_id]
        self._expire(group, now)

    def _home(self, group: AnyGroup) -> int:
        return self._homes.get(group.group_id, NO_NODE)

    def _follow_cluster(self) -> None:
        """Move groups to their new coordinators after nodes started or stopped."""
        for group in self.groups.values():
            node_id = self._cluster.coordinator_node(GROUP, group.group_id)
            if node_id != self._home(group):
                self._homes[group.group_id] = node_id
                now = asyncio.get_running_loop().time()
                self._move(group, now)
                self.changed(group)
