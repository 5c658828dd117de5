"""The state of a share group (KIP-932), and its changes by heartbeats. Members may share
partitions, so no member has to release one before another member gets it.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from aioprod.testing.broker.epoch_groups.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NO_PARTITIONS,
    Partitions,
)
from aioprod.testing.broker.epoch_groups.modern import (
    Beat,
    EpochGroupState,
    ModernGroup,
    Topics,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.groups.group import Deadline
from aioprod.testing.broker.groups.member import Caller
from aioprod.testing.broker.offsets import Committer
from aioprod.testing.broker.settings.group_configs import ShareSettings

SHARE = "share"
ASSIGNOR = "simple"
MAX_MEMBERS = 200  # broker setting group.share.max.size


@dataclass(slots=True)
class ShareMember:
    """One member.

    Attributes:
        epoch: the epoch of its assignment.
        previous_epoch: the previous epoch, which a member that missed a response still has.
        assigned: the partitions that it reads.
    """

    member_id: str
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: frozenset[str] = frozenset()
    epoch: int = JOIN_EPOCH
    previous_epoch: int = LEAVE_EPOCH
    assigned: Partitions = NO_PARTITIONS


@dataclass(slots=True)
class ShareGroup(ModernGroup[ShareMember]):
    """A share group."""

    protocol_type = SHARE
    assignor = ASSIGNOR

    @property
    def state(self) -> EpochGroupState:
        """The current state; a group with members is stable."""
        return EpochGroupState.STABLE if self.members else EpochGroupState.EMPTY

    def check_commit(self, committer: Committer, *, in_transaction: bool) -> None:
        """Raise RequestError: share groups have no committed offsets."""
        raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"{self.group_id} is a share group")

    # -- heartbeats --------------------------------------------------------------------------------

    def heartbeat(
        self,
        request: ShareGroupHeartbeatRequest,
        caller: Caller,
        topics: Topics,
        settings: ShareSettings,
        now: float,
    ) -> Beat:
        """Let a member join, or send it its partitions.

        Raises:
            RequestError: if the member is not in this group or epoch.
        """
        member = self._join_or_find(request, caller)
        before = member.assigned, member.topic_names
        member.client_id, member.client_host = caller.client_id, caller.client_host
        if request.rack_id is not None:
            member.rack_id = request.rack_id
        if request.subscribed_topic_names is not None:
            member.topic_names = frozenset(request.subscribed_topic_names)
        is_new = member.member_id not in self.members
        self.members[member.member_id] = member
        self._refresh(topics, changed=is_new or member.topic_names != before[1])
        member.assigned = self.target_of(member.member_id)
        if member.epoch != self.target_epoch:
            member.previous_epoch, member.epoch = member.epoch, self.target_epoch
        self._renew(member, settings, now)
        inform = (
            request.member_epoch == JOIN_EPOCH
            or request.subscribed_topic_names is not None
            or member.assigned != before[0]
        )
        return Beat(member.member_id, member.epoch, member.assigned if inform else None)

    def leave(self, member_id: str) -> Beat:
        """Remove a member; raise RequestError if it does not exist."""
        self.remove(self.member(member_id).member_id)
        return Beat(member_id, LEAVE_EPOCH, None)

    def begin_sessions(self, settings: ShareSettings, now: float) -> None:
        """Start new sessions, like a new coordinator."""
        for member in self.members.values():
            self._renew(member, settings, now)

    def _join_or_find(self, request: ShareGroupHeartbeatRequest, caller: Caller) -> ShareMember:
        known = self.members.get(request.member_id)
        if request.member_epoch != JOIN_EPOCH:
            member = self.member(request.member_id)
            if request.member_epoch not in (member.epoch, member.previous_epoch):
                raise RequestError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    f"member {member.member_id} has epoch {member.epoch}, not "
                    f"{request.member_epoch}; it must rejoin",
                )
            return member
        if known is None and len(self.members) >= MAX_MEMBERS:
            raise RequestError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"the group has {MAX_MEMBERS} members (group.share.max.size)",
            )
        return known or ShareMember(
            request.member_id, request.rack_id, caller.client_id, caller.client_host
        )

    def _renew(self, member: ShareMember, settings: ShareSettings, now: float) -> None:
        deadline = Deadline("session", member.member_id)
        self.deadlines[deadline] = now + settings.session_timeout_ms / 1000

    # -- targets -----------------------------------------------------------------------------------

    def _names_of(self, member: ShareMember, topics: Topics) -> set[str]:
        return set(member.topic_names & topics.keys())

    def _assign(self) -> None:
        self.targets = assign_simple(
            {
                member.member_id: [
                    (self.topics[name].topic_id, number)
                    for name in sorted(self.topics_of(member.member_id))
                    for number in range(self.topics[name].partition_count)
                ]
                for member in self.members.values()
            },
            self.targets,
        )
        self.target_epoch = self.epoch


def check_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """Raise RequestError (INVALID_REQUEST) if a heartbeat is invalid."""
    texts = {
        "MemberId": request.member_id,
        "GroupId": request.group_id,
        "RackId": request.rack_id,
    }
    for name, text in texts.items():
        if text is not None and not text.strip():
            raise RequestError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    if request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request."
        )
    if request.member_epoch < LEAVE_EPOCH:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"MemberEpoch {request.member_epoch} is invalid."
        )


def assign_simple(
    wanted: dict[str, list[tuple[uuid.UUID, int]]], present: dict[str, Partitions]
) -> dict[str, Partitions]:
    """Distribute the partitions evenly. With fewer partitions than members, members share
    partitions. Members keep their partitions if this is possible.

    Args:
        wanted: the partitions of the topics that each member subscribes to.
    """
    places = sorted({place for each in wanted.values() for place in each})
    readers: dict[tuple[uuid.UUID, int], list[str]] = {place: [] for place in places}
    targets: dict[str, set[tuple[uuid.UUID, int]]] = {member_id: set() for member_id in wanted}
    most_readers = -(-len(wanted) // len(places)) if places else 0
    most_places = -(-len(places) // len(wanted)) if wanted else 0
    for member_id in sorted(wanted):
        for place in sorted(present.get(member_id, NO_PARTITIONS) & set(wanted[member_id])):
            if len(readers[place]) < most_readers and len(targets[member_id]) < most_places:
                readers[place].append(member_id)
                targets[member_id].add(place)
    for place in places:
        able = [member_id for member_id in sorted(wanted) if place in wanted[member_id]]
        while len(readers[place]) < min(most_readers, len(able)):
            free = [member_id for member_id in able if member_id not in readers[place]]
            chosen = min(free, key=lambda member_id: len(targets[member_id]))
            readers[place].append(chosen)
            targets[chosen].add(place)
    return {member_id: frozenset(mine) for member_id, mine in targets.items()}
