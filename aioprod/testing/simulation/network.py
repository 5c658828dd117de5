"""The simulated network: connections, latency, and faults to inject."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, cast

from aioprod.testing.simulation.addresses import Addresses
from aioprod.testing.simulation.hosts import HOST
from aioprod.testing.simulation.network_faults import (
    ActiveFaults,
    Effect,
    NetworkFault,
    Place,
    matches,
)
from aioprod.testing.simulation.pipes import Conditions, Link, Names, NetworkState
from aioprod.testing.simulation.server import SimulatedServer
from aioprod.testing.simulation.trace import SimulationError, Trace
from aioprod.testing.simulation.transports import SimulatedTransport, make_tls_protocol

_FIRST_CLIENT_PORT = 40_000
_CONNECT_TIMEOUT_SECONDS = 127.0  # six retransmissions of a SYN, as in Linux
_MAX_RETRANSMIT_SECONDS = 0.3


class Network:
    """Connects the clients and servers of a :class:`SimulatedLoop`, and injects faults.

    Faults name an end of a connection by its address (``127.0.0.1:20000``, as in
    ``cluster.address(1)``), or by the host that was set by :meth:`host` when the end was created
    (``client`` by default). A fault is active until its ``heal()``, or until the end of a ``with``
    block.

    Attributes:
        split_probability: the probability that a write arrives in several pieces.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, random: Random, trace: Trace) -> None:
        self._loop = loop
        self._random = random
        self._trace = trace
        self._state = NetworkState(loop, random, trace, 0.1)
        self._normal = Conditions((0.0002, 0.002))
        self._addresses = Addresses()
        self._server_names: dict[str, Names] = {}
        self._links: list[Link] = []
        self._links_made = 0
        self._faults = ActiveFaults()
        self._waiters: list[asyncio.Future[None]] = []  # for changed conditions

    # -- without faults ----------------------------------------------------------------------------

    @property
    def split_probability(self) -> float:
        """The probability that a write arrives in several pieces; 0.1 by default."""
        return self._state.split_probability

    @split_probability.setter
    def split_probability(self, value: float) -> None:
        self._state.split_probability = value

    @property
    def latency_seconds(self) -> tuple[float, float]:
        """The minimum and maximum latency; 0.2 to 2 ms by default."""
        return self._normal.latency

    @latency_seconds.setter
    def latency_seconds(self, limits: tuple[float, float]) -> None:
        self._normal = Conditions(limits)
        self._conditions_changed()

    @contextmanager
    def host(self, name: str) -> Iterator[None]:
        """Name the host of the connections, servers and tasks that are created in this block."""
        token = HOST.set(name)
        try:
            yield
        finally:
            HOST.reset(token)

    # -- faults ------------------------------------------------------------------------------------

    def cut(self, one: Place = None, other: Place = None) -> int:
        """Reset all connections between two places now, and return their number.

        Of the packets in flight, none, all or the first few are still delivered.
        """
        links = [link for link in self._links if _connects(link, one, other)]
        for link in links:
            link.cut()
        self._note(f"cut {one} {other}: connections {len(links)}")
        return len(links)

    def cut_while_sending(
        self,
        sender: Place = None,
        receiver: Place = None,
        *,
        times: int = 1,
        delivered: float | None = None,
    ) -> NetworkFault:
        """Break a connection in the middle of a write from sender to receiver, ``times`` times.

        Args:
            delivered: the share of the written bytes that is delivered first; random if None. From
                a broker, ``delivered=0`` loses a response: the broker has handled the request, but
                the client does not know.
        """
        share = self._random.random if delivered is None else lambda: delivered
        return self._add(
            "cut while sending",
            Effect(cut_share=share),
            sender,
            receiver,
            both_ways=False,
            times=times,
        )

    def partition(
        self, sender: Place, receiver: Place = None, *, one_way: bool = False
    ) -> NetworkFault:
        """Block all traffic between two places silently: nothing is refused or reset.

        When the fault ends, TCP retransmits the data, so it arrives late. With ``one_way``, bytes
        from ``receiver`` to ``sender`` still arrive, but new connections can't be established.
        """
        return self._add("partition", Effect(blocked=True), sender, receiver, both_ways=not one_way)

    def black_hole(self, place: Place = None) -> NetworkFault:
        """Block all traffic to and from a place silently."""
        return self._add("black hole", Effect(blocked=True), place, None, both_ways=True)

    def vanish(self, place: Place) -> NetworkFault:
        """Switch a machine off: block its traffic silently. When the fault ends, reset its
        connections, which it no longer knows.
        """
        return self._add("vanish", Effect(blocked=True, resets=True), place, None, both_ways=True)

    def refuse(self, receiver: Place = None, sender: Place = None) -> NetworkFault:
        """Refuse new connections to a place; open connections are not affected."""
        return self._add("refuse", Effect(refuses=True), sender, receiver, both_ways=False)

    def slow(
        self,
        bytes_per_second: float,
        sender: Place = None,
        receiver: Place = None,
        *,
        one_way: bool = False,
    ) -> NetworkFault:
        """Limit the bandwidth of each direction of each connection, so that senders' buffers fill.

        Raises:
            ValueError: if ``bytes_per_second`` is not greater than 0.
        """
        if bytes_per_second <= 0:
            raise ValueError(f"bytes_per_second={bytes_per_second}: must be greater than 0")
        return self._add(
            f"slow {bytes_per_second}",
            Effect(bytes_per_second=bytes_per_second),
            sender,
            receiver,
            both_ways=not one_way,
        )

    def delay(
        self,
        low: float,
        high: float,
        sender: Place = None,
        receiver: Place = None,
        *,
        one_way: bool = False,
    ) -> NetworkFault:
        """Set the latency to ``low`` to ``high`` seconds instead of :attr:`latency_seconds`.

        Raises:
            ValueError: if a limit is negative or ``low`` is greater than ``high``.
        """
        if not 0 <= low <= high:
            raise ValueError(f"delay({low}, {high}): must be 0 <= low <= high")
        return self._add(
            f"delay {low} {high}",
            Effect(latency=(low, high)),
            sender,
            receiver,
            both_ways=not one_way,
        )

    def heal(self) -> None:
        """End all faults."""
        for fault in list(self._faults):
            fault.heal()

    def _add(
        self,
        kind: str,
        effect: Effect,
        sender: Place,
        receiver: Place,
        *,
        both_ways: bool,
        times: int | None = None,
    ) -> NetworkFault:
        fault = NetworkFault(
            effect, sender, receiver, both_ways=both_ways, times=times, on_heal=self._heal
        )
        self._faults.add(fault)
        self._note(f"{kind} {sender} {receiver}")
        self._conditions_changed()
        return fault

    def _heal(self, fault: NetworkFault) -> None:
        if fault not in self._faults:
            return
        self._faults.remove(fault)
        self._note("healed")
        if fault.effect.resets:
            for link in self._links:
                if fault.affects(*link.names):
                    link.cut({0: 0.0, 1: 0.0})
        self._conditions_changed()

    def _conditions_changed(self) -> None:
        self._state.cut_share = self._faults.cut_share if self._faults.cut_writes else None
        for link in self._links:
            for direction in (0, 1):
                conditions = self._conditions(link.names[direction], link.names[1 - direction])
                retransmit_seconds = self._random.random() * _MAX_RETRANSMIT_SECONDS
                link.set_conditions(direction, conditions, retransmit_seconds)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _conditions(self, sender: Names, receiver: Names) -> Conditions:
        return self._faults.apply(self._normal, sender, receiver)

    def _note(self, text: str) -> None:
        self._trace.note(self._loop.time(), text)

    # -- servers -----------------------------------------------------------------------------------

    def listen(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None,
        port: int | None,
        *,
        tls: ssl.SSLContext | None = None,
        start_serving: bool = True,
    ) -> SimulatedServer:
        """Create a server. Port 0 or None chooses a port that was never used.

        Raises:
            OSError: if the port is in use.
        """
        name, port = self._addresses.reserve(host, port)
        server = SimulatedServer(
            self._loop,
            protocol_factory,
            (name or "0.0.0.0", port),
            tls,
            self._addresses.remove,
        )
        self._addresses.add(name, port, server)
        self._server_names[f"{name}:{port}"] = (f"{name}:{port}", HOST.get())
        if start_serving:
            server.listen()
        return server

    def resolve(
        self, host: str | None, port: Any
    ) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]]:
        """Resolve a host name, as :meth:`Addresses.resolve` does."""
        return self._addresses.resolve(host, port)

    # -- connections -------------------------------------------------------------------------------

    async def connect(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None,
        port: int | None,
        *,
        tls: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """Connect to a server.

        Raises:
            OSError: if connecting fails, as with real sockets.
            SimulationError: if host or port is missing.
        """
        if host is None or port is None:
            raise SimulationError(
                "a connection in the simulation needs a host and a port; sockets are not supported"
            )
        _, _, _, _, (name, number) = self.resolve(host, port)[0]
        transport = await self._handshake(name, number)
        try:
            protocol = protocol_factory()
            if tls is None:
                transport.take_over(protocol)
                return transport, protocol
            return await self._start_tls(
                transport, protocol, tls, server_hostname or host
            ), protocol
        except BaseException:
            transport.abort()
            raise

    async def _start_tls(
        self,
        transport: SimulatedTransport,
        protocol: asyncio.BaseProtocol,
        tls: ssl.SSLContext,
        server_hostname: str,
    ) -> asyncio.BaseTransport:
        ready: asyncio.Future[None] = self._loop.create_future()
        tls_protocol = make_tls_protocol(self._loop, protocol, tls, ready, server_hostname)
        transport.take_over(tls_protocol)
        await ready
        return cast("asyncio.BaseTransport", tls_protocol._app_transport)

    async def _handshake(self, host: str, port: int) -> SimulatedTransport:
        self._links_made += 1
        client = ("127.0.0.1", _FIRST_CLIENT_PORT + self._links_made)
        address = f"{host}:{port}"
        names = (
            (HOST.get(), f"{client[0]}:{client[1]}"),
            self._server_names.get(address, (address,)),
        )
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_SECONDS):
                await self._wait_for_packet(*names)
                server = None if self._faults.refuse(*names) else self._addresses.server(host, port)
                if server is None:
                    await self._wait_for_packet(*reversed(names))
                    raise ConnectionRefusedError(
                        errno.ECONNREFUSED, f"Connect call failed {(host, port)}"
                    )
                await self._wait_for_packet(*reversed(names))
        except TimeoutError:
            raise TimeoutError(errno.ETIMEDOUT, f"Connect call failed {(host, port)}") from None
        return self._make_link(server, client, (host, port), names)

    async def _wait_for_packet(self, sender: Names, receiver: Names) -> None:
        """Wait as long as a packet takes from sender to receiver; forever if it is blocked."""
        while True:
            conditions = self._conditions(sender, receiver)
            if conditions.blocked:
                waiter: asyncio.Future[None] = self._loop.create_future()
                self._waiters.append(waiter)
                await waiter
                continue
            low, high = conditions.latency
            await asyncio.sleep(low + (high - low) * self._random.random())
            if not self._conditions(sender, receiver).blocked:
                return

    def _make_link(
        self,
        server: SimulatedServer,
        client: tuple[str, int],
        address: tuple[str, int],
        names: tuple[Names, Names],
    ) -> SimulatedTransport:
        """Create a connection and return the client's end; a SYN announces it to the server."""
        link = Link(
            self._state,
            self._links_made,
            names,
            (self._conditions(*names), self._conditions(*reversed(names))),
        )
        to_server, to_client = link.pipes
        self._links = [known for known in self._links if not known.closed]
        self._links.append(link)
        client_end = SimulatedTransport(
            self._loop, to_server, to_client, {"peername": address, "sockname": client}
        )
        server_end = SimulatedTransport(
            self._loop,
            to_client,
            to_server,
            {"peername": client, "sockname": address},
            server.context,
        )
        server_end.on_connect = lambda: self._accept(server, server_end)
        to_server.send_syn()
        return client_end

    def _accept(self, server: SimulatedServer, transport: SimulatedTransport) -> None:
        if not server.is_serving():
            transport.refuse()
            return
        server.connections[transport] = None
        transport.on_lost = lambda: server.remove(transport)
        try:
            protocol = server.protocol_factory()
            transport.take_over(
                protocol
                if server.tls is None
                else make_tls_protocol(self._loop, protocol, server.tls, None, None)
            )
        except Exception as error:
            self._loop.call_exception_handler(
                {
                    "message": "Error on transport creation for incoming connection",
                    "exception": error,
                }
            )
            transport.refuse()

    @property
    def open_connections(self) -> int:
        """The number of connections that are open at one end or both."""
        return sum(not link.closed for link in self._links)

    def close(self) -> None:
        """Drop all connections, servers and faults."""
        self._links.clear()
        self._addresses.clear()
        self._faults.clear()
        self._waiters.clear()


def _connects(link: Link, one: Place, other: Place) -> bool:
    client, server = link.names
    return (matches(one, client) and matches(other, server)) or (
        matches(one, server) and matches(other, client)
    )
