"""Binds a client to its event loop and process. Calls from another loop or process raise an error.
Logs a warning for clients that are dropped without ``close``.
"""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
import weakref
from collections.abc import Callable

from aioprod.errors import WrongEventLoopError
from aioprod.logs import Logger, get_logger

log: Logger = get_logger(__name__)

_bindings: weakref.WeakSet[LoopBinding] = weakref.WeakSet()


class LoopBinding:
    """Binds one client to its event loop and process, from start to close.

    Args:
        client: the name of the client in errors and warnings.
        on_fork: called in a forked child process, to clear state that calls use without
            :meth:`check`. It must not do I/O: sockets and the selector belong to the parent
            process.
    """

    def __init__(self, client: str, on_fork: Callable[[], object] = lambda: None) -> None:
        self.client = client
        self.on_fork = on_fork
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = ""
        self._process = 0
        self._forked = False
        self._releasing: asyncio.Task[None] | None = None

    def bind(self) -> None:
        """Bind the client to the running event loop. Called when it starts."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.current_thread().name
        self._process = os.getpid()
        _bindings.add(self)

    def unbind(self) -> None:
        """Release the client from its event loop. Called when it is closed."""
        self._loop = None
        _bindings.discard(self)

    @property
    def loop_closed(self) -> bool:
        """True if the client was started and its event loop is closed: no task of the client is
        running, and no connection is open.
        """
        return self._loop is not None and not self._forked and self._loop.is_closed()

    def check(self) -> None:
        """Check that the client was started in the running event loop, or is not started.

        Raises:
            WrongEventLoopError: if it was started in another event loop or process.
        """
        loop = self._loop
        if loop is None:
            return
        if self._forked:
            raise WrongEventLoopError(
                f"{self.client} was started in process {self._process}: create one in each "
                "process, after the fork"
            )
        try:
            if asyncio.get_running_loop() is loop:
                return
        except RuntimeError:
            pass  # no running event loop
        if loop.is_closed():
            raise WrongEventLoopError(
                f"{self.client} was started in an event loop that is closed: create one in "
                "each event loop, and close it there"
            )
        raise WrongEventLoopError(
            f"{self.client} belongs to the event loop in thread {self._thread!r}: create one "
            "in each event loop, or call this one from other threads "
            "with asyncio.run_coroutine_threadsafe()"
        )

    def warn_unclosed(
        self, source: object, lost: str, release: Callable[[], asyncio.Task[None]]
    ) -> None:
        """Warn that the client is dropped without ``close``, and release it in its event loop.

        Does nothing for a client that is not started, or in a forked child process.

        Args:
            source: the object that is dropped.
            lost: describes the lost data, if any. Such a warning is also logged, because Python
                ignores ResourceWarnings by default.
            release: releases what needs no wait, and returns a task that releases the rest.
        """
        loop = self._loop
        if loop is None or self._forked:
            return
        self.unbind()
        try:
            if not loop.is_closed():
                # Runs in any thread, perhaps within a method of the objects to be released.
                loop.call_soon_threadsafe(self._release, release)
        except RuntimeError:
            pass  # the loop was closed just now
        finally:
            text = f"unclosed {self.client}{lost}; use 'async with', or await close()"
            if lost:
                log.error(text)
            warnings.warn(text, ResourceWarning, stacklevel=4, source=source)

    def _release(self, release: Callable[[], asyncio.Task[None]]) -> None:
        self._releasing = release()


def _in_child() -> None:
    for binding in list(_bindings):
        binding._forked = True
        binding.on_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
