"""Settings: Kafka's names in snake_case, checked once, when they are given."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from aioprod.errors import ConfigError
from aioprod.types import Headers

Serializer = Callable[[str, Headers, Any], bytes | None]
"""``(topic, headers, data) -> bytes``: turns a key or a value into what is stored."""

_MAX_INT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Settings that every client has; times in milliseconds, sizes in bytes.

    Attributes:
        bootstrap_servers: ``host:port`` list or comma separated string (``bootstrap.servers``).
        client_id: name sent with each request (``client.id``).
        request_timeout_ms: longest wait for one reply (``request.timeout.ms``).
        retry_backoff_ms, retry_backoff_max_ms: first and longest pause between tries (``retry.backoff.ms``, KIP-580).
        reconnect_backoff_ms, reconnect_backoff_max_ms: the same for connecting to one broker (``reconnect.backoff.ms``).
        metadata_max_age_ms: metadata older than this is asked for again (``metadata.max.age.ms``).
        metadata_max_idle_ms: a topic unused for this long is forgotten (``metadata.max.idle.ms``).
        connections_max_idle_ms: an unused connection is closed after this (``connections.max.idle.ms``).
        socket_connection_setup_timeout_ms: longest wait for a connection (``socket.connection.setup.timeout.ms``).
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "bootstrap_servers", parse_servers(self.bootstrap_servers))
        if not isinstance(self.client_id, str):
            raise ConfigError(f"client_id={self.client_id!r}: must be a string")
        _check_numbers(self, _CLIENT_LIMITS)


@dataclass(frozen=True, slots=True)
class ProducerConfig(ClientConfig):
    """Settings of a producer; each is explained in :class:`aioprod.Producer`."""

    acks: int | str = "all"
    enable_idempotence: bool = True
    linger_ms: float = 5
    batch_size: int = 16_384
    buffer_memory: int = 33_554_432
    compression_type: str = "none"
    compression_level: int | None = None
    max_block_ms: int = 60_000
    delivery_timeout_ms: int = 120_000
    max_in_flight_requests_per_connection: int = 5
    max_request_size: int = 1_048_576
    key_serializer: Serializer | None = None
    value_serializer: Serializer | None = None
    partitioner: Any = None

    def __post_init__(self) -> None:
        # Zero-argument super() does not work in a slots dataclass.
        ClientConfig.__post_init__(self)
        acks = {"all": -1, "-1": -1, "0": 0, "1": 1}.get(str(self.acks))
        if acks is None or isinstance(self.acks, bool):
            raise ConfigError(f"acks={self.acks!r}: must be 'all', -1, 0 or 1")
        object.__setattr__(self, "acks", acks)
        _check_numbers(self, _PRODUCER_LIMITS)
        self._check_together()

    def _check_together(self) -> None:
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise ConfigError(
                f"delivery_timeout_ms={self.delivery_timeout_ms}: must be at least linger_ms + request_timeout_ms "
                f"= {self.linger_ms} + {self.request_timeout_ms}"
            )
        if not self.enable_idempotence:
            return
        if self.acks != -1:
            raise ConfigError(f"acks={self.acks!r}: idempotence needs acks='all'; set it, or enable_idempotence=False")
        if self.max_in_flight_requests_per_connection > 5:
            raise ConfigError(
                f"max_in_flight_requests_per_connection={self.max_in_flight_requests_per_connection}: "
                "idempotence allows at most 5; lower it, or set enable_idempotence=False"
            )


class ProducerSettings(TypedDict, total=False):
    """The keyword arguments of :class:`aioprod.Producer`."""

    client_id: str
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    metadata_max_age_ms: int
    metadata_max_idle_ms: int
    connections_max_idle_ms: int
    socket_connection_setup_timeout_ms: int
    acks: int | str
    enable_idempotence: bool
    linger_ms: float
    batch_size: int
    buffer_memory: int
    compression_type: str
    compression_level: int | None
    max_block_ms: int
    delivery_timeout_ms: int
    max_in_flight_requests_per_connection: int
    max_request_size: int
    key_serializer: Serializer | None
    value_serializer: Serializer | None
    partitioner: Any


_CLIENT_LIMITS: dict[str, tuple[int, int]] = {
    "request_timeout_ms": (1, _MAX_INT),
    "retry_backoff_ms": (0, _MAX_INT),
    "retry_backoff_max_ms": (0, _MAX_INT),
    "reconnect_backoff_ms": (0, _MAX_INT),
    "reconnect_backoff_max_ms": (0, _MAX_INT),
    "metadata_max_age_ms": (1, _MAX_INT),
    "metadata_max_idle_ms": (5_000, _MAX_INT),
    "connections_max_idle_ms": (1, _MAX_INT),
    "socket_connection_setup_timeout_ms": (1, _MAX_INT),
}
_PRODUCER_LIMITS: dict[str, tuple[int, int]] = {
    "linger_ms": (0, _MAX_INT),
    "batch_size": (0, _MAX_INT),
    "buffer_memory": (1, 2**63 - 1),
    "max_block_ms": (0, _MAX_INT),
    "delivery_timeout_ms": (1, _MAX_INT),
    "max_in_flight_requests_per_connection": (1, _MAX_INT),
    "max_request_size": (1, _MAX_INT),
}


def _check_numbers(config: object, limits: Mapping[str, tuple[int, int]]) -> None:
    for name, (low, high) in limits.items():
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{name}={value!r}: must be a number")
        if not low <= value <= high:
            raise ConfigError(f"{name}={value!r}: must be from {low} to {high}")


def parse_servers(servers: str | Iterable[str]) -> tuple[str, ...]:
    """Turn ``"a:9092,b:9092"`` or a list of these into a tuple; each address is checked.

    Raises:
        ConfigError: no address, or one that is not ``host:port``.
    """
    listed = servers.split(",") if isinstance(servers, str) else list(servers)
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
        raise ConfigError(f"bootstrap_servers={address!r}: must be host:port with a port from 1 to 65535")
    return host, int(port)


def from_dotted(kind: type[ClientConfig], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Kafka's dotted names (``linger.ms``) as keyword arguments of ``kind``.

    Raises:
        ConfigError: a name that ``kind`` does not have; the message names the nearest one.
    """
    plain = {name.replace(".", "_"): value for name, value in settings.items()}
    check_names(kind, plain)
    return plain


def check_names(kind: type[ClientConfig], settings: Iterable[str]) -> None:
    """Refuse settings that ``kind`` does not have, naming the nearest one."""
    known = [field.name for field in fields(kind)]
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise ConfigError(f"unknown setting {name!r}" + (f": did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"))
