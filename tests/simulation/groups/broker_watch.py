"""Writes down what the coordinator of a group decides: generations or epochs, assignments, removed
members, stored offsets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from aioprod.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aioprod.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from aioprod.testing import EmbeddedCluster
from aioprod.testing.broker.epoch_groups.group import EpochGroup
from aioprod.testing.broker.epoch_groups.member import (
    JOIN_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    TopicIdPartition,
)
from aioprod.testing.broker.epoch_groups.modern import Beat
from aioprod.testing.broker.groups.coordinator import GroupCoordinator
from aioprod.testing.broker.groups.group import Group, GroupState
from aioprod.testing.broker.groups.member import Caller
from aioprod.testing.broker.groups.subscription import read_partitions
from aioprod.testing.broker.offsets import Committer, OffsetStore
from aioprod.types import TopicPartition
from tests.simulation.groups.history import GroupHistory
from tests.simulation.groups.scenario import GROUP


class BrokerWatch:
    """Listens to the group coordinator and the offsets of an embedded cluster.

    Attributes:
        owners: the client of each member id.
    """

    def __init__(self, cluster: EmbeddedCluster, history: GroupHistory) -> None:
        self.owners: dict[str, str] = {}
        self._history = history
        self._groups: GroupCoordinator = cluster._store.groups
        self._offsets: OffsetStore = cluster._store.offsets
        self._joining: dict[str, None] = {}  # clients with a JoinGroup since the last generation
        self._generation = 0
        self._shared = 0
        self._topics = cluster._store.topics
        self._members: set[str] = set()  # with the consumer protocol
        self._kept: dict[str, frozenset[TopicPartition]] = {}
        self._committer = Committer()
        for owner, name in (
            (self._groups, "join"),
            (self._groups, "consumer_heartbeat"),
            (self._groups, "changed"),
            (self._groups, "check_commit"),
            (self._offsets, "commit"),
        ):
            method: Callable[..., Any] = getattr(self, f"_{name}")
            setattr(owner, name, partial(method, getattr(owner, name)))

    def _join(
        self,
        join: Callable[[JoinGroupRequest, Caller], asyncio.Future[JoinGroupResponse]],
        request: JoinGroupRequest,
        caller: Caller,
    ) -> asyncio.Future[JoinGroupResponse]:
        known = self._joining.pop(caller.client_id, False) is None
        self._joining[caller.client_id] = None
        if request.member_id:
            self.owners[request.member_id] = caller.client_id
        answer = join(request, caller)
        group = self._groups.groups.get(request.group_id)
        waits = isinstance(group, Group) and any(
            member.joins and self.owners.get(member.member_id, caller.client_id) == caller.client_id
            for member in group.members.values()
        )
        if not waits and not known:
            self._joining.pop(caller.client_id, None)  # answered at once
        answer.add_done_callback(partial(self._learn, caller.client_id))
        return answer

    def _learn(self, client: str, answer: asyncio.Future[JoinGroupResponse]) -> None:
        if not answer.cancelled() and answer.result().member_id:
            self.owners[answer.result().member_id] = client

    def _changed(
        self, changed: Callable[[Group | EpochGroup], None], group: Group | EpochGroup
    ) -> None:
        changed(group)
        if isinstance(group, Group):
            self._look_at_generation(group)
        else:
            self._look_at_epochs(group)

    def _look_at_generation(self, group: Group) -> None:
        if group.generation_id != self._generation:
            self._generation, self._shared = group.generation_id, 0
            self._history.joined(self._generation, frozenset(self._joining))
            self._joining.clear()
        if group.state is GroupState.STABLE and self._shared != self._generation:
            self._shared = self._generation
            self._history.shared(
                self._generation,
                {
                    self.owners.get(member.member_id, member.client_id): frozenset(
                        read_partitions(member.assignment) or ()
                    )
                    for member in group.members.values()
                },
            )

    def _consumer_heartbeat(
        self,
        heartbeat: Callable[[ConsumerGroupHeartbeatRequest, Caller], Beat],
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
    ) -> Beat:
        member = self.owners[request.member_id] = caller.client_id
        known = request.member_id in self._members
        beat = heartbeat(request, caller)
        if known and request.member_epoch == JOIN_EPOCH:
            self._history.removed(member, "joins again: it has no partitions")
        if request.member_epoch == LEAVE_FOR_A_WHILE_EPOCH:
            self._history.removed(member, "leaves for a while")
        if beat.assignment is not None:
            self._history.granted(member, beat.epoch, self._named(beat.assignment))
        return beat

    def _look_at_epochs(self, group: EpochGroup) -> None:
        present = set(group.members)
        for member_id in sorted(self._members - present):
            self._history.removed(self.owners[member_id], "is removed from the group")
        self._members = present
        if group.target_epoch != self._generation:
            self._generation = group.target_epoch
            self._history.shared(
                group.target_epoch,
                {
                    self.owners[member_id]: self._named(target)
                    for member_id, target in group.targets.items()
                },
            )
        kept_back = {
            self.owners[each.member_id]: self._named(each.reserved)
            for each in group.members.values()
        }
        if kept_back != self._kept:
            self._kept = kept_back
            self._history.shared(group.epoch, kept_back, "is kept")

    def _named(self, partitions: Iterable[TopicIdPartition]) -> frozenset[TopicPartition]:
        names = {topic.topic_id: name for name, topic in self._topics.items()}
        return frozenset(TopicPartition(names[topic], number) for topic, number in partitions)

    def _check_commit(
        self, check: Callable[..., None], group_id: str, committer: Committer, **settings: Any
    ) -> None:
        check(group_id, committer, **settings)
        self._committer = committer

    def _commit(
        self,
        commit: Callable[..., None],
        group_id: str,
        partition: TopicPartition,
        offset: int,
        *rest: Any,
    ) -> None:
        offsets = self._offsets.groups.get(group_id)
        present = None if offsets is None else offsets.committed.get(partition)
        commit(group_id, partition, offset, *rest)
        if group_id == GROUP:
            self._history.offset_stored(
                self.owners.get(self._committer.member_id, "a stranger"),
                self._committer.generation_id,
                partition,
                offset,
                None if present is None else present.offset,
            )
