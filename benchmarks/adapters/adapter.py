"""The interface of all clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar, Literal, Protocol

from benchmarks.adapters.settings import Load, Settings

Feature = Literal["one record", "many tasks", "headers", "codecs"]
"""Features that some clients lack: ``send_and_wait``, many concurrent calls of it, records with
headers, and compression other than gzip.
"""


class DeliveryFailedError(Exception):
    """A record was not acknowledged."""


class Adapter(Protocol):
    """A producer of a client. Started and stopped once.

    Attributes:
        name: the name in tables.
        lacks: the features that it does not support.
    """

    name: ClassVar[str]
    lacks: ClassVar[frozenset[Feature]]

    def describe(self) -> str:
        """Return the client's version, and how it was built if that matters."""

    async def start(self, settings: Settings) -> None:
        """Connect."""

    async def stop(self) -> None:
        """Send all remaining records and disconnect."""

    async def send_all(self, load: Load) -> None:
        """Send the records, one call each, and wait for all deliveries. Raises if one fails."""

    async def send_and_wait(self, topic: str, value: bytes, key: bytes | None) -> None:
        """Send a record and wait for its acknowledgement. Supports concurrent calls unless the
        client lacks ``many tasks``.
        """


@asynccontextmanager
async def started(adapter: Adapter, settings: Settings) -> AsyncIterator[Adapter]:
    """Connect an adapter until the block ends."""
    await adapter.start(settings)
    try:
        yield adapter
    finally:
        await adapter.stop()
