"""The state of a group of the consumer protocol (KIP-848), and its changes by heartbeats.

The state is persistent except for the deadlines: a new coordinator continues with it and starts new
sessions.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aioprod.testing.broker.epoch_groups.assignors import ASSIGNORS, Subscriber
from aioprod.testing.broker.epoch_groups.checks import compile_pattern
from aioprod.testing.broker.epoch_groups.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    NO_PARTITIONS,
    ClassicSide,
    EpochMember,
    Partitions,
    Phase,
)
from aioprod.testing.broker.epoch_groups.modern import (
    Beat,
    EpochGroupState,
    ModernGroup,
    Topics,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.groups.group import CONSUMER, Deadline
from aioprod.testing.broker.groups.member import Caller
from aioprod.testing.broker.groups.settings import GroupSettings
from aioprod.testing.broker.offsets import Committer


@dataclass(slots=True)
class EpochGroup(ModernGroup[EpochMember]):
    """A group of the consumer protocol.

    Attributes:
        assignor: the name of the assignor that computed ``targets``.
        static_members: member ids by group.instance.id.
    """

    assignor: str = next(iter(ASSIGNORS))
    static_members: dict[str, str] = field(default_factory=dict)

    protocol_type = CONSUMER

    # -- queries -----------------------------------------------------------------------------------

    @property
    def state(self) -> EpochGroupState:
        """The current state."""
        if not self.members:
            return EpochGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return EpochGroupState.ASSIGNING
        is_stable = all(
            member.phase is Phase.STABLE and member.epoch == self.target_epoch
            for member in self.members.values()
        )
        return EpochGroupState.STABLE if is_stable else EpochGroupState.RECONCILING

    @property
    def is_classic_only(self) -> bool:
        """True if it has members and all of them use the classic protocol."""
        return bool(self.members) and all(each.classic for each in self.members.values())

    def check_commit(self, committer: Committer, *, in_transaction: bool) -> None:
        """Raise RequestError if the sender is not allowed to commit offsets."""
        if committer.generation_id < 0 and not self.members:
            return
        if in_transaction and not committer.is_member:
            return
        self.check_epoch(committer.member_id, committer.generation_id)

    def check_epoch(self, member_id: str, epoch: int) -> None:
        """Raise RequestError unless a member is in this epoch."""
        member = self.member(member_id)
        if epoch != member.epoch:
            raise RequestError(
                ErrorCode.STALE_MEMBER_EPOCH
                if member.classic is None
                else ErrorCode.ILLEGAL_GENERATION,
                f"The received member epoch {epoch} does not match the expected member epoch "
                f"{member.epoch}.",
            )

    # -- heartbeats --------------------------------------------------------------------------------

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        new_member_id: str,
        caller: Caller,
        topics: Topics,
        settings: GroupSettings,
        now: float,
    ) -> Beat:
        """Let a member join, or move it towards its target.

        Args:
            new_member_id: the id for a member that has none.
            topics: all existing topics.

        Raises:
            RequestError: if the member is not in this group or epoch.
        """
        owned = _owned(request)
        if request.subscribed_topic_regex:
            compile_pattern(request.subscribed_topic_regex)
        member = self._join_or_find(request, new_member_id, caller, owned, settings)
        before = member.assigned
        changed = _update(member, request, caller)
        self.advance(member, owned, topics, changed=changed)
        self._set_deadlines(member, settings, now)
        inform = _is_full(request) or member.assigned != before
        return Beat(member.member_id, member.epoch, member.assigned if inform else None)

    def advance(
        self, member: EpochMember, owned: Partitions | None, topics: Topics, *, changed: bool
    ) -> None:
        """Move a member towards its target, in a new epoch if it is new, or if its subscription or
        topics have changed.

        Args:
            owned: the partitions that the member reports; None if it reports none.
        """
        if member.member_id not in self.members:
            self.add(member)
            changed = True
        self._refresh(topics, changed=changed)
        member.reconcile(
            self.target_of(member.member_id),
            self.target_epoch,
            self.reserved_by_others(member),
            owned,
        )

    def reserved_by_others(self, member: EpochMember) -> Partitions:
        """Return the partitions that a member can't get yet."""
        return frozenset[tuple[uuid.UUID, int]]().union(
            *(each.reserved for each in self.members.values() if each is not member)
        )

    def leave(self, request: ConsumerGroupHeartbeatRequest) -> Beat:
        """Remove a member, or mark a static member as temporarily absent.

        Raises:
            RequestError: if it is not a member.
        """
        member = (
            self.member(request.member_id)
            if request.instance_id is None
            else self.static_member(request.instance_id, request.member_id)
        )
        if request.member_epoch == LEAVE_FOR_A_WHILE_EPOCH:
            member.move_to(LEAVE_FOR_A_WHILE_EPOCH)
            member.revoking = NO_PARTITIONS
            self.deadlines.pop(Deadline("rebalance", member.member_id), None)
        else:
            self.remove(member.member_id)
        return Beat(member.member_id, request.member_epoch, None)

    def remove(self, member_id: str) -> None:
        """See :class:`ModernGroup`."""
        instance = self.members[member_id].instance_id
        if instance is not None and self.static_members.get(instance) == member_id:
            del self.static_members[instance]
        super(EpochGroup, self).remove(member_id)  # slots: dataclass makes another class

    def begin_sessions(self, settings: GroupSettings, now: float) -> None:
        """Start new sessions, like a new coordinator."""
        self.deadlines.clear()
        for member in self.members.values():
            self._set_deadlines(member, settings, now)

    # -- members -----------------------------------------------------------------------------------

    def _join_or_find(
        self,
        request: ConsumerGroupHeartbeatRequest,
        new_member_id: str,
        caller: Caller,
        owned: Partitions | None,
        settings: GroupSettings,
    ) -> EpochMember:
        joins = request.member_epoch == JOIN_EPOCH
        member_id = request.member_id or new_member_id
        instance = request.instance_id
        if not joins:
            member = (
                self.member(member_id)
                if instance is None
                else self.static_member(instance, member_id)
            )
            self._check_epoch_of_heartbeat(member, request.member_epoch, owned)
            return member
        known = self.members.get(member_id)
        if instance is not None and (owner := self.static_members.get(instance)) is not None:
            old = self.members[owner]
            if not old.is_away and old.classic is None:
                raise RequestError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {member_id} with instance id {instance} cannot join the group "
                    f"because the instance id is owned by another member {owner}.",
                )
            return self.replace(old, member_id)
        if known is None and len(self.members) >= settings.max_size:
            raise RequestError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {settings.max_size} "
                "members.",
            )
        return known or EpochMember(
            member_id, instance, request.rack_id, caller.client_id, caller.client_host
        )

    def _check_epoch_of_heartbeat(
        self, member: EpochMember, epoch: int, owned: Partitions | None
    ) -> None:
        if epoch == member.epoch:
            return
        # Accept the previous epoch of a member that missed the response to its last heartbeat.
        if (
            epoch == member.previous_epoch
            and epoch < member.epoch
            and owned is not None
            and owned <= member.assigned
        ):
            return
        kind = "greater" if epoch > member.epoch else "smaller"
        raise RequestError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {kind} member epoch ({epoch}) than the one known by "
            f"the group coordinator ({member.epoch}). The member must abandon all its partitions "
            "and rejoin.",
        )

    def static_member(self, instance_id: str, member_id: str) -> EpochMember:
        """Return a static member; raise RequestError if it does not exist, or has another id."""
        owner = self.static_members.get(instance_id)
        if owner is None:
            raise RequestError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown."
            )
        if owner != member_id:
            raise RequestError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member "
                f"{owner}.",
            )
        return self.members[owner]

    def replace(self, old: EpochMember, member_id: str) -> EpochMember:
        """Replace a static member that has rejoined with another id; keep its partitions."""
        del self.members[old.member_id]
        self._drop_deadlines(old.member_id)
        self.targets[member_id] = self.targets.pop(old.member_id, NO_PARTITIONS)
        old.member_id, old.epoch, old.previous_epoch = member_id, JOIN_EPOCH, LEAVE_EPOCH
        old.phase = Phase.STABLE
        self.members[member_id] = old
        self.static_members[str(old.instance_id)] = member_id
        return old

    def add(self, member: EpochMember) -> None:
        """Add a member."""
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def _set_deadlines(self, member: EpochMember, settings: GroupSettings, now: float) -> None:
        if member.classic is not None:
            self.renew_classic_session(member, member.classic, now)
            return
        session = Deadline("session", member.member_id)
        self.deadlines[session] = now + settings.consumer_session_timeout_ms / 1000
        rebalance = Deadline("rebalance", member.member_id)
        if member.phase is not Phase.UNREVOKED:
            self.deadlines.pop(rebalance, None)
        elif rebalance not in self.deadlines:
            self.deadlines[rebalance] = now + member.rebalance_timeout_ms / 1000

    def renew_classic_session(self, member: EpochMember, side: ClassicSide, now: float) -> None:
        """Extend the session of a member that uses the classic protocol."""
        self.deadlines[Deadline("session", member.member_id)] = now + side.session_timeout_ms / 1000

    # -- targets -----------------------------------------------------------------------------------

    def _names_of(self, member: EpochMember, topics: Topics) -> set[str]:
        names = {name for name in member.topic_names if name in topics}
        if member.topic_regex:
            matches: Callable[[str], object] = compile_pattern(member.topic_regex).fullmatch
            names |= {name for name in topics if matches(name)}
        return names

    def _assign(self) -> None:
        votes = Counter(
            member.assignor for member in self.members.values() if member.assignor is not None
        )
        self.assignor = max(votes, key=votes.__getitem__) if votes else next(iter(ASSIGNORS))
        subscribers = [
            Subscriber(
                member.member_id,
                member.instance_id,
                frozenset(self.topics[name].topic_id for name in self.topics_of(member.member_id)),
                self.target_of(member.member_id),
            )
            for member in self.members.values()
        ]
        counts = {topic.topic_id: topic.partition_count for topic in self.topics.values()}
        self.targets = ASSIGNORS[self.assignor](subscribers, counts) if subscribers else {}
        self.target_epoch = self.epoch


def _owned(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    if request.topic_partitions is None:
        return None
    return frozenset(
        (topic.topic_id, number)
        for topic in request.topic_partitions
        for number in topic.partitions
    )


def _update(member: EpochMember, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> bool:
    """Store the fields of a heartbeat; return whether the subscription has changed."""
    before = member.topic_names, member.topic_regex
    member.classic = None
    member.client_id, member.client_host = caller.client_id, caller.client_host
    if request.rack_id is not None:
        member.rack_id = request.rack_id
    if request.rebalance_timeout_ms != -1:
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
    if request.server_assignor is not None:
        member.assignor = request.server_assignor
    if request.subscribed_topic_names is not None:
        member.topic_names = frozenset(request.subscribed_topic_names)
    if request.subscribed_topic_regex is not None:
        member.topic_regex = request.subscribed_topic_regex or None
    return before != (member.topic_names, member.topic_regex)


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return whether a heartbeat has all fields. Its response then has all fields, too."""
    return request.member_epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms != -1
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        and request.topic_partitions is not None
    )
