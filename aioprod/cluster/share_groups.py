"""What clients of share groups (KIP-932) need of a cluster."""

from __future__ import annotations

from typing import Any

from aioprod.errors import UnsupportedVersionError
from aioprod.net.connection import Connection
from aioprod.protocol.message import Request

NEEDED = (
    "share groups need Kafka 4.2, or 4.1, and the feature share.version=1 of the cluster "
    "(kafka-features.sh upgrade --feature share.version=1)"
)


def pick_version(connection: Connection, request: type[Request[Any]]) -> int:
    """Return the newest version of a request of share groups that client and broker support.

    Raises:
        UnsupportedVersionError: if there is none; the text says what share groups need.
    """
    try:
        return connection.pick_version(request)
    except UnsupportedVersionError as error:
        raise UnsupportedVersionError(f"{error}: {NEEDED}") from error
