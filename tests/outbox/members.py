"""The processes of an application that are killed: ``python -m tests.outbox.members KIND ...``.

A writer adds rows to the outbox, each with its place in a ledger. A processor with an inbox writes
an effect for each record.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aioprod.database.postgresql import errors_of_asyncpg
from aioprod.outbox import Outbox
from aioprod.processing import Processor, Record
from aioprod.processing.inbox import Inbox

if TYPE_CHECKING:
    import asyncpg

TOPIC = "orders"
PARTITIONS = 3
KEYS = 12
#: In PostgreSQL, in addition to those of outbox and inbox.
TABLES = f"""
DROP TABLE IF EXISTS counter, ledger, effects;
CREATE TABLE counter (key integer PRIMARY KEY, number integer NOT NULL);
CREATE TABLE ledger (key integer, number integer);
CREATE TABLE effects (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key integer, number integer
);
INSERT INTO counter SELECT key, 0 FROM generate_series(0, {KEYS - 1}) AS key;
"""
_ROLLED_BACK = 0.2


async def write(url: str, pause_s: str) -> None:
    """Write rows until killed, and roll some transactions back."""
    import asyncpg

    while True:
        try:
            connection = await asyncpg.connect(url)
            try:
                while True:
                    await _write_one(connection)
                    await asyncio.sleep(float(pause_s))
            finally:
                connection.terminate()
        except errors_of_asyncpg():
            await asyncio.sleep(0.05)  # the server starts again


async def _write_one(connection: asyncpg.Connection[Any]) -> None:
    key = random.randrange(KEYS)
    transaction = connection.transaction()
    await transaction.start()
    # The row lock puts the ids of a key in the order of the commits.
    number = await connection.fetchval(
        "UPDATE counter SET number = number + 1 WHERE key = $1 RETURNING number", key
    )
    await Outbox().add(connection, TOPIC, b"%d" % number, key=b"%d" % key)
    await connection.execute("INSERT INTO ledger VALUES ($1, $2)", key, number)
    if random.random() < _ROLLED_BACK:
        await transaction.rollback()
    else:
        await transaction.commit()


async def process(url: str, servers: str) -> None:
    """Write an effect for each record, until killed."""
    inbox = Inbox(url)

    async def handle(record: Record[bytes | None, bytes | None]) -> None:
        await inbox.connection.execute(
            "INSERT INTO effects (key, number) VALUES ($1, $2)",
            int(record.key or b""),
            int(record.value or b""),
        )

    await Processor(
        handle,
        TOPIC,
        bootstrap_servers=servers,
        group_id="effects",
        order="partition",
        guarantee="exactly_once_in_database",
        inbox=inbox,
        drain_timeout_ms=1_000,
        consumer={"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500},
    ).run()


_KINDS: dict[str, Callable[[str, str], Awaitable[None]]] = {"writer": write, "processor": process}


if __name__ == "__main__":

    async def _main() -> None:
        await _KINDS[sys.argv[1]](*sys.argv[2:])

    asyncio.run(_main())
