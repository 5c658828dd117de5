"""The example applications, started as users start them and called over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import aioprod
from aioprod import Producer
from aioprod.testing import ThreadedCluster

ROOT = Path(aioprod.__file__).parent.parent
EXAMPLES = Path(__file__).parent.parent.parent / "examples"
START_LIMIT_S = 60


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def _running(application: str, servers: str, log: Path) -> Iterator[httpx.Client]:
    """The application as a process of its own, ended as a service manager would; the log is shown
    where it fails.
    """
    port = _free_port()
    commands = {
        "fastapi": [
            sys.executable,
            "-m",
            "uvicorn",
            "fastapi_app:app",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ],
        "fastapi-script": [sys.executable, "fastapi_app.py"],
        "aiohttp": [sys.executable, "aiohttp_app.py"],
        "processing": [
            sys.executable,
            "-m",
            "uvicorn",
            "processing_fastapi:app",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ],
    }
    environment = {
        **os.environ,
        "AIOPROD_BOOTSTRAP_SERVERS": servers,
        "PORT": str(port),
        "PYTHONPATH": str(ROOT),
    }
    with (
        log.open("w") as output,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
    ):
        process = subprocess.Popen(
            commands[application],
            cwd=EXAMPLES,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_until_it_listens(process, port, log)
            yield client
            process.send_signal(signal.SIGTERM)
            process.wait(30)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(10)
    assert "Traceback" not in log.read_text()


def _wait_until_it_listens(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)


@pytest.mark.parametrize("application", ["fastapi", "fastapi-script", "aiohttp"])
def test_an_order_over_http_is_a_record_in_kafka(
    application: str, threaded_broker: ThreadedCluster, tmp_path: Path
) -> None:
    orders = [
        {"customer": str(number % 3), "item": "tea", "quantity": number} for number in range(20)
    ]
    with _running(application, threaded_broker.bootstrap_servers, tmp_path / "log") as client:
        answers = [client.post("/orders", json=order) for order in orders]
        assert [answer.status_code for answer in answers] == [201] * 20
        # The answer comes after the acknowledgement, with the record's true place.
        assert [answer.json() for answer in answers] == [
            {"partition": 0, "offset": offset} for offset in range(20)
        ]
        assert client.post(
            "/orders", content=b"no order", headers={"content-type": "application/json"}
        ).status_code in (400, 422)
        assert client.post("/clicks/home").status_code == 202
    # The click was only taken; the application delivers it before it ends.
    assert [record.value for record in threaded_broker.records("clicks")] == [b"home"]
    records = threaded_broker.records("orders")
    assert [json.loads(record.value or b"") for record in records] == orders
    assert [record.key for record in records] == [
        str(order["customer"]).encode() for order in orders
    ]


@pytest.mark.parametrize("application", ["fastapi", "aiohttp"])
def test_an_application_without_a_broker_says_so_and_ends(application: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(AssertionError, match=r"127\.0\.0\.1:1\b"):
        with _running(application, "127.0.0.1:1", log):
            pass


@pytest.mark.parametrize(
    "command",
    [
        ["fastapi_app.py"],
        ["aiohttp_app.py"],
        ["consumer_group.py", "orders"],
        ["outbox.py", "orders.db", "relay"],
    ],
    ids=lambda command: command[0],
)
def test_a_program_without_a_broker_shows_how_to_start_one(
    command: list[str], tmp_path: Path
) -> None:
    program, *arguments = command
    result = subprocess.run(
        [sys.executable, EXAMPLES / program, *arguments],
        cwd=tmp_path,
        env={**os.environ, "AIOPROD_BOOTSTRAP_SERVERS": "127.0.0.1:1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=START_LIMIT_S,
        check=False,
    )
    assert result.returncode == 1
    assert "127.0.0.1:1" in result.stderr
    assert result.stderr.endswith("\nStart a broker for tests with: aioprod broker\n")
    assert "Traceback" not in result.stderr


def test_an_application_counts_orders_and_commits_when_it_ends(
    threaded_broker: ThreadedCluster, tmp_path: Path
) -> None:
    servers = threaded_broker.bootstrap_servers
    threaded_broker.create_topic("orders", 2)
    threaded_broker.create_topic("orders.dead", 1)

    async def send() -> None:
        async with Producer(servers) as producer:
            for number in range(30):
                order = {"customer": str(number % 3), "quantity": number}
                key = str(number % 3).encode()
                await producer.send("orders", json.dumps(order).encode(), key=key)
            await producer.send("orders", b"no order", key=b"0")

    asyncio.run(send())
    with _running("processing", servers, tmp_path / "log") as client:
        deadline = time.monotonic() + START_LIMIT_S
        expected = [sum(range(customer, 30, 3)) for customer in range(3)]
        while [
            client.get(f"/customers/{customer}").json()["quantity"] for customer in range(3)
        ] != expected or not threaded_broker.records("orders.dead"):
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.05)
        for probe in ("ready", "healthy"):
            answered = client.get(f"/kafka/{probe}")
            assert (answered.status_code, answered.json()["status"]) == (200, "running")
    committed = threaded_broker.committed_offsets("totals")
    assert sum(committed.values()) == 31
    assert threaded_broker.group("totals").members == {}
