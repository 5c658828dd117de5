"""Detects a silent broker: one that is frozen or cut off, so that its connections do not end.

Kafka has no setting for this: clients usually wait for ``request.timeout.ms``. Here a silent broker
makes the client ask the other brokers for the current leaders.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

#: Seconds without any bytes after which a broker counts as silent while a reply is due.
SILENCE_S = 1.0
#: Seconds after which a request that any broker can answer is sent to another broker, too. A broker
#: answers the requests of a connection in order, so a small request waits behind a Produce that
#: waits for a dead replica, or a Fetch that waits for records.
HESITATION_S = 0.25
# Timers may fire a little early.
_TOLERANCE_S = 0.001
# Part of ``SILENCE_S`` after which the silence is confirmed.
_DOUBT = 0.05


class SilenceWatch:
    """Calls back each second in which a reply has been due for more than a second.

    Args:
        waiting_since: returns the loop time since when a reply is due and no bytes have arrived;
            None if no reply is due.
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
        """Watch from now on, as a reply is due; does nothing if one was due before."""
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
        """Seconds for which a reply has been due; 0 if none is."""
        since = self._waiting_since()
        return 0.0 if since is None else self._loop.time() - since

    @property
    def silent(self) -> bool:
        """Whether a reply has been due for too long."""
        return self.waited_s >= SILENCE_S - _TOLERANCE_S

    def _look(self) -> None:
        self._timer = None
        since = self._waiting_since()
        if since is not None and self.silent:
            # This process may have been suspended, and the reply may be there already: let the
            # loop read it first.
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
