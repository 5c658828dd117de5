"""Where a client begins: the addresses behind ``bootstrap.servers``."""

from __future__ import annotations

import asyncio
import socket

from aioprod.config.addresses import split_address
from aioprod.config.client import ClientConfig


async def bootstrap_addresses(config: ClientConfig) -> list[tuple[str, int]]:
    """Hosts and ports; with ``client_dns_lookup="resolve_canonical_bootstrap_servers_only"`` one
    per address behind a name, by its canonical name.
    """
    given = [split_address(address) for address in config.bootstrap_servers]
    if config.client_dns_lookup == "use_all_dns_ips":
        return given  # a connection tries all of them
    found: dict[tuple[str, int], None] = {}
    for host, port in given:
        for name in await _canonical_names(host, port):
            found[name, port] = None
    return list(found)


async def _canonical_names(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    try:
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [
            (await loop.getnameinfo((str(address[0]), port), socket.NI_NUMERICSERV))[0]
            for *_, address in addresses
        ]
    except Exception:
        return [host]  # connecting to it will say what is wrong
