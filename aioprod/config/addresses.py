"""Parses the addresses of bootstrap servers."""

from __future__ import annotations

from collections.abc import Iterable

from aioprod.errors import ConfigError


def parse_servers(servers: str | Iterable[str]) -> tuple[str, ...]:
    """Parse ``"a:9092,b:9092"``, or check a list of addresses.

    Raises:
        ConfigError: if there is no address, or one is not ``host:port``.
    """
    if isinstance(servers, bytes) or not isinstance(servers, Iterable):
        raise ConfigError(
            f"bootstrap_servers={servers!r}: must be 'host:port,host:port' or a list of these"
        )
    listed = servers.split(",") if isinstance(servers, str) else list(servers)
    if not all(isinstance(address, str) for address in listed):
        raise ConfigError(f"bootstrap_servers={servers!r}: each must be a string 'host:port'")
    addresses = tuple(address.strip() for address in listed if address.strip())
    if not addresses:
        raise ConfigError("bootstrap_servers is empty: give at least one host:port")
    for address in addresses:
        split_address(address)
    return addresses


def split_address(address: str) -> tuple[str, int]:
    """Split ``"host:port"`` or ``"[::1]:port"``.

    Raises:
        ConfigError: if the address has another form, or the port is not from 1 to 65535.
    """
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or not 1 <= int(port) <= 65_535:
        raise ConfigError(
            f"bootstrap_servers={address!r}: must be host:port with a port from 1 to 65535"
        )
    return host, int(port)
