"""Host names and ports of the simulated network, and the servers that listen on them."""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import Any

from aioprod.testing.simulation.server import SimulatedServer

_FIRST_PORT = 20_000
_MAX_PORT = 65_535
_ANY_HOST = {None: "", "": "", "0.0.0.0": "", "::": ""}


class Addresses:
    """The servers of a network, by host and port."""

    def __init__(self) -> None:
        self._servers: dict[tuple[str, int], SimulatedServer] = {}
        self._hosts: dict[str, None] = {}
        self._ports_given = 0

    def reserve(self, host: str | None, port: int | None) -> tuple[str, int]:
        """Return the host and port to listen on; 0 or None chooses a port that was never used.

        Raises:
            OSError: if the port is in use.
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
        return name, port

    def add(self, host: str, port: int, server: SimulatedServer) -> None:
        """Add a server."""
        self._servers[host, port] = server
        self._hosts[host] = None

    def remove(self, server: SimulatedServer) -> None:
        """Remove a closed server."""
        host, port = server.address
        self._servers.pop((_host_name(host), port), None)

    def server(self, host: str, port: int) -> SimulatedServer | None:
        """Return the server that accepts connections to an address, if there is one."""
        server = self._servers.get((host, port)) or self._servers.get(("", port))
        return server if server is not None and server.is_serving() else None

    def resolve(
        self, host: str | None, port: Any
    ) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]]:
        """Resolve a host name: names are their own addresses.

        The errors are those of a real lookup.

        Raises:
            socket.gaierror: if no server has ever listened on that host.
            ValueError: if the name is invalid, such as UnicodeError.
            OverflowError: if the port is out of range.
        """
        name = _host_name(host)
        if "\0" in name:
            raise ValueError("embedded null character")
        name.encode("idna")
        if not 0 <= int(port or 0) <= _MAX_PORT:
            raise OverflowError("getsockaddrarg: port must be 0-65535.")
        if name not in self._hosts and not _is_ip_address(name):
            raise socket.gaierror(socket.EAI_NONAME, f"Name or service not known: {host!r}")
        return [
            (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (name, int(port or 0)))
        ]

    def clear(self) -> None:
        """Remove all servers."""
        self._servers.clear()


def _host_name(host: str | None) -> str:
    return "127.0.0.1" if host == "localhost" else _ANY_HOST.get(host, host or "")


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
