"""The state of a consumer, for health checks."""

from enum import StrEnum
from typing import NamedTuple

from aioprod.errors import KafkaError
from aioprod.public_module import set_module


@set_module("aioprod.consumer")
class ConsumerStatus(StrEnum):
    """The current activity of a consumer."""

    STOPPED = "stopped"
    """Not started yet, or closed."""
    STARTING = "starting"
    """Connecting for the first time."""
    REBALANCING = "rebalancing"
    """The group is assigning its partitions. For a share consumer: it is not in its group yet."""
    READING = "reading"
    """Reading, or waiting for new records."""
    STALLED = "stalled"
    """Records are there, and their partition was not read for ``stall_timeout_ms``; of a share
    consumer also: its acknowledgements fail, or it can't join its group."""
    FAILING = "failing"
    """A request or the group fails; the consumer retries."""


@set_module("aioprod.consumer")
class ConsumerState(NamedTuple):
    """A consumer's state at one moment.

    Attributes:
        status: its current activity.
        since: when that began, in seconds since 1970; for ``failing``, the time of the first
            failure.
        error: the last error while ``failing``, or the error that ended the consumer; while
            ``stalled``, which partition is not read and why; else None.
    """

    status: ConsumerStatus
    since: float
    error: KafkaError | None = None
