"""Writes down what the coordinator of a group decides: generations, assignments, stored offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from aioprod.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from aioprod.testing import EmbeddedCluster
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
        self._committer = Committer()
        for owner, name in (
            (self._groups, "join"),
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

    def _changed(self, changed: Callable[[Group], None], group: Group) -> None:
        changed(group)
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
