"""Whether a consumer is started, closed or broken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aioprod.consumer.state import ConsumerStatus
from aioprod.errors import ConsumerStateError, KafkaError


class RunState:
    """The stages of one consumer's life.

    Args:
        clock: seconds since 1970.
        on_fault: called when the consumer breaks, so that the waiting call learns of it.

    Attributes:
        status: the present stage.
        since: when it began, in seconds since 1970.
        started: whether ``start`` has succeeded.
        closing: the error of calls after ``close``; None before.
        fault: why the consumer broke, if it did.
    """

    def __init__(self, clock: Callable[[], float], on_fault: Callable[[], None]) -> None:
        self.clock = clock
        self.status = ConsumerStatus.STOPPED
        self.since = clock()
        self.started = False
        self.closing: KafkaError | None = None
        self.fault: KafkaError | None = None
        self._on_fault = on_fault
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin_start(self) -> None:
        """Enter STARTING, in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._enter(ConsumerStatus.STARTING)

    def end_start(self) -> None:
        """Enter READING: the consumer is connected."""
        self.started = True
        self._enter(ConsumerStatus.READING)

    def begin_close(self, error: KafkaError) -> None:
        """Refuse further calls with this error; the first error counts."""
        self.closing = self.closing or error

    def stop(self) -> None:
        """Enter STOPPED: the consumer is closed, or its start has failed."""
        self._enter(ConsumerStatus.STOPPED)

    def fail(self, error: KafkaError) -> None:
        """Refuse further calls with this error: a background task of the consumer has failed."""
        self.fault = self.fault or error
        self._on_fault()

    def check_open(self) -> None:
        """Raise unless the consumer is started, open and not broken."""
        for error in (self.closing, self.fault):
            if error is not None:
                raise error.with_traceback(None)
        if not self.started:
            raise ConsumerStateError(
                "the consumer is not started: use 'async with', or call start()"
            )

    def check_not_stopped(self) -> None:
        """Raise if ``close`` has ended."""
        if self.closing is not None and self.status is ConsumerStatus.STOPPED:
            raise self.closing.with_traceback(None)

    @property
    def has_loop(self) -> bool:
        """Whether the consumer belongs to an event loop, so that a task calls it."""
        return self._loop is not None

    def now(self) -> float:
        """The event loop's time in seconds; 0 before the start."""
        return self._loop.time() if self._loop is not None else 0.0

    def _enter(self, status: ConsumerStatus) -> None:
        self.status, self.since = status, self.clock()
