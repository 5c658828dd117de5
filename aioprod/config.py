"""Settings: Kafka's names in snake_case, checked once, when they are given."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from aioprod.errors import ConfigError
from aioprod.security import SecurityConfig

#: The largest number that a Kafka setting of type int takes.
MAX_INT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ClientConfig(SecurityConfig):
    """Settings that every client has, beside those of :class:`aioprod.security.SecurityConfig`;
    times in milliseconds, sizes in bytes.

    Attributes:
        bootstrap_servers: ``host:port`` list or comma separated string (``bootstrap.servers``).
        client_id: name sent with each request (``client.id``).
        request_timeout_ms: longest wait for one reply (``request.timeout.ms``).
        retry_backoff_ms, retry_backoff_max_ms: first and longest pause between tries
            (``retry.backoff.ms``, KIP-580).
        reconnect_backoff_ms, reconnect_backoff_max_ms: the same for connecting to one broker
        (``reconnect.backoff.ms``).
        metadata_max_age_ms: metadata older than this is asked for again (``metadata.max.age.ms``).
        metadata_max_idle_ms: a topic unused for this long is forgotten (``metadata.max.idle.ms``).
        connections_max_idle_ms: an unused connection is closed after this
            (``connections.max.idle.ms``).
        socket_connection_setup_timeout_ms, socket_connection_setup_timeout_max_ms: longest wait for
        a connection at the first try,
            and after it has doubled with each failure (``socket.connection.setup.timeout.ms``,
            KIP-601).
        send_buffer_bytes, receive_buffer_bytes: the socket's buffers; -1 leaves them to the system
            (``send.buffer.bytes``).
        client_dns_lookup: ``"use_all_dns_ips"`` tries each address of a name;
            ``"resolve_canonical_bootstrap_servers_only"`` also makes each address behind a
            bootstrap name a bootstrap server of its own, by its canonical name
            (``client.dns.lookup``).
        metadata_recovery_strategy: ``"rebootstrap"`` goes back to the bootstrap servers when no
            known broker answers; ``"none"`` does not (``metadata.recovery.strategy``, KIP-899).
        metadata_recovery_rebootstrap_trigger_ms: it does so after so long without metadata, too
            (KIP-1102).
    """

    bootstrap_servers: tuple[str, ...] = ("localhost:9092",)
    client_id: str = "aioprod"
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    metadata_max_idle_ms: int = 300_000
    connections_max_idle_ms: int = 540_000
    socket_connection_setup_timeout_ms: int = 10_000
    socket_connection_setup_timeout_max_ms: int = 30_000
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    client_dns_lookup: str = "use_all_dns_ips"
    metadata_recovery_strategy: str = "rebootstrap"
    metadata_recovery_rebootstrap_trigger_ms: int = 300_000

    def __post_init__(self) -> None:
        # Zero-argument super() does not work in a slots dataclass.
        SecurityConfig.__post_init__(self)
        object.__setattr__(self, "bootstrap_servers", parse_servers(self.bootstrap_servers))
        if not isinstance(self.client_id, str):
            raise ConfigError(f"client_id={self.client_id!r}: must be a string")
        check_numbers(self, _CLIENT_LIMITS)
        check_choice(
            self,
            "client_dns_lookup",
            ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        )
        object.__setattr__(
            self, "metadata_recovery_strategy", str(self.metadata_recovery_strategy).lower()
        )
        check_choice(self, "metadata_recovery_strategy", ("rebootstrap", "none"))


_CLIENT_LIMITS: dict[str, tuple[int, int]] = {
    "request_timeout_ms": (1, MAX_INT),
    "retry_backoff_ms": (0, MAX_INT),
    "retry_backoff_max_ms": (0, MAX_INT),
    "reconnect_backoff_ms": (0, MAX_INT),
    "reconnect_backoff_max_ms": (0, MAX_INT),
    "metadata_max_age_ms": (1, MAX_INT),
    "metadata_max_idle_ms": (5_000, MAX_INT),
    "connections_max_idle_ms": (1, MAX_INT),
    "socket_connection_setup_timeout_ms": (1, MAX_INT),
    "socket_connection_setup_timeout_max_ms": (1, MAX_INT),
    "send_buffer_bytes": (-1, MAX_INT),
    "receive_buffer_bytes": (-1, MAX_INT),
    "metadata_recovery_rebootstrap_trigger_ms": (0, MAX_INT),
}


def check_numbers(config: object, limits: Mapping[str, tuple[int, int]]) -> None:
    """Raise ConfigError for a setting that is no number from the lowest to the highest; only times
    may have a fraction.
    """
    for name, (low, high) in limits.items():
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(
            value, int | float if name.endswith("_ms") else int
        ):
            raise ConfigError(
                f"{name}={value!r}: must be a {'' if name.endswith('_ms') else 'whole '}number"
            )
        if not low <= value <= high:
            raise ConfigError(f"{name}={value!r}: must be from {low} to {high}")


def check_choice(config: object, name: str, choices: tuple[object, ...]) -> None:
    """Raise ConfigError for a setting that is none of ``choices``."""
    value = getattr(config, name)
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise ConfigError(f"{name}={value!r}: must be one of {', '.join(map(str, choices))}")


def check_switches(config: object, names: Iterable[str]) -> None:
    """Raise ConfigError for a setting that is neither True nor False."""
    for name in names:
        check_choice(config, name, (True, False))


def check_callable(config: object, name: str) -> None:
    """Raise ConfigError for a serializer or deserializer that can't be called, is a class or
    asynchronous; None is allowed.
    """
    given = getattr(config, name)
    if given is not None and (isinstance(given, type) or not callable(given)):
        raise ConfigError(
            f"{name}={shown(given)}: must be a function or an object, called with (topic, "
            "headers, data)"
        )
    if inspect.iscoroutinefunction(given) or inspect.iscoroutinefunction(
        getattr(given, "__call__", None)  # noqa: B004
    ):
        raise ConfigError(
            f"{name}={shown(given)}: must not be a coroutine function: it is called for each "
            "record, where nothing is awaited"
        )


def check_list(config: object, name: str, kind: type) -> None:
    """Make a setting a tuple; raise ConfigError unless it is a list of ``kind``."""
    given = getattr(config, name)
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigError(f"{name}={shown(given)}: must be a list of objects")
    listed = tuple(given)
    for one in listed:
        if not isinstance(one, kind):
            raise ConfigError(f"{name}: {shown(one)} is no {kind.__name__}")
    object.__setattr__(config, name, listed)


def shown(given: object) -> str:
    """A value as errors show it."""
    return f"class {given.__name__}" if isinstance(given, type) else repr(given)


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


def check_names(kind: type[ClientConfig], settings: Iterable[str]) -> None:
    """Refuse settings that ``kind`` does not have, naming the nearest one."""
    known = [field.name for field in fields(kind)]
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise ConfigError(
                f"unknown setting {name!r}"
                + (f": did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}")
            )
