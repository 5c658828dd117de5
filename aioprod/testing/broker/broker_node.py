"""One node of the embedded broker: its port, its connections, and whether it is running, frozen or
stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
from collections.abc import Collection, Coroutine
from typing import Any
from weakref import WeakKeyDictionary

from aioprod.testing.broker.access.client_access import Peer
from aioprod.testing.broker.actions import Answer, DropConnection
from aioprod.testing.broker.cluster import NO_NODE, Cluster, NodeAddress
from aioprod.testing.broker.connection import Connection, ConnectionHandler, Lifetime
from aioprod.testing.broker.dispatcher import Dispatcher
from aioprod.testing.broker.imitation import Imitation
from aioprod.testing.broker.security import BrokerSecurity, ConnectionLogin, LoginGuard

_STOP_LIMIT_SECONDS = 5.0


class BrokerNode(ConnectionHandler):
    """Listens for connections, and passes requests to the dispatcher that all nodes share.

    Attributes:
        port: 0 until the first start; kept when the node is restarted.
    """

    def __init__(
        self,
        node_id: int,
        host: str,
        port: int,
        dispatcher: Dispatcher,
        security: BrokerSecurity | None = None,
        imitation: Imitation | None = None,
    ) -> None:
        self._imitation = imitation = imitation or Imitation()
        self._lifetime = Lifetime(imitation.idle_s, imitation.lifetime_s)
        self.node_id = node_id
        self.host = host
        self.port: int = port
        self._dispatcher = dispatcher
        self._security = security
        # A dict keeps the order, so that a simulation replays.
        self._connections: dict[Connection, None] = {}
        self._server: asyncio.Server | None = None
        self._accepting = False
        self._kept_port: socket.socket | None = None
        self._thawed = asyncio.Event()
        self._thawed.set()

    @property
    def running(self) -> bool:
        """True if the node is listening."""
        return self._server is not None

    @property
    def address(self) -> NodeAddress:
        """The node as responses describe it."""
        return NodeAddress(self.node_id, self._imitation.advertised_host or self.host, self.port)

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    async def start(self) -> None:
        """Listen. Raise OSError if the port is not available."""
        self._release_port()
        self._thawed.set()
        self._accepting = True
        tls = None if self._security is None else self._security.ssl_context
        # Listening starts in a separate step: if this call were cancelled after it, the server
        # would be lost.
        self._server = await asyncio.get_running_loop().create_server(
            self._connection, self.host, self.port, ssl=tls, start_serving=False
        )
        await self._server.start_serving()
        self.port = self._server.sockets[0].getsockname()[1]

    def _connection(self) -> Connection:
        if self._security is None or not self._security.offered:
            return Connection(self, self._lifetime)
        session = ConnectionLogin(self._security, self._dispatcher.scram_users)
        return Connection(LoginGuard(self, self.answer, session), self._lifetime)

    async def stop(self, *, keep_port: bool = False) -> None:
        """Close the port and all connections within five seconds, including connections that wait
        for an action.

        With ``keep_port``, the port stays bound until the next start or stop, and refuses
        connections.
        """
        await self.begin_stop(keep_port=keep_port)

    def begin_stop(self, *, keep_port: bool) -> Coroutine[Any, Any, None]:
        """Close the port and all connections; the coroutine waits until they are closed."""
        self._accepting = False
        if not keep_port:
            self._release_port()
        server, self._server = self._server, None
        tasks: list[asyncio.Task[None]] = []
        if server is not None:
            listener = server.sockets[0]
            family, address = listener.family, listener.getsockname()
            server.close()
            if keep_port:
                self._kept_port = _bind(family, address)
            tasks = [connection.abort() for connection in self._connections]
        return self._stopped(server, tasks)

    async def _stopped(
        self, server: asyncio.Server | None, tasks: Collection[asyncio.Task[None]]
    ) -> None:
        if tasks:
            await asyncio.wait(tasks, timeout=_STOP_LIMIT_SECONDS)
        if server is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(server.wait_closed(), _STOP_LIMIT_SECONDS)

    def _release_port(self) -> None:
        if self._kept_port is not None:
            self._kept_port.close()
            self._kept_port = None

    def freeze(self) -> None:
        """Accept connections and read requests, but do not handle them, like a process stopped by
        SIGSTOP.
        """
        self._thawed.clear()

    def unfreeze(self) -> None:
        """Handle the requests that have arrived since :meth:`freeze`, and continue."""
        self._thawed.set()

    # -- calls from connections --------------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        """Remember a connection, so that it can be closed with the node."""
        self._connections[connection] = None
        most = self._imitation.most_connections
        if not self._accepting or (most is not None and self.connection_count > most):
            connection.abort()  # accepted while the node was stopping, or over the limit

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self._connections.pop(connection, None)

    async def answer(
        self,
        frame: bytes,
        disconnected: asyncio.Future[None],
        peer: Peer,
        session: ConnectionLogin | None = None,
    ) -> Answer:
        """Handle a request, unless the node is frozen."""
        await self._thawed.wait()
        answer = await self._dispatcher.answer(frame, disconnected, self.address, peer, session)
        await self._thawed.wait()
        return answer


class Balancer(BrokerNode):
    """A load balancer: each connection leads to one of the running nodes, in turn."""

    def __init__(
        self,
        cluster: Cluster,
        host: str,
        port: int,
        dispatcher: Dispatcher,
        security: BrokerSecurity | None = None,
    ) -> None:
        super().__init__(NO_NODE, host, port, dispatcher, security)
        self._cluster = cluster
        self._chosen: WeakKeyDictionary[asyncio.Future[None], NodeAddress] = WeakKeyDictionary()
        self._turn = itertools.count()

    async def answer(
        self,
        frame: bytes,
        disconnected: asyncio.Future[None],
        peer: Peer,
        session: ConnectionLogin | None = None,
    ) -> Answer:
        """Pass a request to the connection's node."""
        node = self._chosen.get(disconnected)
        if node is None:
            running = self._cluster.running
            if not running:
                raise DropConnection
            node = self._chosen[disconnected] = running[next(self._turn) % len(running)]
        return await self._dispatcher.answer(frame, disconnected, node, peer, session)


def listeners(
    cluster: Cluster, host: str, port: int, dispatcher: Dispatcher, security: BrokerSecurity | None
) -> tuple[dict[int, BrokerNode], Balancer | None]:
    """Create the nodes of a cluster, by node id, and the load balancer, if there is one.

    Args:
        port: the port of the load balancer or the first node; the next node uses the next port. 0
            chooses free ports.
    """
    imitation = cluster.imitation
    ports = itertools.count(port) if port else itertools.repeat(0)
    balancer = (
        Balancer(cluster, host, next(ports), dispatcher, security)
        if imitation.has_balancer
        else None
    )
    nodes = {
        node_id: BrokerNode(node_id, host, next(ports), dispatcher, security, imitation)
        for node_id in cluster.node_ids
    }
    return nodes, balancer


def _bind(family: socket.AddressFamily, address: Any) -> socket.socket | None:
    """Reserve an address without listening. Return None if another process was faster, or in a
    simulated network, where no other process exists.
    """
    if family == socket.AF_UNSPEC:
        return None
    reserved = socket.socket(family)
    try:
        if os.name == "posix":  # old connections may be in TIME_WAIT
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(address)
    except OSError:
        reserved.close()
        return None
    return reserved
