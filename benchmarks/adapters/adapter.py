"""What every client looks like to the measures."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar, Literal, Protocol, runtime_checkable

from benchmarks.adapters.settings import Load, Settings
from benchmarks.harness import Cost

Feature = Literal["one record", "many tasks", "keys", "headers"]
"""What not every client can: ``send_and_wait`` at all, ``send_and_wait`` in many tasks at once,
records with keys, records with headers.
"""


class DeliveryFailedError(Exception):
    """A record was not acknowledged."""


class Adapter(Protocol):
    """A producer, with the settings that come nearest to the others'. Made without arguments;
    started and stopped once.

    Attributes:
        name: as tables show it.
        lacks: what it can't; it is not asked for it.
    """

    name: ClassVar[str]
    lacks: ClassVar[frozenset[Feature]]

    async def start(self, settings: Settings) -> None:
        """Connect."""

    async def stop(self) -> None:
        """Send what is left, and disconnect."""

    async def send_all(self, load: Load) -> None:
        """Send the records, one call each, wait for every delivery and look at it; raises where one
        failed.
        """

    async def send_and_wait(self, topic: str, value: bytes, key: bytes | None) -> None:
        """Send one record and wait until it is acknowledged. Clients that don't lack ``many tasks``
        take many such calls at once.
        """


@runtime_checkable
class Foreign(Protocol):
    """What an adapter has beside the rest whose client runs in a process of its own, and counts its
    records itself.
    """

    async def steady(self, load: Load) -> Cost:
        """The cost of records like these, start and warm-up left out."""


@asynccontextmanager
async def started(adapter: Adapter, settings: Settings) -> AsyncIterator[Adapter]:
    """The adapter, connected until the block ends."""
    await adapter.start(settings)
    try:
        yield adapter
    finally:
        await adapter.stop()
