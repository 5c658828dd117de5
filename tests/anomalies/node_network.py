"""Proxies between the nodes of a real cluster, which cut one node off from the others, while its
clients still reach it.

The nodes advertise the proxies' ports for the listener that brokers use among themselves and for
that of the controllers. Clients that bootstrap from the former pass the proxies too, but are never
cut off. A proxy knows which node has made a connection from the client id of its first request.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Self

from aioprod.testing.real_cluster import RealCluster

_LISTENERS = ("PLAINTEXT", "CONTROLLER")
_ADDRESS = re.compile(r"(?<=127\.0\.0\.1:)\d+")
_CHUNK_BYTES = 1 << 16
_CLIENT_ID_AT = 14
_CLIENT_ID = re.compile(rb"(?:raft-client-)?(\d+)|broker-(\d+)-.*")
"""The client ids of nodes: of controllers, of brokers that ask the controller, and of brokers that
fetch from others or write markers.
"""


class NodeNetwork:
    """The connections between nodes.

    Attributes:
        waiting: the number of connections on which something is delayed.
    """

    def __init__(self, cluster: RealCluster) -> None:
        self.waiting = 0
        self._cluster = cluster
        self._isolated: int | None = None
        self._whole = asyncio.Event()
        self._whole.set()
        self._connections: set[asyncio.Task[None]] = set()

    @classmethod
    @asynccontextmanager
    async def between(cls, cluster: RealCluster) -> AsyncIterator[Self]:
        """Restart the nodes with proxies between them, and without them when the block ends."""
        network = cls(cluster)
        files = {
            node: cluster._node_directory(node) / "server.properties" for node in cluster.node_ids
        }
        before = {path: path.read_text() for path in files.values()}
        servers, proxied = [], {}
        for node, path in files.items():
            for port in internal_ports(before[path]):
                accepted = functools.partial(network._accepted, node, port)
                servers.append(await asyncio.start_server(accepted, "127.0.0.1", 0))
                proxied[port] = servers[-1].sockets[0].getsockname()[1]
        try:
            await network._restart({path: rewired(text, proxied) for path, text in before.items()})
            yield network
        finally:
            network.join()
            await network._restart(before)
            for server in servers:
                server.close()
            for each in network._connections:
                each.cancel()
            await asyncio.gather(*network._connections, return_exceptions=True)

    async def _restart(self, settings: Mapping[Path, str]) -> None:
        for path, text in settings.items():
            path.write_text(text)
        await asyncio.to_thread(self._cluster.restart, *self._cluster.node_ids)

    def isolate(self, node: int) -> None:
        """Delay everything between a node and the others, also on new connections."""
        self._isolated = node
        self._whole.clear()

    def join(self) -> None:
        """Deliver what was delayed, as a network does that works again."""
        self._isolated = None
        self._whole.set()

    def _is_cut(self, source: int | None, target: int) -> bool:
        return (
            source is not None
            and source != target
            and self._isolated is not None
            and self._isolated in (source, target)
        )

    async def _until_passes(self, source: int | None, target: int) -> None:
        self.waiting += 1
        try:
            while self._is_cut(source, target):
                await self._whole.wait()
        finally:
            self.waiting -= 1

    async def _accepted(
        self, node: int, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with suppress(OSError):  # one of the two nodes has ended
                await self._serve(node, port, reader, writer)
        finally:
            await _close(writer)
            self._connections.discard(task)

    async def _serve(
        self, node: int, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        first = await reader.read(_CHUNK_BYTES)
        source = sender(first)
        await self._until_passes(source, node)
        from_node, to_node = await asyncio.open_connection("127.0.0.1", port)
        to_node.write(first)
        both = [
            asyncio.create_task(self._pass_on(reader, to_node, source, node)),
            asyncio.create_task(self._pass_on(from_node, writer, source, node)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            to_node.close()  # first, as the end of the network cancels this a second time
            for each in both:
                each.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            await _close(to_node)

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        source: int | None,
        target: int,
    ) -> None:
        data = b"."
        while data:
            data = await reader.read(_CHUNK_BYTES)
            await self._until_passes(source, target)
            writer.write(data)
            await writer.drain()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def sender(request: bytes) -> int | None:
    """Return the node that has sent a request; None if it was a client."""
    size = int.from_bytes(request[_CLIENT_ID_AT - 2 : _CLIENT_ID_AT], "big")
    found = _CLIENT_ID.fullmatch(request[_CLIENT_ID_AT : _CLIENT_ID_AT + size])
    return int(found[1] or found[2]) if found else None


def internal_ports(settings: str) -> list[int]:
    """Return the ports of a node's listeners for other nodes, from its ``server.properties``."""
    listeners = _setting(settings, "listeners")
    return [
        int(port)
        for name in _LISTENERS
        for port in re.findall(rf"\b{name}://127\.0\.0\.1:(\d+)", listeners)
    ]


def rewired(settings: str, ports: Mapping[int, int]) -> str:
    """Return ``server.properties`` in which nodes find each other at other ports.

    Args:
        ports: those of the proxies by the nodes' own.
    """

    def proxied(found: re.Match[str]) -> str:
        return str(ports.get(int(found[0]), found[0]))

    controller = internal_ports(settings)[1]
    lines = []
    for line in settings.splitlines():
        name = line.partition("=")[0]
        if name in ("advertised.listeners", "controller.quorum.voters"):
            line = _ADDRESS.sub(proxied, line)
        if name == "advertised.listeners":
            line += f",CONTROLLER://127.0.0.1:{ports[controller]}"
        lines.append(f"{line}\n")
    return "".join(lines)


def _setting(settings: str, name: str) -> str:
    found = re.search(rf"^{re.escape(name)}=(.*)$", settings, re.MULTILINE)
    assert found is not None, name
    return found[1]
