"""Databases with the tables: a file of SQLite, and a PostgreSQL on a free port."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioprod.outbox import ddl
from tests.outbox.postgres_server import PostgresServer

if TYPE_CHECKING:
    import asyncpg


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "orders.db")


@pytest.fixture
def database(path: str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(ddl("sqlite"))
        yield connection


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="aioprod-pg-") as folder:
        os.chmod(folder, 0o777)
        server = PostgresServer(folder)
        server.start()
        try:
            yield server
        finally:
            server.kill()


@pytest.fixture
def server(postgres_server: PostgresServer) -> str:
    """The address of a PostgreSQL."""
    return postgres_server.url


@pytest.fixture
async def postgresql(server: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    import asyncpg

    connection = await asyncpg.connect(server)
    await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    await connection.execute(ddl("postgresql"))
    yield connection
    await connection.close()
