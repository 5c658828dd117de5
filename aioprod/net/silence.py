"""Notices that a broker keeps silent: frozen, cut off, or its machine gone, so that no end of a
connection tells.

No setting of Kafka's stands for this: clients usually wait for ``request.timeout.ms``. Here silence
only has the other brokers asked who leads now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

#: Seconds without a word after which a broker that owes an answer counts as silent.
SILENCE_S = 1.0
# : Seconds after which what any broker could answer is asked of another, too. A broker answers a
# connection's requests one after another: behind a
# : Produce that waits for a dead replica, or a Fetch that waits for records, a small question waits
# as long as that.
HESITATION_S = 0.25
# Timers may ring a little early.
_TOLERANCE_S = 0.001
# The part of a second after which silence is believed.
_DOUBT = 0.05


class SilenceWatch:
    """Calls back each second, for as long as somebody has waited for more than a second.

    Args:
        waiting_since: loop time since when somebody waits without any sign of life; None where
            nobody does.
        on_silence: what to call.
    """

    __slots__ = ("_loop", "_on_silence", "_stopped", "_timer", "_waiting_since")

    def __init__(
        self, waiting_since: Callable[[], float | None], on_silence: Callable[[], object]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting_since = waiting_since
        self._on_silence = on_silence
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def begin(self) -> None:
        """Somebody waits from now on; does nothing where somebody did already."""
        if self._timer is None and not self._stopped:
            self._timer = self._loop.call_later(SILENCE_S, self._look)

    def stop(self) -> None:
        """Call back no more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def waited_s(self) -> float:
        """Seconds that somebody has waited by now; 0 where nobody does."""
        since = self._waiting_since()
        return 0.0 if since is None else self._loop.time() - since

    @property
    def silent(self) -> bool:
        """Whether somebody waits for too long at this moment."""
        return self.waited_s >= SILENCE_S - _TOLERANCE_S

    def _look(self) -> None:
        self._timer = None
        since = self._waiting_since()
        if since is not None and self.silent:
            # This program may have stood still itself, and the answer be there already: read it
            # first.
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
