"""The state of a classic consumer group."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.join_group import JoinGroupResponseMember
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.groups.member import Member
from aioprod.testing.broker.groups.subscription import read_topics

CONSUMER = "consumer"  # the protocol type of consumers; Kafka Connect, for example, has another one


class GroupState(StrEnum):
    """Kafka's names for the states of a group."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"  # until all members have joined again
    COMPLETING_REBALANCE = "CompletingRebalance"  # until the leader has sent the assignment
    STABLE = "Stable"
    DEAD = "Dead"


class Deadline(NamedTuple):
    """The end of the "join" or "sync" phase, or of a member's "session"."""

    kind: str
    member_id: str = ""


JOIN_DEADLINE = Deadline("join")
SYNC_DEADLINE = Deadline("sync")


class StoredState(NamedTuple):
    """The state that a new coordinator would read from the log."""

    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader_id: str | None
    members: tuple[Member, ...]


@dataclass(slots=True)
class Group:
    """A classic consumer group.

    Attributes:
        previous_state: the state before ``state``. The rebalance of an empty group waits for more
            members.
        members: by member id, in the order in which they joined.
        static_members: member ids by group.instance.id.
        pending_joins: member ids assigned to clients that have not joined with them yet (KIP-394).
        pending_syncs: the members of this generation that have not requested their assignment yet.
        new_member_added: True if a member has joined since the initial delay was last extended.
        initial_left_ms: the time by which the initial delay may still be extended.
        deadlines: in seconds of the event loop's clock.
        stored: the last state that would be in the log, which a new coordinator starts with.
    """

    group_id: str
    state: GroupState = GroupState.EMPTY
    previous_state: GroupState = GroupState.EMPTY
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    pending_joins: dict[str, None] = field(default_factory=dict)
    pending_syncs: dict[str, None] = field(default_factory=dict)
    new_member_added: bool = False
    initial_left_ms: int = 0
    deadlines: dict[Deadline, float] = field(default_factory=dict)
    stored: StoredState = field(default_factory=lambda: StoredState(0, None, None, None, ()))

    # -- queries -----------------------------------------------------------------------------------

    @property
    def rebalance_timeout_ms(self) -> int:
        """The time in milliseconds that members have to rejoin: the longest of all members'
        timeouts.
        """
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        """True if all members have rejoined."""
        return not self.pending_joins and all(member.joins for member in self.members.values())

    @property
    def is_rebalancing_from_empty(self) -> bool:
        """True during the first rebalance, which ends only after its delay."""
        return (
            self.state is GroupState.PREPARING_REBALANCE and self.previous_state is GroupState.EMPTY
        )

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """The topics that the group's consumers subscribe to; empty if its members are not
        consumers.
        """
        if self.protocol_type != CONSUMER:
            return frozenset()
        topics = (read_topics(self.metadata_of(member)) for member in self.members.values())
        return frozenset(topic for each in topics if each is not None for topic in each)

    def supports(self, protocol_type: str, protocols: dict[str, bytes]) -> bool:
        """Return whether a member with these protocols may join: all other members must support one
        of them.
        """
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        # All members may have left during the rebalance.
        common = self._common_protocols() if self.members else protocols.keys()
        return protocol_type == self.protocol_type and bool(common & protocols.keys())

    def select_protocol(self) -> str:
        """Return the protocol that most members prefer among those that all support."""
        common = self._common_protocols()
        votes = Counter(
            next(name for name in member.protocols if name in common)
            for member in self.members.values()
        )
        return max(votes, key=votes.__getitem__)

    def _common_protocols(self) -> set[str]:
        return (
            set.intersection(*(set(member.protocols) for member in self.members.values()))
            if self.members
            else set()
        )

    def listed_members(self) -> list[JoinGroupResponseMember]:
        """Return all members with their metadata, for the leader."""
        return [
            JoinGroupResponseMember(each.member_id, each.instance_id, self.metadata_of(each))
            for each in self.members.values()
        ]

    def metadata_of(self, member: Member) -> bytes:
        """Return a member's metadata for the group's protocol."""
        return member.protocols.get(self.protocol_name or "", b"")

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """Return a member; raise RequestError if it does not exist, or if another member has its
        instance id.
        """
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is not None and known != member_id:
                raise RequestError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"the instance id {instance_id!r} belongs to another member now",
                )
            if known is None:
                raise RequestError(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    f"the group has no member with the instance id {instance_id!r}",
                )
        member = self.members.get(member_id)
        if member is None:
            raise RequestError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"the group has no member {member_id!r}"
            )
        return member

    def check_generation(self, generation_id: int) -> None:
        """Raise RequestError unless this is the current generation."""
        if generation_id != self.generation_id:
            raise RequestError(
                ErrorCode.ILLEGAL_GENERATION,
                f"the group is in generation {self.generation_id}, not {generation_id}",
            )

    # -- small changes -----------------------------------------------------------------------------

    def move_to(self, state: GroupState) -> None:
        """Switch to another state."""
        self.previous_state, self.state = self.state, state

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member. The first one becomes the leader."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        if self.leader_id is None:
            self.leader_id = member.member_id
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.pending_joins.pop(member.member_id, None)

    def rename(self, old: Member, member_id: str) -> Member:
        """Give a static member a new id and keep its assignment. Return the new member.

        As in Kafka, if the old id has not requested its assignment, the request remains pending
        even if the new id sends one: after the rebalance timeout all members rejoin.
        """
        member = replace(old.as_stored(), member_id=member_id)
        was_leader = self.leader_id == old.member_id
        was_pending = old.member_id in self.pending_syncs
        self.remove(old.member_id)
        if was_pending:
            self.pending_syncs[old.member_id] = None
        self.members[member_id] = member
        self.static_members[str(member.instance_id)] = member_id
        if was_leader:
            self.leader_id = member_id
        return member

    def remove(self, member_id: str) -> None:
        """Remove a member or pending member, and its session. If it was the leader, another member
        becomes the leader.
        """
        member = self.members.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            self.static_members.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.pop(member_id, None)
        self.deadlines.pop(Deadline("session", member_id), None)

    def start_session(self, member_id: str, timeout_ms: int, now: float) -> None:
        """Set the end of a member's session."""
        self.deadlines[Deadline("session", member_id)] = now + timeout_ms / 1000

    def renew_session(self, member: Member, now: float) -> None:
        """Extend a member's session. A member without a session timeout never expires."""
        if member.session_timeout_ms:
            self.start_session(member.member_id, member.session_timeout_ms, now)

    # -- the state in the log ----------------------------------------------------------------------

    def store(self) -> None:
        """Keep the current generation for the next coordinator."""
        members = tuple(member.as_stored() for member in self.members.values())
        self.stored = StoredState(
            self.generation_id, self.protocol_type, self.protocol_name, self.leader_id, members
        )

    def restore(self, now: float) -> None:
        """Start like a new coordinator: with the stored state and new sessions."""
        kept = self.stored
        self.generation_id, self.protocol_type, self.protocol_name, self.leader_id = kept[:4]
        self.members = {member.member_id: member.as_stored() for member in kept.members}
        self.static_members = {
            member.instance_id: member.member_id
            for member in kept.members
            if member.instance_id is not None
        }
        self.pending_joins, self.pending_syncs, self.deadlines = {}, {}, {}
        self.state = self.previous_state = GroupState.STABLE if self.members else GroupState.EMPTY
        for member in self.members.values():
            self.renew_session(member, now)
