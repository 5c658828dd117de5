"""The number of rows that wait in an outbox, and their age."""

from __future__ import annotations

from typing import NamedTuple

from aioprod.outbox.databases import Work
from aioprod.public_module import set_module

_SHARDS = """
SELECT shard, shards, owner, lease_until_ms > NOW_MS FROM aioprod_outbox_relay ORDER BY shard
"""
_ROWS = """
SELECT bucket % $1, count(*), NOW_MS - min(added_ms)
FROM (SELECT bucket, added_ms FROM aioprod_outbox ORDER BY id LIMIT $2) AS oldest GROUP BY 1
"""


@set_module("aioprod.outbox")
class ShardBacklog(NamedTuple):
    """The waiting rows of a shard.

    Attributes:
        shard: its number.
        owner: the relay that sends its rows; None if no relay does.
        rows: the number of rows that are not in Kafka yet, including refused ones.
        oldest_age_ms: the age of the oldest of them; 0 if there are none.
    """

    shard: int
    owner: str | None
    rows: int
    oldest_age_ms: int


@set_module("aioprod.outbox")
class OutboxBacklog(NamedTuple):
    """The rows that are not in Kafka yet.

    Attributes:
        rows: their number.
        refused: the number of refused ones.
        oldest_age_ms: the age of the oldest of them; 0 if there are none.
        shards: the same by shard; empty if no relay has ever run.
    """

    rows: int
    refused: int
    oldest_age_ms: int
    shards: tuple[ShardBacklog, ...]


def read_backlog(limit: int = 2**62) -> Work[OutboxBacklog]:
    """Read it in a transaction.

    Args:
        limit: the maximum number of rows to count, oldest first.
    """
    found = yield (_SHARDS,)
    grouped = yield (_ROWS, found[0][1] if found else 1, limit)
    ((refused,),) = yield ("SELECT count(*) FROM aioprod_outbox_refused",)
    counts = {shard: (rows, max(0, age)) for shard, rows, age in grouped}
    shards = tuple(
        ShardBacklog(shard, owner if valid else None, *counts.get(shard, (0, 0)))
        for shard, _, owner, valid in found
    )
    return OutboxBacklog(
        sum(rows for rows, _ in counts.values()),
        refused,
        max((age for _, age in counts.values()), default=0),
        shards,
    )
