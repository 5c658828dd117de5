"""The state of a processor, and what probes report of it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from aioprod.probes import Probed
from aioprod.public_module import set_module


@set_module("aioprod.processing")
class ProcessorStatus(StrEnum):
    """The current activity of a processor."""

    NEW = "new"
    """Not started."""
    STARTING = "starting"
    """Connecting, or waiting for its first partitions."""
    RUNNING = "running"
    """Processing records."""
    FAILING = "failing"
    """The consumer or the group fails; it retries."""
    STALLED = "stalled"
    """A partition that has records to read makes no progress; ``error`` says why."""
    STOPPING = "stopping"
    """Waiting for running handlers."""
    STOPPED = "stopped"
    """Ended."""


@set_module("aioprod.processing")
class ProcessorState(NamedTuple):
    """A processor's state at one moment.

    Attributes:
        status: the current activity of the processor.
        ready: whether it processes records; for readiness probes.
        healthy: whether it works, or will recover without a restart; for liveness probes.
        error: why it fails, or why it ended; None otherwise.
    """

    status: ProcessorStatus
    ready: bool
    healthy: bool
    error: BaseException | None = None


def probed(state: ProcessorState) -> Probed:
    """Return what probes report."""
    details = {"status": str(state.status)}
    if state.error is not None:
        # The text of an error may contain data of a record; that of a stall names only its place.
        stalled = state.status is ProcessorStatus.STALLED
        details["error"] = str(state.error) if stalled else type(state.error).__name__
    return Probed(state.ready, state.healthy, details)
