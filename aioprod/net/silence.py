"""Detects a silent broker: one that hangs or is cut off from the network, so that its connections
stay open without replies.

Kafka has no setting for this; its clients wait for ``request.timeout.ms``. Here, if a broker is
silent, the client requests the current leaders from the other brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

#: Seconds without received bytes, while a reply is due, after which a broker counts as silent.
SILENCE_S = 1.0
#: Seconds after which a request that any broker can handle is also sent to another broker. A broker
#: handles the requests of a connection in order, so a small request may be delayed by a Produce
#: that waits for a failed replica, or by a Fetch that waits for records.
HESITATION_S = 0.25
# Timers may fire a little early.
_TOLERANCE_S = 0.001
# Fraction of ``SILENCE_S`` after which the silence is checked again.
_DOUBT = 0.05


class SilenceWatch:
    """Calls a function every second while a reply has been due for more than a second.

    Args:
        waiting_since: returns the loop time from which on a reply has been due and no bytes have
            arrived; None if no reply is due.
        on_silence: called each second.
    """

    __slots__ = ("_loop", "_on_silence", "_stopped", "_timer", "_waiting_since")

    def __init__(
        self, waiting_since: Callable[[], float | None], on_silence: Callable[[], object]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting_since = waiting_since
        self._on_silence = on_silence
        self._timer: asyncio.Handle | None = None
        self._stopped = False

    def begin(self) -> None:
        """Start watching, as a reply is due. Does nothing if the watch is running."""
        if self._timer is None and not self._stopped:
            self._timer = self._loop.call_later(SILENCE_S, self._look)

    def stop(self) -> None:
        """Stop watching."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def waited_s(self) -> float:
        """Seconds for which a reply has been due; 0 if none is due."""
        since = self._waiting_since()
        return 0.0 if since is None else self._loop.time() - since

    @property
    def silent(self) -> bool:
        """True if a reply has been due for longer than ``SILENCE_S``."""
        return self.waited_s >= SILENCE_S - _TOLERANCE_S

    def _look(self) -> None:
        self._timer = None
        since = self._waiting_since()
        if since is not None and self.silent:
            # This process may have been suspended, and the reply may have arrived: let the loop
            # read it first.
            self._timer = self._loop.call_later(SILENCE_S * _DOUBT, self._look_again, since)
        elif since is not None:
            self._timer = self._loop.call_at(since + SILENCE_S, self._look)

    def _look_again(self, before: float) -> None:
        self._timer = None
        since = self._waiting_since()
        if since == before:
            self._on_silence()
            since = self._loop.time()
        if since is not None and not self._stopped:
            self._timer = self._loop.call_at(since + SILENCE_S, self._look)
