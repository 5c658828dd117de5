"""Bootstrap servers, from text or a list to checked addresses."""

from __future__ import annotations

from collections.abc import Iterable

from aioprod.errors import ConfigError


def parse_servers(servers: str | Iterable[str]) -> tuple[str, ...]:
    """Turn ``"a:9092,b:9092"`` or a list of these into a tuple; each address is checked.

    Raises:
        ConfigError: no address, or one that is not ``host:port``.
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
    """``"host:port"`` (or ``"[::1]:port"``) as a pair.

    Raises:
        ConfigError: not of that form, or a port outside 1..65535.
    """
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or not 1 <= int(port) <= 65_535:
        raise ConfigError(
            f"bootstrap_servers={address!r}: must be host:port with a port from 1 to 65535"
        )
    return host, int(port)
