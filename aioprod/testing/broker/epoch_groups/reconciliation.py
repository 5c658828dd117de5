"""Which partitions a member may have now, on the way to its target: it first gives up those that
are not its own any more, and gets others when their former owners have given them up.
"""

from __future__ import annotations

from aioprod.testing.broker.epoch_groups.member import (
    NO_PARTITIONS,
    EpochMember,
    Partitions,
    Phase,
)


def reconcile(
    member: EpochMember,
    target: Partitions,
    target_epoch: int,
    reserved_by_others: Partitions,
    owned: Partitions | None,
) -> None:
    """Move a member as far as possible.

    Args:
        target: the member's partitions in ``target_epoch``.
        reserved_by_others: the partitions that other members have, or have to give up.
        owned: the partitions that the member says it has; None if it does not say.
    """
    if member.phase is Phase.STABLE and member.epoch == target_epoch:
        return
    if member.phase is Phase.UNREVOKED and _has_any(owned, member.revoking):
        return
    kept = member.assigned & target
    to_revoke = member.assigned - target
    if to_revoke and _has_any(owned, to_revoke):
        member.assigned, member.revoking, member.phase = kept, to_revoke, Phase.UNREVOKED
        return
    added = target - kept
    free = added - reserved_by_others
    member.assigned, member.revoking = kept | free, NO_PARTITIONS
    member.phase = Phase.STABLE if free == added else Phase.UNRELEASED
    member.move_to(target_epoch)


def _has_any(owned: Partitions | None, partitions: Partitions) -> bool:
    return owned is None or bool(owned & partitions)
