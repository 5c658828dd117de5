"""The FastAPI programs of docs/outbox.md and docs/databases.md, with uvicorn and PostgreSQL."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import aioprod
from aioprod.testing import ThreadedCluster
from tests.examples.test_database_example import ORDERS, place_orders
from tests.waiting import until

if TYPE_CHECKING:
    import asyncpg

PAGE = Path(aioprod.__file__).parent.parent / "docs" / "outbox.md"
TOPIC = "orders"


def program(page: str, database: str, servers: str) -> str:
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert code is not None
    text = code[1]
    for shown, real in (
        ("postgresql://shop@localhost/shop", database),
        ("localhost:9092", servers),
    ):
        assert shown in text
        text = text.replace(shown, real)
    return text


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@pytest.mark.slow
async def test_the_program_of_the_page(
    server: str,
    postgresql: asyncpg.Connection[Any],
    threaded_broker: ThreadedCluster,
    tmp_path: Path,
) -> None:
    page = PAGE.read_text(encoding="utf-8")
    (tmp_path / "shop.py").write_text(program(page, server, threaded_broker.bootstrap_servers))
    await postgresql.execute("DROP TABLE IF EXISTS orders; CREATE TABLE orders (item text)")
    threaded_broker.create_topic(TOPIC, 1)
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "shop:app", "--port", str(port)]
    process = await asyncio.to_thread(subprocess.Popen, command, cwd=tmp_path)
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", headers={"connection": "close"}
        ) as client:

            async def ordered(item: bytes) -> int | None:
                assert process.poll() is None
                try:
                    answer = await client.post("/orders/alice", content=item)
                except httpx.ConnectError:  # it starts
                    return None
                return answer.status_code

            await until(lambda: ordered(b"tea"), pause_s=0.1)
            assert await ordered(b"milk") == 201
            assert await ordered(b"\xff") == 500  # no text: the transaction rolls back
            assert await ordered(b"sugar") == 201
            await until(lambda: len(threaded_broker.records(TOPIC, committed_only=True)) == 3)
    finally:
        process.terminate()
        # uvicorn repeats the signal after the application's shutdown.
        assert await asyncio.to_thread(process.wait, 30) in (0, -signal.SIGTERM)
    found = [(each.key, each.value) for each in threaded_broker.records(TOPIC, committed_only=True)]
    assert found == [(b"alice", item) for item in (b"tea", b"milk", b"sugar")]
    rows = await postgresql.fetch("SELECT item FROM orders ORDER BY ctid")
    assert [row["item"] for row in rows] == ["tea", "milk", "sugar"]
    shown = await asyncio.to_thread(printed, "status", server)
    assert shown.startswith("0 rows wait; Kafka refused 0\nSHARD")
    assert "aioprod outbox status postgresql://" in page


def printed(action: str, server: str) -> str:
    command = [sys.executable, "-m", "aioprod", "outbox", action, server]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.mark.slow
async def test_the_program_of_docs_databases(
    server: str, threaded_broker: ThreadedCluster, tmp_path: Path
) -> None:
    import asyncpg

    connection = await asyncpg.connect(server)
    try:
        await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        database = server.replace("postgresql://", "postgresql+asyncpg://")
        await place_orders(threaded_broker, database, tmp_path)
        rows = await connection.fetch("SELECT customer, amount FROM orders ORDER BY id")
        assert [tuple(row) for row in rows] == ORDERS
        assert await connection.fetchval("SELECT count(*) FROM aioprod_outbox") == 0
    finally:
        await connection.close()
