"""The network of a simulation: who listens where, how long bytes are on their way, and what goes
wrong.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from random import Random
from typing import Any, cast

from aioprod.testing.simulation.network_faults import Effect, NetworkFault, Place, names_place
from aioprod.testing.simulation.pipes import Conditions, Link, Names, Surroundings
from aioprod.testing.simulation.server import SimulatedServer
from aioprod.testing.simulation.trace import SimulationError, Trace
from aioprod.testing.simulation.transports import SimulatedTransport

_FIRST_PORT = 20_000
_FIRST_CLIENT_PORT = 40_000
_HIGHEST_PORT = 65_535
_CONNECT_LIMIT_SECONDS = 127.0  # six repetitions of a SYN, as Linux has it
_REPEAT_SECONDS = 0.3  # at most, until TCP finds out that the way is free again
_ANY_HOST = {None: "", "": "", "0.0.0.0": "", "::": ""}

_host: ContextVar[str] = ContextVar("simulated_host", default="client")


class Network:
    """Connects what runs in a :class:`SimulatedLoop`, and fails on demand.

    Each end of a connection has two names, and faults take either: its address
    (``127.0.0.1:20000``, as in ``cluster.address(1)``), and the host in whose :meth:`host` block it
    was made (``client`` where there was none). A fault holds until its ``heal()``, or for a
    ``with`` block.

    Attributes:
        split_probability: of each write, to arrive in pieces.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, random: Random, trace: Trace) -> None:
        self._loop = loop
        self._random = random
        self._trace = trace
        self._around = Surroundings(loop, random, trace, 0.1)
        self._normal = Conditions((0.0002, 0.002))
        self._servers: dict[tuple[str, int], SimulatedServer] = {}
        self._server_names: dict[str, Names] = {}
        self._hosts: dict[str, None] = {}
        self._links: list[Link] = []
        self._links_made = 0
        self._ports_given = 0
        self._faults: list[NetworkFault] = []
        self._changed: list[asyncio.Future[None]] = []

    # -- how it is when nothing is wrong -----------------------------------------------------------

    @property
    def split_probability(self) -> float:
        """Of each write, to arrive in several pieces; 0.1 at first."""
        return self._around.split_probability

    @split_probability.setter
    def split_probability(self, value: float) -> None:
        self._around.split_probability = value

    @property
    def latency_seconds(self) -> tuple[float, float]:
        """Between which limits the time lies that bytes are on their way; 0.2 and 2 ms at first."""
        return self._normal.latency

    @latency_seconds.setter
    def latency_seconds(self, limits: tuple[float, float]) -> None:
        self._normal = Conditions(limits)
        self._conditions_changed()

    @contextmanager
    def host(self, name: str) -> Iterator[None]:
        """Name the machine on which runs what is made in this block, with its connections and the
        tasks that it starts.
        """
        token = _host.set(name)
        try:
            yield
        finally:
            _host.reset(token)

    # -- what goes wrong ---------------------------------------------------------------------------

    def cut(self, one: Place = None, other: Place = None) -> int:
        """Break all connections between two places now, and return how many these were.

        Both ends get a reset. Of the bytes that are on their way some still arrive: none, all, or
        some of the first.
        """
        links = [link for link in self._links if _joins(link, one, other)]
        for link in links:
            link.cut()
        self._note(f"cut {one} {other}: {len(links)} connections")
        return len(links)

    def cut_while_sending(
        self,
        sender: Place = None,
        receiver: Place = None,
        *,
        times: int = 1,
        delivered: float | None = None,
    ) -> NetworkFault:
        """Break the next ``times`` connections on which the sender sends something to the receiver,
        in the midst of it.

        With ``delivered=0`` from a broker its answer is lost: the request was applied, and the
        client does not know. 1 delivers everything before the connection breaks; None leaves the
        share to chance.
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
        """Let nothing through between two places, connections made now included, and nobody knows:
        nothing is refused or reset.

        Afterwards TCP repeats what it could not deliver, so that it all arrives, late. With
        ``one_way`` bytes from ``receiver`` to ``sender`` still do, but no new connection is made.
        """
        return self._add("partition", Effect(blocked=True), sender, receiver, both_ways=not one_way)

    def black_hole(self, place: Place = None) -> NetworkFault:
        """Let nothing through to a place or from it: a partition of it from all others."""
        return self._add("black hole", Effect(blocked=True), place, None, both_ways=True)

    def vanish(self, place: Place) -> NetworkFault:
        """Switch a machine off: as a black hole, and when it is back it knows nothing of the
        connections of before, and resets them.
        """
        return self._add("vanish", Effect(blocked=True, resets=True), place, None, both_ways=True)

    def refuse(self, receiver: Place = None, sender: Place = None) -> NetworkFault:
        """Refuse new connections to a place; those that there are go on."""
        return self._add("refuse", Effect(refuses=True), sender, receiver, both_ways=False)

    def slow(
        self,
        bytes_per_second: float,
        sender: Place = None,
        receiver: Place = None,
        *,
        one_way: bool = False,
    ) -> NetworkFault:
        """Let only so much through, in each direction of each connection: senders find that their
        buffers are full.
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
        """Have bytes be on their way for ``low`` to ``high`` seconds instead of
        :attr:`latency_seconds`.
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
        """End all that is wrong."""
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
        self._faults.append(fault)
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
                if fault.hits(*link.names):
                    link.cut({0: 0.0, 1: 0.0})
        self._conditions_changed()

    def _conditions_changed(self) -> None:
        self._around.cut_share = (
            self._cut_share if any(fault.effect.cut_share for fault in self._faults) else None
        )
        for link in self._links:
            for direction in (0, 1):
                conditions = self._conditions(link.names[direction], link.names[1 - direction])
                link.change(direction, conditions, self._random.random() * _REPEAT_SECONDS)
        changed, self._changed = self._changed, []
        for waiter in changed:
            if not waiter.done():
                waiter.set_result(None)

    def _conditions(self, sender: Names, receiver: Names) -> Conditions:
        conditions = self._normal
        for fault in self._faults:
            if fault.hits(sender, receiver):
                conditions = fault.apply(conditions)
        return conditions

    def _cut_share(self, sender: Names, receiver: Names) -> float | None:
        for fault in self._faults:
            if fault.effect.cut_share is not None and fault.hits(sender, receiver):
                share = fault.effect.cut_share()
                fault.use()
                return share
        return None

    def _note(self, text: str) -> None:
        self._trace.note(self._loop.time(), text)

    # -- who listens -------------------------------------------------------------------------------

    def listen(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None,
        port: int | None,
        *,
        tls: ssl.SSLContext | None = None,
        start_serving: bool = True,
    ) -> SimulatedServer:
        """Open a port; 0 or None takes one that nobody had before. Raises OSError where somebody
        has it.
        """
        name = _host_name(host)
        if not port:
            port = _FIRST_PORT + self._ports_given
            self._ports_given += 1
        if (name, port) in self._servers:
            raise OSError(
                errno.EADDRINUSE,
                f"error while attempting to bind on address {(host, port)}: address already in use",
            )
        server = SimulatedServer(
            self._loop, protocol_factory, (name or "0.0.0.0", port), tls, self._closed
        )
        self._servers[name, port] = server
        self._hosts[name] = None
        self._server_names[f"{name}:{port}"] = (f"{name}:{port}", _host.get())
        if start_serving:
            server.begin()
        return server

    def _closed(self, server: SimulatedServer) -> None:
        host, port = server.address
        self._servers.pop((_host_name(host), port), None)

    def _server(self, host: str, port: int) -> SimulatedServer | None:
        server = self._servers.get((host, port)) or self._servers.get(("", port))
        return server if server is not None and server.is_serving() else None

    def look_up(
        self, host: str | None, port: Any
    ) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]]:
        """The addresses behind a name: it stays a name.

        Raises what a real look-up does: socket.gaierror where nothing has ever listened under it,
        ValueError (such as UnicodeError) for what can't be
        a name, OverflowError for what can't be a port.
        """
        name = _host_name(host)
        if "\0" in name:
            raise ValueError("embedded null character")
        name.encode("idna")
        if not 0 <= int(port or 0) <= _HIGHEST_PORT:
            raise OverflowError("getsockaddrarg: port must be 0-65535.")
        if name not in self._hosts and not _is_address(name):
            raise socket.gaierror(socket.EAI_NONAME, f"Name or service not known: {host!r}")
        return [
            (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (name, int(port or 0)))
        ]

    # -- connecting --------------------------------------------------------------------------------

    async def connect(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None,
        port: int | None,
        *,
        tls: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """Connect to a port. Raises OSError as a socket does."""
        if host is None or port is None:
            raise SimulationError(
                "a connection in the simulation needs a host and a port: there are no sockets"
            )
        _, _, _, _, (name, number) = self.look_up(host, port)[0]
        transport = await self._dial(name, number)
        try:
            protocol = protocol_factory()
            if tls is None:
                transport.take_over(protocol)
                return transport, protocol
            return await self._encrypt(transport, protocol, tls, server_hostname or host), protocol
        except BaseException:
            transport.abort()
            raise

    async def _encrypt(
        self,
        transport: SimulatedTransport,
        protocol: asyncio.BaseProtocol,
        tls: ssl.SSLContext,
        server_hostname: str,
    ) -> asyncio.BaseTransport:
        ready: asyncio.Future[None] = self._loop.create_future()
        encrypted = _encrypting(self._loop, protocol, tls, ready, server_hostname)
        transport.take_over(encrypted)
        await ready
        return cast("asyncio.BaseTransport", encrypted._app_transport)

    async def _dial(self, host: str, port: int) -> SimulatedTransport:
        self._links_made += 1
        client = ("127.0.0.1", _FIRST_CLIENT_PORT + self._links_made)
        address = f"{host}:{port}"
        names = (
            (_host.get(), f"{client[0]}:{client[1]}"),
            self._server_names.get(address, (address,)),
        )
        try:
            async with asyncio.timeout(_CONNECT_LIMIT_SECONDS):
                await self._travel(*names)
                server = None if self._refuses(*names) else self._server(host, port)
                if server is None:
                    await self._travel(*reversed(names))
                    raise ConnectionRefusedError(
                        errno.ECONNREFUSED, f"Connect call failed {(host, port)}"
                    )
                await self._travel(*reversed(names))
        except TimeoutError:
            raise TimeoutError(errno.ETIMEDOUT, f"Connect call failed {(host, port)}") from None
        return self._join(server, client, (host, port), names)

    async def _travel(self, sender: Names, receiver: Names) -> None:
        """Wait as long as a packet takes from one end to the other, which may be for ever."""
        while True:
            conditions = self._conditions(sender, receiver)
            if conditions.blocked:
                waiter: asyncio.Future[None] = self._loop.create_future()
                self._changed.append(waiter)
                await waiter
                continue
            low, high = conditions.latency
            await asyncio.sleep(low + (high - low) * self._random.random())
            if not self._conditions(sender, receiver).blocked:
                return

    def _refuses(self, client: Names, server: Names) -> bool:
        return any(fault.effect.refuses and fault.hits(client, server) for fault in self._faults)

    def _join(
        self,
        server: SimulatedServer,
        client: tuple[str, int],
        address: tuple[str, int],
        names: tuple[Names, Names],
    ) -> SimulatedTransport:
        """Make a connection, of which the server hears in a moment."""
        link = Link(
            self._around,
            self._links_made,
            names,
            (self._conditions(*names), self._conditions(*reversed(names))),
        )
        there, back = link.pipes
        self._links = [known for known in self._links if not known.over]
        self._links.append(link)
        ours = SimulatedTransport(
            self._loop, there, back, {"peername": address, "sockname": client}
        )
        theirs = SimulatedTransport(
            self._loop, back, there, {"peername": client, "sockname": address}, server.context
        )
        theirs.on_hello = lambda: self._accept(server, theirs)
        there.greet()
        return ours

    def _accept(self, server: SimulatedServer, transport: SimulatedTransport) -> None:
        if not server.is_serving():
            transport.refuse()
            return
        server.connections[transport] = None
        transport.on_lost = lambda: server.disconnected(transport)
        try:
            protocol = server.protocol_factory()
            transport.take_over(
                protocol
                if server.tls is None
                else _encrypting(self._loop, protocol, server.tls, None, None)
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
        """How many connections there are, of which at least one end is open."""
        return sum(not link.over for link in self._links)

    def close(self) -> None:
        """Forget everything."""
        self._links.clear()
        self._servers.clear()
        self._faults.clear()
        self._changed.clear()


def _encrypting(
    loop: asyncio.AbstractEventLoop,
    protocol: asyncio.BaseProtocol,
    tls: ssl.SSLContext,
    ready: asyncio.Future[None] | None,
    server_hostname: str | None,
) -> sslproto.SSLProtocol:
    server_side = server_hostname is None
    return sslproto.SSLProtocol(
        loop,
        protocol,
        tls,
        ready,  # type: ignore[arg-type]
        server_side=server_side,
        server_hostname=server_hostname,
    )


def _joins(link: Link, one: Place, other: Place) -> bool:
    client, server = link.names
    return (names_place(one, client) and names_place(other, server)) or (
        names_place(one, server) and names_place(other, client)
    )


def _host_name(host: str | None) -> str:
    return "127.0.0.1" if host == "localhost" else _ANY_HOST.get(host, host or "")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
