"""Shows waiting and refused rows, and retries or discards refused ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, Self

from aioprod import ConfigError
from aioprod.config.checks import in_range
from aioprod.outbox.backlog import OutboxBacklog, read_backlog
from aioprod.outbox.databases import Work, make_database
from aioprod.outbox.steps import LOCK, check_version, one
from aioprod.public_module import Uncopyable, set_module

_REFUSED = """
SELECT id, refused.topic, stops, waiting.key, waiting.partition_key, reason, since_ms, retry_ms
FROM aioprod_outbox_refused AS refused JOIN aioprod_outbox AS waiting USING (id)
ORDER BY id LIMIT $1
"""
_RETRY = "DELETE FROM aioprod_outbox_refused WHERE id IN ($1) RETURNING id"
_RETRY_ALL = "DELETE FROM aioprod_outbox_refused RETURNING id"
_DISCARD = """
DELETE FROM aioprod_outbox
WHERE id IN ($1) AND id IN (SELECT id FROM aioprod_outbox_refused) RETURNING id
"""


@set_module("aioprod.outbox")
class RefusedRow(NamedTuple):
    """A row that Kafka refused.

    Attributes:
        id, topic, key, partition_key: the columns of the row.
        stops: the rows that wait for it: all rows of its topic, later rows of its topic and key, or
            only this row.
        reason: the error.
        since_ms: the time at which Kafka first refused it, in milliseconds since 1970.
        retry_ms: the time at which the relay sends it again; None if only on request.
    """

    id: int
    topic: str
    stops: Literal["topic", "key", "row"]
    key: bytes | None
    partition_key: bytes | None
    reason: str
    since_ms: int
    retry_ms: int | None


@set_module("aioprod.outbox")
class OutboxAdmin(Uncopyable):
    """Shows and changes the state of an outbox, whether relays are running or not. Use it with
    ``async with``.

    Args:
        database: as in :class:`OutboxRelay`.

    Raises:
        OutboxError: if the database is of an unknown kind. All calls also raise it if the database
            fails.
    """

    def __init__(self, database: str) -> None:
        self._database = make_database(database)

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            OutboxError: if the tables have another version.
        """
        await self._database.open()
        try:
            await self._database.transact(check_version(self._database.dialect))
        except BaseException:
            await self._database.close()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Disconnect."""
        await self._database.close()

    async def backlog(self) -> OutboxBacklog:
        """Return the number of waiting rows, and their age."""
        return await self._database.transact(read_backlog())

    async def refused(self, limit: int = 1_000) -> list[RefusedRow]:
        """Return the first rows that Kafka refused, in the order of their ids."""
        in_range(1, 1_000_000)("limit", limit)
        rows = await self._database.transact(one(_REFUSED, limit))
        return [RefusedRow(*row) for row in rows]

    async def retry(self, ids: Iterable[int] | None = None) -> list[int]:
        """Let the relay send refused rows again, and then those that wait for them.

        Args:
            ids: the ids to retry; all by default.

        Returns:
            The ids of the rows that had been refused.
        """
        work = one(_RETRY_ALL) if ids is None else one(_RETRY, _checked(ids))
        rows = await self._database.transact(work)
        return sorted(row[0] for row in rows)

    async def discard(self, ids: Iterable[int]) -> list[int]:
        """Delete refused rows without sending them. Rows that wait for them are then sent.

        Args:
            ids: the ids to discard.

        Returns:
            The ids of the deleted rows. Rows that are not refused, or that the relay is sending
            again, are not deleted.
        """
        return await self._database.transact(_discard(_checked(ids)))


def _discard(asked: list[int]) -> Work[list[int]]:
    yield (LOCK,)
    batches = yield ("SELECT ids FROM aioprod_outbox_relay",)
    sending = {int(each) for (text,) in batches for each in text.split(",") if each}
    rows = yield (_DISCARD, [each for each in asked if each not in sending])
    deleted = sorted(row[0] for row in rows)
    yield (_RETRY, deleted)
    return deleted


def _checked(ids: Iterable[int]) -> list[int]:
    asked = list(ids)
    for each in asked:
        if type(each) is not int or not 0 < each < 2**63:
            raise ConfigError(f"ids: {each!r}: must be the id of a row")
    return asked
