"""Checks whether brokers accept metrics of clients (KIP-714)."""

from __future__ import annotations

from typing import Final

from aioprod.errors import UnsupportedVersionError
from aioprod.net.connection import Connection

_GET_TELEMETRY_SUBSCRIPTIONS: Final = 71  # the API key: few clients import the request


def announces(connection: Connection) -> bool:
    """Return whether the broker accepts metrics of clients."""
    return _GET_TELEMETRY_SUBSCRIPTIONS in connection.versions


def check_announced(connection: Connection) -> None:
    """Raise UnsupportedVersionError if the broker does not accept metrics of clients."""
    if not announces(connection):
        raise UnsupportedVersionError(
            f"{connection.address} accepts no client metrics: it needs Kafka 3.7 or newer, and a "
            "metrics reporter with a ClientTelemetry receiver (KIP-714)"
        )
