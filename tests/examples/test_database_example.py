"""The program of docs/databases.md, which is also in examples/: with SQLite here, and with
PostgreSQL in tests/outbox.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import httpx

import aioprod
from aioprod import Producer
from aioprod.testing import ThreadedCluster
from tests.testing.doc_blocks import DOCS, python_blocks
from tests.waiting import until

ROOT = Path(aioprod.__file__).parent.parent
PROGRAM = ROOT / "examples" / "database_app.py"
PARTITIONS = 2
ORDERS = [(f"c{number % 3}", number) for number in range(30)]
# More than an integer of a database.
TOO_LARGE = 2**70


def test_the_program_of_the_page_is_the_example() -> None:
    page = (DOCS / "databases.md").read_text(encoding="utf-8")
    docstring, _, program = PROGRAM.read_text(encoding="utf-8").partition('"""\n\n')
    assert python_blocks(page) == [program] and docstring.startswith('r"""')
    for shown in ("sqlite+aiosqlite:///shop.db", "aioprod broker --topic orders"):
        assert shown in page and shown in docstring


async def test_orders_and_totals_in_a_file(
    threaded_broker: ThreadedCluster, tmp_path: Path
) -> None:
    await place_orders(threaded_broker, f"sqlite+aiosqlite:///{tmp_path}/shop.db", tmp_path)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        placed = connection.execute("SELECT customer, amount FROM orders ORDER BY id").fetchall()
        assert placed == ORDERS
        assert connection.execute("SELECT count(*) FROM aioprod_outbox").fetchone() == (0,)


async def place_orders(cluster: ThreadedCluster, database: str, folder: Path) -> None:
    """Place orders with two runs of the program, and compare the topics and the totals."""
    cluster.create_topic("orders", PARTITIONS)
    cluster.create_topic("orders.dead", 1)
    environment = {
        **os.environ,
        "AIOPROD_BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
        "DATABASE": database,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{PROGRAM.parent}",
    }
    create = [sys.executable, str(PROGRAM)]
    await asyncio.to_thread(subprocess.run, create, env=environment, check=True, timeout=60)
    invalid = b'{"customer": "c0"}'
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("orders", invalid, partition=0)
    totals: Counter[str] = Counter()
    for part in (ORDERS[:20], ORDERS[20:]):
        async with running(environment, folder / "log") as client:
            for customer, amount in part:
                assert await order(client, customer, amount) == 201
                totals[customer] += amount
            assert await order(client, "c0", TOO_LARGE) == 500

            async def are_booked() -> bool:
                urls = [f"/customers/{customer}" for customer in totals]
                return [(await client.get(url)).json() for url in urls] == [*totals.values()]

            await until(are_booked, pause_s=0.05)
            await until(lambda: cluster.records("orders.dead"))
    assert [record.value for record in cluster.records("orders.dead")] == [invalid]
    records = cluster.records("orders", committed_only=True)
    sent = [json.loads(record.value or b"") for record in records if record.value != invalid]
    assert len(sent) == len(ORDERS)
    for customer in totals:
        amounts = [each["amount"] for each in sent if each["customer"] == customer]
        assert amounts == [amount for name, amount in ORDERS if name == customer]


async def order(client: httpx.AsyncClient, customer: str, amount: int) -> int:
    placed = await client.post("/orders", json={"customer": customer, "amount": amount})
    return placed.status_code


def text_of(log: Path) -> str:
    return log.read_text()


@asynccontextmanager
async def running(environment: dict[str, str], log: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Run the program with uvicorn, and end it as a service manager does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "database_app:app", "--port", str(port)]
    with log.open("a") as output:
        process = await asyncio.to_thread(
            subprocess.Popen, command, env=environment, stdout=output, stderr=output
        )
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", headers={"connection": "close"}, timeout=30
        ) as client:

            async def responds() -> bool:
                assert process.poll() is None, text_of(log)
                try:
                    return (await client.get("/customers/unknown")).status_code == 200
                except httpx.ConnectError:  # it starts
                    return False

            await until(responds, pause_s=0.05)
            yield client
    except TimeoutError:
        raise AssertionError(text_of(log)) from None
    finally:
        process.terminate()
        # uvicorn repeats the signal after the application's shutdown.
        status = await asyncio.to_thread(process.wait, 30)
    assert status in (0, -15), text_of(log)
