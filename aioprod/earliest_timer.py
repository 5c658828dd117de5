"""One timer for many due times."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_NEVER = float("inf")


class EarliestTimer:
    """Calls a function at the earliest of the times that it was set to, once.

    It keeps the due time itself. An event loop's handle need not know it: uvloop's ``call_at``
    returns one without ``when()`` if the time has come.

    Args:
        on_due: called with the loop time, which is never before the due time, although a loop may
            be early by the resolution of its clock.

    Attributes:
        due: loop time of the call; infinity if no time is set.
    """

    __slots__ = ("_handle", "_on_due", "due")

    def __init__(self, on_due: Callable[[float], object]) -> None:
        self._on_due = on_due
        self.due: float = _NEVER
        self._handle: asyncio.Handle | None = None

    def set(self, due: float) -> None:
        """Call the function at ``due`` (loop time), unless an earlier call is due."""
        if due >= self.due:
            return
        if self._handle is not None:
            self._handle.cancel()
        self.due = due
        self._handle = asyncio.get_running_loop().call_at(due, self._fire)

    def stop(self) -> None:
        """Forget all times."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
            self.due = _NEVER

    def _fire(self) -> None:
        now = max(self.due, asyncio.get_running_loop().time())
        self._handle = None
        self.due = _NEVER
        self._on_due(now)
