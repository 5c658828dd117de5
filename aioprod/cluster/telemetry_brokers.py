"""Checks whether brokers accept metrics of clients (KIP-714)."""

from __future__ import annotations

from aioprod.errors import UnsupportedVersionError
from aioprod.net.connection import Connection
from aioprod.protocol.api_keys import ApiKey


def announces(connection: Connection) -> bool:
    """Return whether the broker accepts metrics of clients."""
    return ApiKey.GET_TELEMETRY_SUBSCRIPTIONS in connection.versions


def check_announced(connection: Connection) -> None:
    """Raise UnsupportedVersionError if the broker does not accept metrics of clients."""
    if not announces(connection):
        raise UnsupportedVersionError(
            f"{connection.address} accepts no client metrics: it needs Kafka 3.7 or newer, and a "
            "metrics reporter with a ClientTelemetry receiver (KIP-714)"
        )
