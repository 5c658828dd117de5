"""Tracks whether a consumer is started, closed or broken."""

from __future__ import annotations

from collections.abc import Callable

from aioprod.cluster.runtime import ClientRuntime
from aioprod.consumer.state import ConsumerStatus
from aioprod.errors import KafkaError


class RunState:
    """The stage of one consumer, from its start to its end.

    Args:
        runtime: knows whether the consumer is started or closed.
        clock: seconds since 1970.
        on_fault: called when the consumer breaks, to wake the waiting call.

    Attributes:
        status: the current stage.
        since: when the current stage began, in seconds since 1970.
        fault: why the consumer broke, if it did.
    """

    def __init__(
        self, runtime: ClientRuntime, clock: Callable[[], float], on_fault: Callable[[], None]
    ) -> None:
        self.clock = clock
        self.status: ConsumerStatus = ConsumerStatus.STOPPED
        self.since: float = clock()
        self.fault: KafkaError | None = None
        self._runtime = runtime
        self._on_fault = on_fault

    @property
    def started(self) -> bool:
        """True if ``start`` has succeeded."""
        return self._runtime.started

    @property
    def closing(self) -> KafkaError | None:
        """The error of calls after ``close``; None before."""
        return self._runtime.closing

    def begin_start(self) -> None:
        """Enter STARTING."""
        self._enter(ConsumerStatus.STARTING)

    def end_start(self) -> None:
        """Enter READING: the consumer is connected."""
        self._enter(ConsumerStatus.READING)

    def stop(self) -> None:
        """Enter STOPPED: the consumer is closed, or its start has failed."""
        self._enter(ConsumerStatus.STOPPED)

    def fail(self, error: KafkaError) -> None:
        """Refuse further calls with this error: a background task of the consumer has failed."""
        self.fault = self.fault or error
        self._on_fault()

    def check_open(self) -> None:
        """Raise unless the consumer is started, open and not broken."""
        self._runtime.check_running()
        if self.fault is not None:
            raise self.fault.with_traceback(None)

    def check_not_stopped(self) -> None:
        """Raise if ``close`` has ended."""
        if self.closing is not None and self.status is ConsumerStatus.STOPPED:
            raise self.closing.with_traceback(None)

    @property
    def has_loop(self) -> bool:
        """True if the consumer belongs to an event loop, so that a task calls it."""
        return self._runtime.has_loop

    def now(self) -> float:
        """Return the event loop's time in seconds; 0 before the start."""
        return self._runtime.now()

    def _enter(self, status: ConsumerStatus) -> None:
        self.status, self.since = status, self.clock()
