"""Settings: Kafka's names in snake_case, checked once, when they are given."""

from __future__ import annotations

from dataclasses import dataclass

from aioprod.config.addresses import parse_servers
from aioprod.config.checks import MAX_INT, check_choice, check_numbers
from aioprod.config.security import SecurityConfig
from aioprod.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ClientConfig(SecurityConfig):
    """Settings that every client has, in addition to those of :class:`SecurityConfig`. Times are
    in milliseconds, sizes in bytes.

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
