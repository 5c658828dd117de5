"""Parses the addresses of bootstrap servers. They may begin with the name of a protocol or
listener, contain IPv6 addresses, and be surrounded by spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from aioprod.errors import ConfigError
from aioprod.foreign_text import bounded, shown

_MOST_SHOWN = 300
_DEFAULT_PORT = 9092
_SCHEME = re.compile(r"([A-Za-z0-9_.%+-]+)://")
# Protocols that use TLS, and those that use SASL.
_TLS = frozenset(("ssl", "sasl_ssl", "kafka+ssl"))
_LOGIN = frozenset(("sasl_plaintext", "sasl_ssl"))
_NO_BROKER = {
    "http": "is an HTTP address, such as that of a schema registry",
    "https": "is an HTTP address, such as that of a schema registry",
    "zookeeper": "is a ZooKeeper address",
    "zk": "is a ZooKeeper address",
}
_UNUSUAL = re.compile(r"""[\s"'`;<>(){}\\?#=]""")


def list_servers(servers: str | Iterable[str]) -> tuple[str, ...]:
    """Return the addresses in a string, separated by commas, or in a list of such strings.

    Raises:
        ConfigError: if there is none, or it is not text.
    """
    if isinstance(servers, Mapping):  # not shown, as it may contain a password
        raise ConfigError(
            "bootstrap_servers: must be 'host:port,host:port' or a list of these, not "
            f"{type(servers).__name__}; pass settings by name, or as from_config(settings)"
        )
    if isinstance(servers, bytes) or not isinstance(servers, Iterable):
        raise ConfigError(
            f"bootstrap_servers={shown(servers)}: must be 'host:port,host:port' or a list of these"
        )
    listed = (servers,) if isinstance(servers, str) else tuple(servers)
    if not all(isinstance(address, str) for address in listed):
        raise ConfigError(f"bootstrap_servers={shown(servers)}: each must be a string 'host:port'")
    single = (address.strip() for each in listed for address in each.split(","))
    addresses = tuple(filter(None, single))
    if not addresses:
        raise ConfigError("bootstrap_servers is empty: give at least one host:port")
    return addresses


def parse_servers(servers: str | Iterable[str]) -> tuple[str, ...]:
    """Parse ``"a:9092,b:9092"`` or a list of addresses, and return them as ``host:port``.

    Raises:
        ConfigError: if there is no address, or one is not ``host:port`` or ``host``, which may
            follow the name of a protocol or listener (``PLAINTEXT://host:port``). The port is 9092
            by default.
    """
    return tuple(map(_plain, list_servers(servers)))


def check_protocols(addresses: Iterable[str], security_protocol: str) -> None:
    """Check that no address names a more secure protocol than the client uses. As in Java, names of
    listeners and of less secure protocols are ignored.

    Raises:
        ConfigError: if an address names TLS or SASL, and the client does not use it.
    """
    for address in addresses:
        found = _SCHEME.match(address)
        named = found[1].lower() if found else ""
        if (named in _TLS and "SSL" not in security_protocol) or (
            named in _LOGIN and "SASL" not in security_protocol
        ):
            wanted = "SSL" if named == "kafka+ssl" else named.upper()
            raise ConfigError(
                f"bootstrap_servers={address!r}: names another protocol than "
                f"security_protocol={security_protocol!r}; set security_protocol={wanted!r}"
            )


def split_address(address: str) -> tuple[str, int]:
    """Split ``"host:port"`` or ``"[::1]:port"``.

    Raises:
        ConfigError: if the address has another form, or the port is not from 1 to 65535.
    """
    host, port = _host_and_port(address, address)
    return host, port


def _plain(address: str) -> str:
    found = _SCHEME.match(address)
    if found is None:
        rest = address
    elif (reason := _NO_BROKER.get(found[1].lower())) is not None:
        raise _error(address, f"{reason}: give host:port of Kafka brokers")
    else:
        rest = address[found.end() :].removesuffix("/")
    host, port = _host_and_port(rest, address, _DEFAULT_PORT)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _host_and_port(text: str, address: str, default: int | None = None) -> tuple[str, int]:
    if "@" in text:  # not shown, as it may contain a password
        raise ConfigError(
            "bootstrap_servers: must not contain a user name or password; "
            "set sasl_username and sasl_password"
        )
    _check_characters(text, address)
    if "/" in text:
        raise _error(address, "must be host:port without a path")
    host, colon, port = text.rpartition(":")
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        colon, port = port[:1], port[1:]
        if not bracket or colon not in ("", ":") or (":" in host and not _is_ipv6(host)):
            raise _error(address, "must be [IPv6 address]:port, such as [::1]:9092")
    elif ":" in host and (_is_ipv6(text) or not _is_ipv6(host)):
        raise _error(
            address,
            "must be host:port; write an IPv6 address in brackets, such as [::1]:9092",
        )
    if not colon and default is not None and text and not text.isdecimal():
        host, port = host if text.startswith("[") else text, str(default)
    elif not colon:
        raise _error(address, f"must be host:port, such as {_example(text)}")
    if not host or not (port.isascii() and port.isdecimal()) or not 1 <= int(port[:6]) <= 65_535:
        raise _error(address, "must be host:port with a port from 1 to 65535")
    return host, int(port)


def _check_characters(text: str, address: str) -> None:
    unusual = _UNUSUAL.search(text)
    if unusual is not None and (unusual[0] == ";" or unusual[0].isspace()):
        raise _error(
            address,
            "must not contain spaces; separate addresses by commas, as in a:9092,b:9092",
        )
    if unusual is not None or not text.isprintable():
        raise _error(address, "must be a host name or address, and a port")


def _is_ipv6(text: str) -> bool:
    import ipaddress  # few addresses need it, and it takes time to import

    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _example(text: str) -> str:
    return f"localhost:{text}" if text.isdecimal() else f"{text}:{_DEFAULT_PORT}"


def _error(address: str, reason: str) -> ConfigError:
    return ConfigError(f"bootstrap_servers={bounded(address, _MOST_SHOWN)!r}: {reason}")
