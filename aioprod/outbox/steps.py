"""The steps of a relay in the database. Each step is one transaction."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from aioprod.database.address import Dialect
from aioprod.outbox.databases import Database, Row, Work
from aioprod.outbox.errors import OutboxError
from aioprod.outbox.schema import BUCKETS, COLUMNS, TABLES

#: Prevents relays from taking further steps until the end of the transaction.
LOCK = "LOCK TABLE aioprod_outbox_relay IN SHARE ROW EXCLUSIVE MODE"
_SHARDS_OF = "SELECT name, shards, lease_until_ms > NOW_MS, ids FROM aioprod_outbox_relay"
_ADD_SHARD = """
INSERT INTO aioprod_outbox_relay
    (name, shard, shards, outbox_id, owner, epoch, lease_until_ms, batch, ids)
VALUES ($1, $2, $3, $4, '', 0, 0, 0, '')
"""
_JOIN = """
INSERT INTO aioprod_outbox_member (owner, name, until_ms) VALUES ($1, $2, NOW_MS + $3)
ON CONFLICT (owner) DO UPDATE SET until_ms = excluded.until_ms
"""
_EXTEND = """
UPDATE aioprod_outbox_relay
SET lease_until_ms = CASE WHEN shard IN ($4) THEN NOW_MS + $3 ELSE 0 END
WHERE name = $1 AND owner = $2
"""
_LEASES = """
SELECT shard, owner, lease_until_ms > NOW_MS, shards FROM aioprod_outbox_relay WHERE name = $1
ORDER BY shard
"""
_MEMBERS = "SELECT owner FROM aioprod_outbox_member WHERE name = $1 AND until_ms > NOW_MS"
_TAKE_OVER = """
UPDATE aioprod_outbox_relay SET owner = $3, epoch = epoch + 1, lease_until_ms = NOW_MS + $4
WHERE name = $1 AND shard = $2 AND lease_until_ms <= NOW_MS AND shards = $5
RETURNING shard, epoch, outbox_id, batch, ids
"""
# Evaluated once: most tables have no refused rows, and need none of the conditions for each row.
_ANY_REFUSED = "EXISTS (SELECT 1 FROM aioprod_outbox_refused)"
_ACTIVE = "(refused.retry_ms IS NULL OR refused.retry_ms > NOW_MS)"
_SIZE = "coalesce(length(value), 0) + coalesce(length(key), 0)"
_OLDEST = f"""
SELECT id, {", ".join(COLUMNS)} FROM (
    SELECT id, {", ".join(COLUMNS)}, sum({_SIZE}) OVER (ORDER BY id) AS total, {_SIZE} AS size
    FROM aioprod_outbox AS waiting
    WHERE bucket IN ($3)
    AND (NOT {_ANY_REFUSED} OR (NOT EXISTS (
        SELECT 1 FROM aioprod_outbox_refused AS refused
        WHERE refused.id = waiting.id AND {_ACTIVE}
    ) AND NOT EXISTS (
        SELECT 1 FROM aioprod_outbox_refused AS refused
        WHERE refused.topic = waiting.topic AND {_ACTIVE} AND (
            refused.stops = 'topic' OR (
                refused.stops = 'key' AND refused.id < waiting.id
                AND refused.ordering = coalesce(waiting.partition_key, waiting.key)
            )
        )
    ))) ORDER BY id LIMIT $1
) AS oldest WHERE total - size < $2 ORDER BY id
"""
_DELETE_ROWS = "DELETE FROM aioprod_outbox WHERE id IN ($1)"
_DELETE_RANGE = "DELETE FROM aioprod_outbox WHERE id BETWEEN $1 AND $2"
_DELETE_REFUSALS = f"DELETE FROM aioprod_outbox_refused WHERE {_ANY_REFUSED} AND id IN ($1)"
_REFUSE = """
INSERT INTO aioprod_outbox_refused (id, topic, stops, ordering, reason, since_ms, retry_ms)
VALUES ($1, $2, $3, $4, $5, NOW_MS, NOW_MS + $6)
ON CONFLICT (id) DO UPDATE SET stops = excluded.stops, reason = excluded.reason,
    retry_ms = excluded.retry_ms
"""
_SET_BATCH = """
UPDATE aioprod_outbox_relay SET batch = $1, ids = $2
WHERE name = $3 AND shard = $4 AND epoch = $5 AND outbox_id = $6 RETURNING batch
"""


_IS_OWNER = """
SELECT 1 FROM aioprod_outbox_relay
WHERE name = $1 AND shard = $2 AND epoch = $3 AND outbox_id = $4
"""


class TakenOver(OutboxError):
    """Another relay has the shard now."""


class Replaced(OutboxError):
    """Relays with other settings send the rows."""


class OtherVersion(OutboxError):
    """The tables have a version that this code can't use."""


class Claim(NamedTuple):
    """A shard that a relay has taken over.

    Attributes:
        shard: its number.
        epoch: the number of the take-over; steps of earlier ones have no effect.
        outbox_id: identifies these tables.
        batch: the number of the last batch.
        ids: ids of its rows; empty if they are deleted.
    """

    shard: int
    epoch: int
    outbox_id: str
    batch: int
    ids: tuple[int, ...]


class Refusal(NamedTuple):
    """A row that Kafka refused.

    Attributes:
        id, topic: the columns of the row.
        stops: the rows that wait until it is sent or discarded: only this row, later rows of its
            key, or all rows of its topic.
        ordering: the partition key, or the key if there is none; None without a key.
        reason: the error.
        retry_after_ms: the time after which it is sent again; None if only on request.
    """

    id: int
    topic: str
    stops: Literal["topic", "key", "row"]
    ordering: bytes | None
    reason: str
    retry_after_ms: int | None


class Step(NamedTuple):
    """A change of the batch.

    Attributes:
        batch: the number of the next batch.
        sent: the ids of rows that are in Kafka; they are deleted.
        refused: the rows that Kafka refused.
        max_records, max_bytes: the limits of the next batch; with 0 records, the step only ends the
            last one.
    """

    batch: int
    sent: Sequence[int]
    refused: Sequence[Refusal]
    max_records: int
    max_bytes: int


class Lease(NamedTuple):
    """The owner of a shard.

    Attributes:
        shard: its number.
        owner: the relay that had it last.
        valid: True if no other relay may take over yet.
    """

    shard: int
    owner: str
    valid: bool


class Steps:
    """The steps of a relay on one connection.

    Args:
        database: the open connection.
        name: the name of the relays that share the rows.
        shards: the number of shards.
    """

    def __init__(self, database: Database, name: str, shards: int) -> None:
        self._database = database
        self._name = name
        self._shards = shards

    async def set_up(self) -> None:
        """Create the shards, unless they exist.

        Raises:
            OutboxError: if relays with another name or number of shards send the rows, or have left
                a batch and only they can determine whether it is in Kafka.
            OtherVersion: if the tables have another version.
        """
        await self._database.transact(self._set_up())

    def _set_up(self) -> Work[None]:
        yield from check_version(self._database.dialect)
        yield (LOCK,)
        found = yield (_SHARDS_OF,)
        if found and all(row[:2] == (self._name, self._shards) for row in found):
            return
        self._check_former(found)
        yield ("DELETE FROM aioprod_outbox_relay",)
        outbox_id = str(uuid.uuid4())
        for shard in range(self._shards):
            yield (_ADD_SHARD, self._name, shard, self._shards, outbox_id)
        yield ("DELETE FROM aioprod_outbox_member WHERE until_ms <= NOW_MS",)

    def _check_former(self, found: list[Row]) -> None:
        for name, shards, leased, ids in found:
            if leased or ids:
                state = "run" if leased else "have left a batch that was not sent"
                raise OutboxError(
                    f"relay {self._name!r}, shards={self._shards}: relays with name={name!r}, "
                    f"shards={shards} {state}; "
                    + ("stop them" if leased else "run one and stop it")
                    + ", then start this one"
                )

    async def beat(
        self, owner: str, lease_ms: int, running: Sequence[int]
    ) -> tuple[list[Lease], list[str]]:
        """Extend a relay's leases of the shards that it sends, and end its other leases. Return the
        leases of all shards, and the running relays.

        Raises:
            Replaced: if relays with another name or number of shards have replaced these.
            OtherVersion: if the tables have another version.
        """
        return await self._database.transact(self._beat(owner, lease_ms, list(running)))

    def _beat(
        self, owner: str, lease_ms: int, running: list[int]
    ) -> Work[tuple[list[Lease], list[str]]]:
        yield from check_version(self._database.dialect)
        yield (_JOIN, owner, self._name, lease_ms)
        yield (_EXTEND, self._name, owner, lease_ms, running)
        found = yield (_LEASES, self._name)
        members = yield (_MEMBERS, self._name)
        if not found or any(row[3] != self._shards for row in found):
            raise Replaced(
                f"relay {self._name!r}, shards={self._shards}: relays with another name or number "
                "of shards send the rows now"
            )
        leases = [Lease(shard, each, bool(valid)) for shard, each, valid, _ in found]
        return leases, [row[0] for row in members]

    async def take_over(self, shard: int, owner: str, lease_ms: int) -> Claim | None:
        """Make ``owner`` the relay of a shard. The former relay can't take any further steps.
        Return None if the former relay still has a lease.
        """
        statement = (_TAKE_OVER, self._name, shard, owner, lease_ms, self._shards)
        for number, epoch, outbox_id, batch, ids in await self._database.transact(one(*statement)):
            return Claim(number, epoch, outbox_id, batch, _ids_of(ids))
        return None

    async def leave(self, owner: str) -> None:
        """End all leases of a relay."""
        await self._database.transact(self._leave(owner))

    def _leave(self, owner: str) -> Work[None]:
        yield ("DELETE FROM aioprod_outbox_member WHERE owner = $1", owner)
        yield ("UPDATE aioprod_outbox_relay SET lease_until_ms = 0 WHERE owner = $1", owner)

    async def take(self, claim: Claim, step: Step) -> list[Row]:
        """Delete the rows that were sent, and choose those of the next batch: id and columns.

        Raises:
            TakenOver: if another relay has the shard; then nothing is changed.
        """
        return await self._database.transact(self._take(claim, step))

    def _take(self, claim: Claim, step: Step) -> Work[list[Row]]:
        if step.sent:
            sent = list(step.sent)
            yield _deletion(sent)
            yield (_DELETE_REFUSALS, sent)
        for refusal in step.refused:
            yield (_REFUSE, *refusal)
        rows: list[Row] = []
        if step.max_records:
            limits = (step.max_records, step.max_bytes)
            # A list of numbers, as the planner can estimate how many rows have them.
            rows = yield (_OLDEST, *limits, list(range(claim.shard, BUCKETS, self._shards)))
        if rows or step.sent or step.refused:
            ids = ",".join(str(row[0]) for row in rows)
            if not (yield (_SET_BATCH, step.batch, ids, *self._place(claim))):
                raise _lost(claim)
        return rows

    async def check_owner(self, claim: Claim) -> None:
        """Raise TakenOver if another relay has the shard."""
        if not await self._database.transact(one(_IS_OWNER, *self._place(claim))):
            raise _lost(claim)

    def _place(self, claim: Claim) -> tuple[str, int, int, str]:
        return self._name, claim.shard, claim.epoch, claim.outbox_id


def _deletion(sent: list[int]) -> tuple[Any, ...]:
    """Return the statement that deletes rows."""
    first, last = sent[0], sent[-1]
    # Exactly these ids: one that is missing may belong to a transaction that commits now.
    if last - first + 1 == len(sent):
        return _DELETE_RANGE, first, last  # half the time in PostgreSQL
    return _DELETE_ROWS, sent


def _lost(claim: Claim) -> TakenOver:
    return TakenOver(f"shard {claim.shard}: another relay has taken over")


def check_version(dialect: Dialect) -> Work[None]:
    """Raise OtherVersion unless the tables have the version that this code uses."""
    ((versioned,),) = yield (f"SELECT {TABLES.is_versioned(dialect)}",)
    if versioned:
        ((version,),) = yield ("SELECT version FROM aioprod_outbox_version",)
    else:
        yield ("SELECT 1 FROM aioprod_outbox_relay LIMIT 1",)  # fails without tables
        version = 1
    if error := TABLES.error_of(version, dialect):
        raise OtherVersion(error)


def one(statement: str, *parameters: Any) -> Work[list[Row]]:
    """Return a transaction with one statement that returns the statement's rows."""
    return (yield (statement, *parameters))


def _ids_of(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()
