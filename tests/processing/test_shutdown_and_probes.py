"""Signals in a process of its own, and the endpoints in aiohttp and FastAPI applications."""

from __future__ import annotations

import asyncio
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
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from fastapi import FastAPI

import aioprod
from aioprod import Producer, TopicPartition
from aioprod.processing import Processor, Record
from aioprod.testing import EmbeddedCluster, ThreadedCluster
from tests.selection import needs_posix

LIMIT_S = 60
PROGRAM = """
import asyncio, sys
from aioprod.processing import Processor

async def handle(record):
    print("begun", flush=True)
    await asyncio.sleep(float(sys.argv[2]))
    print("done", flush=True)

asyncio.run(Processor(handle, "orders", bootstrap_servers=sys.argv[1], group_id="g").run())
"""


async def send(servers: str) -> None:
    async with Producer(servers) as producer:
        await producer.send_and_wait("orders", b"tea")


@contextmanager
def working(
    broker: ThreadedCluster, seconds: float, output: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose handler runs for a while."""
    broker.create_topic("orders", 1)
    asyncio.run(send(broker.bootstrap_servers))
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, broker.bootstrap_servers, str(seconds)],
            env={**os.environ, "PYTHONPATH": str(Path(aioprod.__file__).parent.parent)},
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
        try:
            deadline = time.monotonic() + LIMIT_S
            while "begun" not in output.read_text():
                assert process.poll() is None and time.monotonic() < deadline, output.read_text()
                time.sleep(0.02)
            yield process
        finally:
            process.kill()
            process.wait(10)


@needs_posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_handler_end(
    threaded_broker: ThreadedCluster, tmp_path: Path, number: signal.Signals
) -> None:
    output = tmp_path / "output"
    with working(threaded_broker, 1, output) as process:
        process.send_signal(number)
        assert process.wait(LIMIT_S) == 0, output.read_text()
    assert output.read_text().split() == ["begun", "done"]
    assert threaded_broker.committed_offsets("g") == {TopicPartition("orders", 0): 1}
    assert threaded_broker.group("g").members == {}


@needs_posix
def test_a_second_signal_ends_at_once(threaded_broker: ThreadedCluster, tmp_path: Path) -> None:
    output = tmp_path / "output"
    with working(threaded_broker, 1_000, output) as process:
        began = time.monotonic()
        for number in (signal.SIGTERM, signal.SIGINT):  # the kernel merges equal ones
            process.send_signal(number)
        ended = process.wait(LIMIT_S)
        assert ended in (128 + signal.SIGTERM, 128 + signal.SIGINT), output.read_text()
        assert time.monotonic() - began < 25  # below drain_timeout_ms
    assert output.read_text().split() == ["begun"]
    assert threaded_broker.committed_offsets("g") == {}


@needs_posix
def test_a_signal_ends_a_start_that_waits(tmp_path: Path) -> None:
    output = tmp_path / "output"
    with socket.create_server(("127.0.0.1", 0)) as silent, output.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, f"127.0.0.1:{silent.getsockname()[1]}", "0"],
            env={**os.environ, "PYTHONPATH": str(Path(aioprod.__file__).parent.parent)},
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
        try:
            silent.settimeout(LIMIT_S)
            with silent.accept()[0]:  # it connects, and gets no answer
                began = time.monotonic()
                process.send_signal(signal.SIGTERM)
                assert process.wait(LIMIT_S) == 0, output.read_text()
            assert time.monotonic() - began < 10  # far below the limit of the start
        finally:
            process.kill()
            process.wait(10)
    assert output.read_text() == ""


def processor_of(broker: EmbeddedCluster) -> Processor[bytes | None, bytes | None]:
    async def handle(record: Record[bytes | None, bytes | None]) -> None: ...

    return Processor(handle, "orders", bootstrap_servers=broker.bootstrap_servers, group_id="g")


async def test_aiohttp(broker: EmbeddedCluster) -> None:
    broker.create_topic("orders", 1)
    processor = processor_of(broker)
    app = web.Application()
    app.cleanup_ctx.append(processor.cleanup_ctx)
    app.router.add_get("/kafka/{probe}", processor.aiohttp_health)
    async with TestClient(TestServer(app)) as client, asyncio.timeout(LIMIT_S):
        while (answer := await client.get("/kafka/ready")).status != 200:
            assert answer.status == 503
        expected = {"status": "running", "ready": True, "healthy": True}
        assert await answer.json() == expected
        assert (await client.get("/kafka/healthy")).status == 200
    assert not processor.healthy
    assert broker.group("g").members == {}


async def test_fastapi(broker: EmbeddedCluster) -> None:
    broker.create_topic("orders", 1)
    processor = processor_of(broker)
    app = FastAPI(lifespan=processor.lifespan)
    app.mount("/kafka", processor.health_app)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        assert (await client.get("/kafka/ready")).status_code == 503
        async with app.router.lifespan_context(app), asyncio.timeout(LIMIT_S):
            while (await client.get("/kafka/ready")).status_code != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert (await client.get("/kafka/healthy")).json()["healthy"]
        assert (await client.get("/kafka/healthy")).status_code == 503
    assert broker.group("g").members == {}
