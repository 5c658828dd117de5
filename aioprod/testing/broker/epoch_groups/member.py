"""The coordinator's state of one member of a group of the consumer protocol."""

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
    """The progress of a member towards its target."""

    STABLE = "stable"
    UNREVOKED = "unrevoked"  # it has partitions to release
    UNRELEASED = "unreleased"  # other members have not released some of its partitions yet


@dataclass(slots=True)
class ClassicSide:
    """The additional state of a member that uses the classic protocol.

    Attributes:
        protocols: metadata by name, the preferred protocol first.
    """

    session_timeout_ms: int
    protocols: dict[str, bytes]

    @property
    def protocol_name(self) -> str:
        """The protocol in the member's responses: the one that it prefers."""
        return next(iter(self.protocols))


@dataclass(slots=True)
class EpochMember:
    """One member.

    Attributes:
        instance_id: group.instance.id of a static member (KIP-345), else None.
        rebalance_timeout_ms: the maximum time that the member may take to release partitions.
        topic_names: the topics that it subscribes to by name.
        topic_regex: the regular expression that it subscribes by, if any.
        assignor: the assignor that it requests; None for any.
        epoch: the epoch of its assignment; -2 while a static member is temporarily absent.
        previous_epoch: the previous epoch, which a member that missed a response still has.
        assigned: the partitions that it may read.
        revoking: the partitions that it has to release before it gets others.
        classic: None if it uses the consumer protocol.
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
        """True for a static member that has left temporarily."""
        return self.epoch == LEAVE_FOR_A_WHILE_EPOCH

    @property
    def reserved(self) -> Partitions:
        """The partitions that no other member may get."""
        return self.assigned | self.revoking

    def move_to(self, epoch: int) -> None:
        """Set the epoch."""
        if epoch != self.epoch:
            self.previous_epoch, self.epoch = self.epoch, epoch

    def reconcile(
        self,
        target: Partitions,
        target_epoch: int,
        reserved_by_others: Partitions,
        owned: Partitions | None,
    ) -> None:
        """Move towards the target as far as possible: first release the partitions that are
        assigned to other members, then get others when their former owners have released them.

        Args:
            target: the member's partitions in ``target_epoch``.
            target_epoch: the epoch of the target.
            reserved_by_others: the partitions that other members have, or have to release.
            owned: the partitions that the member reports; None if it reports none.
        """
        if self.phase is Phase.STABLE and self.epoch == target_epoch:
            return
        if self.phase is Phase.UNREVOKED and _has_any(owned, self.revoking):
            return
        kept = self.assigned & target
        to_revoke = self.assigned - target
        if to_revoke and _has_any(owned, to_revoke):
            self.assigned, self.revoking, self.phase = kept, to_revoke, Phase.UNREVOKED
            return
        added = target - kept
        free = added - reserved_by_others
        self.assigned, self.revoking = kept | free, NO_PARTITIONS
        self.phase = Phase.STABLE if free == added else Phase.UNRELEASED
        self.move_to(target_epoch)


def _has_any(owned: Partitions | None, partitions: Partitions) -> bool:
    return owned is None or bool(owned & partitions)
