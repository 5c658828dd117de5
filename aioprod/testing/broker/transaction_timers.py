"""The time limit of each open transaction. It stands still while the broker is stopped, and starts
anew with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class TransactionTimers:
    """One timer for each transactional id; ``expired`` is called with the id."""

    def __init__(self, expired: Callable[[str], None]) -> None:
        self._expired = expired
        self._timeouts_ms: dict[str, int] = {}
        self._handles: dict[str, asyncio.TimerHandle] = {}

    def start(self, name: str, timeout_ms: int) -> None:
        """Count from now on."""
        self.cancel(name)
        self._timeouts_ms[name] = timeout_ms
        self._handles[name] = asyncio.get_running_loop().call_later(
            timeout_ms / 1000, self._fire, name
        )

    def cancel(self, name: str) -> None:
        """Count no longer."""
        self._timeouts_ms.pop(name, None)
        handle = self._handles.pop(name, None)
        if handle is not None:
            handle.cancel()

    def suspend(self) -> None:
        """The broker stops: leave nothing on the event loop."""
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()

    def resume(self) -> None:
        """The broker starts: every open transaction that was suspended has all its time again."""
        for name, timeout_ms in list(self._timeouts_ms.items()):
            if name not in self._handles:
                self.start(name, timeout_ms)

    def _fire(self, name: str) -> None:
        self.cancel(name)
        self._expired(name)
