"""No server of the tests, nor the embedded ones, leaves a connection that it accepts as it ends."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from urllib.parse import urlsplit

import pytest

from aioprod.testing import EmbeddedCluster
from aioprod.testing.registry import EmbeddedSchemaRegistry
from tests.plain_server import serving
from tests.testing.fault_proxy import FaultProxy

Address = tuple[str, int]
# An accepted connection has its protocol after three iterations of the loop.
ITERATIONS = range(8)


def _address(url: str) -> Address:
    parts = urlsplit(url if "//" in url else f"//{url}")
    assert parts.hostname is not None and parts.port is not None
    return parts.hostname, parts.port


@asynccontextmanager
async def _broker() -> AsyncIterator[Address]:
    async with EmbeddedCluster() as cluster:
        yield _address(cluster.bootstrap_servers)


@asynccontextmanager
async def _registry() -> AsyncIterator[Address]:
    async with EmbeddedSchemaRegistry() as registry:
        yield _address(registry.url)


@asynccontextmanager
async def _plain_server() -> AsyncIterator[Address]:
    async with serving(lambda reader, _: reader.read()) as port:
        yield "127.0.0.1", port


@asynccontextmanager
async def _fault_proxy() -> AsyncIterator[Address]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with FaultProxy(listening, "127.0.0.1:1"):
            yield listening.getsockname()


async def _client(
    running: Callable[[], AbstractAsyncContextManager[Address]], iterations: int
) -> socket.socket:
    async with running() as address:
        client = socket.create_connection(address)
        for _ in range(iterations):
            await asyncio.sleep(0)
    return client


SERVERS = [_broker, _registry, _plain_server, _fault_proxy]


@pytest.mark.asyncio_loop
@pytest.mark.parametrize("iterations", ITERATIONS)
@pytest.mark.parametrize("running", SERVERS, ids=lambda f: f.__name__)
def test_a_connection_accepted_late(
    running: Callable[[], AbstractAsyncContextManager[Address]], iterations: int
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        client = asyncio.run(_client(running, iterations))
        client.close()
        gc.collect()
    assert [str(warning.message) for warning in caught] == []
