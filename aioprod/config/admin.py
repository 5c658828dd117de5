"""An admin client's settings."""

from __future__ import annotations

from dataclasses import dataclass

from aioprod.config.checks import MAX_INT, check_numbers
from aioprod.config.client import ClientConfig
from aioprod.config.kafka_properties import ClientSettings
from aioprod.config.security import SecuritySettings
from aioprod.config.unsupported import SECURITY_ABSENT


@dataclass(frozen=True, slots=True)
class AdminConfig(ClientConfig):
    """Settings of an :class:`aioprod.Admin`, beside those of :class:`aioprod.config.ClientConfig`.

    Attributes:
        connections_max_idle_ms: as elsewhere, but five minutes (``connections.max.idle.ms``).
        default_api_timeout_ms: longest time for a call that is given no ``timeout_ms``, with all
            its tries (``default.api.timeout.ms``).

    Raises:
        ConfigError: a value is out of its limits.
    """

    connections_max_idle_ms: int = 300_000
    default_api_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        # Zero-argument super() does not work in a slots dataclass.
        ClientConfig.__post_init__(self)
        check_numbers(self, {"default_api_timeout_ms": (1, MAX_INT)})


class AdminSettings(SecuritySettings, total=False):
    """The keyword arguments of :class:`aioprod.Admin`."""

    client_id: str
    client_dns_lookup: str
    default_api_timeout_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    metadata_max_age_ms: int
    metadata_max_idle_ms: int
    metadata_recovery_strategy: str
    metadata_recovery_rebootstrap_trigger_ms: int
    connections_max_idle_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int


#: How an admin client's settings are read from Kafka's own names.
ADMIN = ClientSettings(
    AdminConfig,
    "admin client",
    absent={
        **SECURITY_ABSENT,
        "bootstrap.controllers": (
            "requests go to brokers, which pass them on to the controllers (KIP-919 is not there)"
        ),
        "enable.metrics.push": "metrics are not pushed to brokers (KIP-714)",
        "metric.reporters": "it names Java classes",
        "metrics.num.samples": "an admin client keeps no metrics",
        "metrics.recording.level": "an admin client keeps no metrics",
        "metrics.sample.window.ms": "an admin client keeps no metrics",
        "retries": "calls are tried again until default.api.timeout.ms, or their own timeout_ms",
    },
)
