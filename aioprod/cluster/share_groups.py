"""Version checks for share groups (KIP-932)."""

from __future__ import annotations

from typing import Any

from aioprod.errors import UnsupportedVersionError
from aioprod.net.connection import Connection
from aioprod.protocol.message import Request

NEEDED = (
    "share groups need Kafka 4.1 or newer, and the cluster's feature share.version=1 "
    "(kafka-features.sh upgrade --feature share.version=1)"
)


def pick_version(connection: Connection, request: type[Request[Any]]) -> int:
    """Return the highest version of a share group request that client and broker support.

    Raises:
        UnsupportedVersionError: if they have no version in common. The message names the versions
            of Kafka that have share groups.
    """
    try:
        return connection.pick_version(request)
    except UnsupportedVersionError as error:
        raise UnsupportedVersionError(f"{error}: {NEEDED}") from error
