"""Where a client lives: the event loop and the process that it was started in. Tells of clients
that are used elsewhere, or forgotten.

Nothing that runs in the background may refer to the object that users hold, or it could never be
seen that they have dropped it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import warnings
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, ParamSpec

from aioprod.errors import KafkaError, WrongEventLoopError

log = logging.getLogger(__name__)

P = ParamSpec("P")

_homes: weakref.WeakSet[Home] = weakref.WeakSet()


class Home:
    """The event loop of one client, from its start to its end.

    Args:
        client: what the client is called in errors and warnings.

    Attributes:
        on_fork: called in a forked child, to take away what calls may use without asking
            :meth:`check`. It may do no I/O: sockets and the selector are the parent's.
    """

    def __init__(self, client: str, on_fork: Callable[[], object] = lambda: None) -> None:
        self.client = client
        self.on_fork = on_fork
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = ""
        self._process = 0
        self._forked = False
        self._releasing: asyncio.Task[None] | None = None
        self._start_limit: asyncio.Timeout | None = None

    def enter(self) -> None:
        """The client starts, in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.current_thread().name
        self._process = os.getpid()
        _homes.add(self)

    def leave(self) -> None:
        """Nothing of the client is left."""
        self._loop = None
        _homes.discard(self)

    @contextlib.asynccontextmanager
    async def starting(
        self, closed: Callable[[], KafkaError | None], undo: Callable[[], Awaitable[None]]
    ) -> AsyncIterator[None]:
        """A start. Whatever it raises, nothing is left open; where the client is closed meanwhile,
        it ends at once.

        Args:
            closed: why the client is closed, if it is.
            undo: closes what was opened.
        """
        self.enter()
        try:
            async with asyncio.timeout(None) as self._start_limit:
                yield
            error = closed()
            if error is not None:
                raise error.with_traceback(None)
        except BaseException as failure:
            try:
                await undo()
            finally:
                self.leave()
            error = closed()
            if error is not None and isinstance(failure, KafkaError | TimeoutError):
                raise error.with_traceback(
                    None
                ) from None  # whatever the client's end did to what was under way
            raise
        finally:
            self._start_limit = None

    def end_start(self) -> None:
        """The client is closed: end a start that is under way."""
        bring_forward(self._start_limit, asyncio.get_running_loop().time())

    @property
    def is_gone(self) -> bool:
        """Whether the client was started, and its event loop is closed: no task runs, no connection
        is open any more.
        """
        return self._loop is not None and not self._forked and self._loop.is_closed()

    def check(self) -> None:
        """Raise WrongEventLoopError unless the client's own event loop runs, or it has none."""
        loop = self._loop
        if loop is None:
            return
        if self._forked:
            raise WrongEventLoopError(
                f"{self.client} was started in process {self._process}: make one in each "
                "process, after the fork"
            )
        try:
            if asyncio.get_running_loop() is loop:
                return
        except RuntimeError:
            pass  # no event loop runs here
        if loop.is_closed():
            raise WrongEventLoopError(
                f"{self.client} was started in an event loop that is closed: make one in "
                "each event loop, and close it there"
            )
        raise WrongEventLoopError(
            f"{self.client} belongs to the event loop in thread {self._thread!r}: make one "
            "in each event loop, or call this one from other threads "
            "with asyncio.run_coroutine_threadsafe()"
        )

    def forgotten(
        self, source: object, lost: str, release: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """The client is dropped without close, says its ``__del__``: where it was started, warn,
        and have it released in its event loop.

        Args:
            source: the object that is dropped.
            lost: what is lost by that, if anything. It is logged too, for ResourceWarnings are not
                shown by default.
            release: ends what can be ended at once, and returns what else there is to do.
        """
        loop = self._loop
        if loop is None or self._forked:
            return
        self.leave()
        try:
            if not loop.is_closed():
                # This may be any thread, and any moment: in the middle of what is to be released.
                loop.call_soon_threadsafe(self._release, loop, release)
        except RuntimeError:
            pass  # it was closed just now
        finally:
            text = f"unclosed {self.client}{lost}; use 'async with', or await close()"
            if lost:
                log.error(text)
            warnings.warn(text, ResourceWarning, stacklevel=4, source=source)

    def _release(
        self, loop: asyncio.AbstractEventLoop, release: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        self._releasing = loop.create_task(release(), name="aioprod-release")


def bring_forward(limit: asyncio.Timeout | None, deadline: float) -> None:
    """Have a block under ``asyncio.timeout`` end by loop time ``deadline``, unless it ends
    earlier.
    """
    if limit is not None and not limit.expired():
        when = limit.when()
        if when is None or deadline < when:
            limit.reschedule(deadline)


def weakly(method: Callable[P, object]) -> Callable[P, None]:
    """A call of a bound method that does not keep its object alive; nothing happens once that is
    gone.
    """
    reference = weakref.WeakMethod(method)

    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        alive = reference()
        if alive is not None:
            alive(*args, **kwargs)

    return call


def _in_child() -> None:
    for home in list(_homes):
        home._forked = True
        home.on_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
