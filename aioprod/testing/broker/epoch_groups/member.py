"""What the coordinator knows of one member of a group of the consumer protocol."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from enum import StrEnum

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_FOR_A_WHILE_EPOCH = -2  # of a static member that will return

TopicIdPartition = tuple[uuid.UUID, int]
Partitions = frozenset[TopicIdPartition]
NO_PARTITIONS: Partitions = frozenset()


class Phase(StrEnum):
    """How far a member is on the way to its target."""

    STABLE = "stable"
    UNREVOKED = "unrevoked"  # it has partitions to give up
    UNRELEASED = "unreleased"  # others have not given up some of its partitions yet


@dataclass(slots=True)
class ClassicSide:
    """What a member has that speaks the classic protocol.

    Attributes:
        protocols: metadata by name, the preferred protocol first.
    """

    session_timeout_ms: int
    protocols: dict[str, bytes]

    @property
    def protocol_name(self) -> str:
        """The protocol that is named to the member: the one that it prefers."""
        return next(iter(self.protocols))


@dataclass(slots=True)
class EpochMember:
    """One member.

    Attributes:
        instance_id: group.instance.id of a static member (KIP-345), else None.
        rebalance_timeout_ms: how long the member may take to give up partitions.
        topic_names: the topics that it subscribes to by name.
        topic_regex: the regular expression that it subscribes by, if any.
        assignor: the assignor that it asks for; None for any.
        epoch: the epoch of its assignment; -2 while a static member is away.
        previous_epoch: the epoch before, with which a member that missed a response continues.
        assigned: the partitions that it may read.
        revoking: the partitions that it has to give up before it gets others.
        classic: None if it speaks the consumer protocol.
    """

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = None
    assignor: str | None = None
    epoch: int = JOIN_EPOCH
    previous_epoch: int = LEAVE_EPOCH
    phase: Phase = Phase.STABLE
    assigned: Partitions = NO_PARTITIONS
    revoking: Partitions = NO_PARTITIONS
    classic: ClassicSide | None = None

    @property
    def is_away(self) -> bool:
        """Whether this is a static member that has left for a while."""
        return self.epoch == LEAVE_FOR_A_WHILE_EPOCH

    @property
    def reserved(self) -> Partitions:
        """The partitions that no other member may get."""
        return self.assigned | self.revoking

    def move_to(self, epoch: int) -> None:
        """Set the epoch."""
        if epoch != self.epoch:
            self.previous_epoch, self.epoch = self.epoch, epoch
