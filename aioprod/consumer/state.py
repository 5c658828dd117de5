"""How a consumer is, for health checks."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from aioprod.errors import KafkaError
from aioprod.public_module import set_module


@set_module("aioprod.consumer")
class ConsumerStatus(StrEnum):
    """What a consumer is doing."""

    STOPPED = "stopped"
    """Not started yet, or closed."""
    STARTING = "starting"
    """Connecting for the first time."""
    REBALANCING = "rebalancing"
    """The group shares out its partitions."""
    READING = "reading"
    """Reading, or waiting for new records."""
    FAILING = "failing"
    """Something it needs does not work; it is tried again, and again."""


@set_module("aioprod.consumer")
class ConsumerState(NamedTuple):
    """A consumer's state at one moment.

    Attributes:
        status: what it is doing.
        since: seconds since 1970 at which that began; of ``failing``, the first failure since all
            was well.
        error: the last error while it is failing, or what ended it; else None.
    """

    status: ConsumerStatus
    since: float
    error: KafkaError | None = None
