"""What a client does with errors of users' code that it calls.

KeyboardInterrupt and SystemExit end a program. Any other error of users' code, also CancelledError,
says only that this code failed. docs/architecture.md has the rule for each kind of seam.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, NoReturn, ParamSpec, TypeVar
from weakref import WeakSet

from aioprod.errors import KafkaError

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

ENDS_PROGRAM: Final = (KeyboardInterrupt, SystemExit)

_raising: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


def surface(error: BaseException) -> None:
    """Have the event loop raise KeyboardInterrupt or SystemExit, as it does for its own callbacks.

    It raises in its next turn, when the client has finished what it is doing. Several such errors
    of one turn are raised once: a second one would break off the cleanup of ``asyncio.run``.
    Without a running loop the error is raised here. Other errors are ignored.
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
    """Whether the running task was asked to end, so that a CancelledError may be for it."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def call(what: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a user's function for a caller that gets its errors as they are.

    Raises:
        KafkaError: ``function`` raised CancelledError, which would pass for the caller's own.
    """
    try:
        return function(*args, **kwargs)
    except asyncio.CancelledError as error:
        raise KafkaError(f"{what} raised CancelledError, but nothing was cancelled") from error


class FallbackClock:
    """A user's clock that a client reads by itself: where it fails, ``time.time`` is used.

    The failure is logged, once until the clock succeeds again.
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
