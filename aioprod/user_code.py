"""Errors of callbacks, plug-ins and other user code that clients call.

KeyboardInterrupt and SystemExit end the program. All other errors, including CancelledError, only
mean that the user code failed. docs/architecture.md has the rules.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, NoReturn, ParamSpec, TypeVar
from weakref import WeakSet

from aioprod.errors import KafkaError
from aioprod.logs import get_logger

log = get_logger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

ENDS_PROGRAM: Final = (KeyboardInterrupt, SystemExit)

_raising: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


def surface(error: BaseException) -> None:
    """Make the event loop raise KeyboardInterrupt or SystemExit, as for its own callbacks.

    It raises in its next iteration, when the client has finished its current operation. Of several
    such errors, it raises the first: a second one would interrupt the cleanup of ``asyncio.run``.
    Without a running loop, the error is raised here. Other errors are ignored.
    """
    if not isinstance(error, ENDS_PROGRAM):
        return
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise error from None
    if loop not in _raising:
        _raising.add(loop)
        loop.call_soon(_raise, loop, error)


def _raise(loop: asyncio.AbstractEventLoop, error: BaseException) -> NoReturn:
    _raising.discard(loop)
    raise error


def is_cancelled() -> bool:
    """Return whether the running task is being cancelled, so a CancelledError may be its own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def call(what: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call user code, and raise its errors unchanged.

    Raises:
        KafkaError: if ``function`` raises CancelledError, although nothing was cancelled.
    """
    try:
        return function(*args, **kwargs)
    except asyncio.CancelledError as error:
        raise KafkaError(f"{what} raised CancelledError, but nothing was cancelled") from error


class FallbackClock:
    """Reads a user's clock, or ``time.time`` if the clock fails.

    A failure is logged, once until the clock succeeds again.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failing = False

    def __call__(self) -> float:
        try:
            now = self._clock()
        except BaseException as error:
            if not self._failing:
                self._failing = True
                log.warning("clock failed, using time.time() until it succeeds", exc_info=error)
                surface(error)
            return time.time()
        self._failing = False
        return now
