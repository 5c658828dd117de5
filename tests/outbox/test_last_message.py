"""PostgreSQL announces the end of a connection with a message. A statement that begins between the
two fails like one on a closed connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from aioprod import TopicPartition
from aioprod.outbox import Outbox
from aioprod.processing.inbox import Inbox, ddl
from aioprod.processing.inbox import inbox as inbox_module
from aioprod.processing.inbox.inbox import Unavailable
from aioprod.testing import EmbeddedCluster
from tests.outbox.test_inbox_postgresql import LIBRARIES, connections
from tests.outbox.test_relay import TOPIC, relay_of, values
from tests.plain_server import serving
from tests.waiting import until

pytestmark = pytest.mark.slow

END_OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid != pg_backend_pid()
"""
# Of the end, for which psycopg waits.
DELAY_S = 0.5


class Relayed:
    """A proxy of PostgreSQL that delays the end of a connection.

    Attributes:
        url: the address for clients.
        ended: whether the server has ended a connection.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.ended = asyncio.Event()
        self._host, self._port = urlsplit(url).hostname, urlsplit(url).port

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay the bytes of a connection."""
        from_server, to_server = await asyncio.open_connection(self._host, self._port)
        sending = asyncio.create_task(_relay(reader, to_server))
        try:
            await _relay(from_server, writer)
            self.ended.set()
            await asyncio.wait([sending], timeout=DELAY_S)
        finally:
            sending.cancel()
            to_server.close()


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
    except OSError:
        pass  # that side has gone


@asynccontextmanager
async def relayed(url: str) -> AsyncIterator[Relayed]:
    proxy = Relayed(url)
    async with serving(proxy.talk) as port:
        proxy.url = url.replace(f":{urlsplit(url).port}/", f":{port}/")
        yield proxy


async def last_message(proxy: Relayed, database: asyncpg.Connection[Any]) -> None:
    """End all other connections, and return when their clients have read the message."""
    await database.execute(END_OTHERS)
    async with asyncio.timeout(10):
        await proxy.ended.wait()
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("when", ["in the handler", "after the handler", "before the commit"])
async def test_a_transaction_fails_as_without_a_connection(
    server: str, postgresql: asyncpg.Connection[Any], library: str, when: str
) -> None:
    await postgresql.execute(ddl("postgresql"))
    partition = TopicPartition("orders", 0)
    async with relayed(server) as proxy, connections(library, proxy.url) as given:
        inbox = Inbox(given)
        await inbox._open(1)
        try:
            assert await inbox._take_over("g", partition, "id") == (-1, 1)
            with pytest.raises(Unavailable):
                async with inbox._transaction("g", partition, 1) as step:
                    await last_message(proxy, postgresql)
                    if when == "in the handler":
                        await inbox_module._fetch(inbox.connection, "SELECT 1")
                    if when == "after the handler":
                        step.position = 8
            async with inbox._transaction("g", partition, 1) as step:
                assert step.position == -1
        finally:
            await inbox._close()


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_take_over_fails_as_without_a_connection(
    server: str,
    postgresql: asyncpg.Connection[Any],
    library: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then the processor retries it."""
    await postgresql.execute(ddl("postgresql"))
    partition = TopicPartition("orders", 0)
    fetch_at_once = inbox_module._fetch
    async with relayed(server) as proxy, connections(library, proxy.url) as given:

        async def fetch_after_the_end(*statement: Any) -> Any:
            await last_message(proxy, postgresql)
            return await fetch_at_once(*statement)

        inbox = Inbox(given)
        await inbox._open(1)
        try:
            with monkeypatch.context() as patched:
                patched.setattr(inbox_module, "_fetch", fetch_after_the_end)
                with pytest.raises(Unavailable):
                    await inbox._take_over("g", partition, "id")
            assert await inbox._take_over("g", partition, "id") == (-1, 1)
        finally:
            await inbox._close()


async def test_a_relay_connects_again(
    broker: EmbeddedCluster, server: str, postgresql: asyncpg.Connection[Any]
) -> None:
    broker.create_topic(TOPIC, 1)
    async with relayed(server) as proxy, relay_of(proxy.url, broker) as relay:
        await until(lambda: relay.ready)
        await last_message(proxy, postgresql)
        async with postgresql.transaction():
            await Outbox().add(postgresql, TOPIC, b"1")
        await until(lambda: values(broker) == [b"1"])
