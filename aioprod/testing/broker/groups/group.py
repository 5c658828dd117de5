"""A classic consumer group: its state, and questions about it."""

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

CONSUMER = "consumer"  # the protocol type of consumers; others are, for example, of Kafka Connect


class GroupState(StrEnum):
    """Where a group is in its rebalance, in Kafka's words."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"  # until all members have joined again
    COMPLETING_REBALANCE = "CompletingRebalance"  # until the leader has sent the assignment
    STABLE = "Stable"
    DEAD = "Dead"


class Deadline(NamedTuple):
    """What is to happen at some time: "join" or "sync" ends, or a member's "session" does."""

    kind: str
    member_id: str = ""


JOIN_DEADLINE = Deadline("join")
SYNC_DEADLINE = Deadline("sync")


class Stored(NamedTuple):
    """What a coordinator would find in the log."""

    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader_id: str | None
    members: tuple[Member, ...]


@dataclass(slots=True)
class Group:
    """One group.

    Attributes:
        previous_state: the one before ``state``: a rebalance that begins with an empty group waits
            for further members.
        members: by member id, in the order in which they came.
        static_members: member id by group.instance.id.
        pending_joins: member ids that were given out (KIP-394) to clients that have not joined with
            them yet.
        pending_syncs: the ids of this generation under which no assignment was asked for yet.
        new_member_added: whether somebody joined since the initial delay was last extended.
        initial_left_ms: for how long the initial delay may still be extended.
        deadlines: in seconds of the event loop's clock.
        stored: the last state that would be in the log; another coordinator begins with it.
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
    stored: Stored = field(default_factory=lambda: Stored(0, None, None, None, ()))

    # -- questions ---------------------------------------------------------------------------------

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long members have to join again: the most patient one decides."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        """Whether nobody is waited for any more."""
        return not self.pending_joins and all(member.joins for member in self.members.values())

    @property
    def is_rebalancing_from_empty(self) -> bool:
        """Whether this is the first rebalance, which ends when its delay is over and not before."""
        return (
            self.state is GroupState.PREPARING_REBALANCE and self.previous_state is GroupState.EMPTY
        )

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """The topics that consumers of the group read; none for members that are no consumers."""
        if self.protocol_type != CONSUMER:
            return frozenset()
        topics = (read_topics(self.metadata_of(member)) for member in self.members.values())
        return frozenset(topic for each in topics if each is not None for topic in each)

    def supports(self, protocol_type: str, protocols: dict[str, bytes]) -> bool:
        """Whether a member with these protocols may join: there is at least one that all others
        know as well.
        """
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        # All may have left while the group was still being put together.
        common = self._common_protocols() if self.members else protocols.keys()
        return protocol_type == self.protocol_type and bool(common & protocols.keys())

    def select_protocol(self) -> str:
        """The protocol that most members prefer among those that all know."""
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
        """All members with their metadata, as the leader gets them."""
        return [
            JoinGroupResponseMember(each.member_id, each.instance_id, self.metadata_of(each))
            for each in self.members.values()
        ]

    def metadata_of(self, member: Member) -> bytes:
        """What a member says under the protocol that was agreed on."""
        return member.protocols.get(self.protocol_name or "", b"")

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member; raise RequestError where there is none such, or a static member's
        instance is another one by now.
        """
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is not None and known != member_id:
                raise RequestError(
                    ErrorCode.FENCED_INSTANCE_ID, f"{instance_id} is another member by now"
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
        """Raise RequestError unless this is the present generation."""
        if generation_id != self.generation_id:
            raise RequestError(
                ErrorCode.ILLEGAL_GENERATION,
                f"the group is in generation {self.generation_id}, not {generation_id}",
            )

    # -- small changes -----------------------------------------------------------------------------

    def move_to(self, state: GroupState) -> None:
        """Change the state."""
        self.previous_state, self.state = self.state, state

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member; the first one becomes the leader."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        if self.leader_id is None:
            self.leader_id = member.member_id
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.pending_joins.pop(member.member_id, None)

    def rename(self, old: Member, member_id: str) -> Member:
        """Have a static member go on under a new id, with its assignment; return what it is now.

        As in Kafka, an assignment that the old id has not asked for stays missing, whatever the
        new one does: once the rebalance timeout is over, all members join again.
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
        """Forget a member or a pending one, with its session; another one becomes the leader if
        need be.
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
        """Have a member's session end so much later, unless it is started again before."""
        self.deadlines[Deadline("session", member_id)] = now + timeout_ms / 1000

    def renew_session(self, member: Member, now: float) -> None:
        """A member has shown that it is alive; one without a time-out lives for ever."""
        if member.session_timeout_ms:
            self.start_session(member.member_id, member.session_timeout_ms, now)

    # -- what would be in the log ------------------------------------------------------------------

    def store(self) -> None:
        """Keep the present generation for the next coordinator."""
        members = tuple(member.as_stored() for member in self.members.values())
        self.stored = Stored(
            self.generation_id, self.protocol_type, self.protocol_name, self.leader_id, members
        )

    def restore(self, now: float) -> None:
        """Begin as a new coordinator does: with what was stored last, and with full sessions."""
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
