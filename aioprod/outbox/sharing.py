"""Decides which shards a relay takes over and releases. Pure functions.

Each relay decides independently, from the same rows. The leases determine the owner of a shard, so
even relays that read different rows never send the same shard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from aioprod.outbox.steps import Lease


def share_of(me: str, leases: Sequence[Lease], members: Iterable[str]) -> int:
    """Return the number of shards that a relay should have. It is the same for all, or one more for
    the relays with the most shards, so that the fewest shards move.
    """
    owned = Counter(lease.owner for lease in leases if lease.valid)
    ranked = sorted({me, *members}, key=lambda owner: (-owned[owner], owner))
    least, more = divmod(len(leases), len(ranked))
    return least + (ranked.index(me) < more)


def changes(
    me: str, leases: Sequence[Lease], members: Iterable[str], running: Iterable[int]
) -> tuple[list[int], list[int]]:
    """Return the shards to take over and those to release.

    Args:
        me: the relay.
        leases: the leases of all shards.
        members: the running relays.
        running: the shards that this relay sends.
    """
    mine = sorted(running)
    share = share_of(me, leases, members)
    free = [lease.shard for lease in leases if not lease.valid and lease.shard not in mine]
    return free[: max(0, share - len(mine))], mine[share:]
