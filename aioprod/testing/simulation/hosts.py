"""The hosts of a simulation: each callback and task runs on one of them, and a host can freeze."""

from __future__ import annotations

from asyncio.events import Handle
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar

HOST: ContextVar[str] = ContextVar("simulated_host", default="client")


class Hosts:
    """Freezes hosts. :meth:`aioprod.testing.simulation.network.Network.host` assigns them.

    Args:
        ready: the loop's callbacks that are due.
        note: adds a line to the loop's trace.

    Attributes:
        frozen: the callbacks that each frozen host has missed.
    """

    def __init__(self, ready: deque[Handle], note: Callable[[str], None]) -> None:
        self.frozen: dict[str, list[Handle]] = {}
        self._ready = ready
        self._note = note

    def freeze(self, name: str) -> None:
        """Run nothing on a host until :meth:`unfreeze`, as if its process were stopped (SIGSTOP).
        Its connections stay open, and data for it waits.
        """
        if name not in self.frozen:
            self.frozen[name] = []
            self._note(f"{name} freezes")

    def unfreeze(self, name: str) -> None:
        """Continue a frozen host: everything that it has missed runs now, in order."""
        missed = self.frozen.pop(name, None)
        if missed is not None:
            self._ready.extend(missed)
            self._note(f"{name} continues, {len(missed)} callbacks late")

    def contains(self, handle: Handle) -> bool:
        """Return whether a callback belongs to a frozen host. If so, it is kept for later."""
        missed = self.frozen.get(handle._context.get(HOST, ""))  # type: ignore[attr-defined]
        if missed is None:
            return False
        missed.append(handle)
        return True
