"""When the next request of a share session is sent: acknowledgements wait for a fetch that they can
go with, and failures for a backoff.
"""

from __future__ import annotations

from collections.abc import Callable

from aioprod.earliest_timer import EarliestTimer
from aioprod.net.backoff import Backoff

# How long an acknowledgement waits for a fetch that it can go with.
_LINGER_S = 0.1


class Pacing:
    """The times of one session.

    Args:
        backoff: the pauses after failures.
        on_due: called when a request may be due.
    """

    def __init__(self, backoff: Backoff, on_due: Callable[[], None]) -> None:
        self._backoff = backoff
        self._send_at = 0.0
        self._retry_at = 0.0
        self._failures = 0
        self._timer = EarliestTimer(lambda _: on_due())

    def acknowledged(self, now: float, *, first: bool, urgent: bool) -> None:
        """Note an acknowledgement.

        Args:
            first: whether no other one waits.
            urgent: whether it goes without a delay.
        """
        due = now if urgent else now + _LINGER_S
        self._send_at = due if first else min(self._send_at, due)
        self.wait(now, acknowledgements=True)

    def flush(self) -> None:
        """Let acknowledgements wait no longer."""
        self._send_at = 0.0

    def paused(self, now: float) -> bool:
        """Whether a failure was a short time ago."""
        return now < self._retry_at

    @property
    def searches(self) -> bool:
        """Whether another leader is looked for as often as metadata may be requested."""
        return self._backoff.searches(self._failures)

    def lingers(self, now: float) -> bool:
        """Whether acknowledgements still wait for a fetch."""
        return now < self._send_at

    def succeeded(self) -> None:
        """Note that the session works."""
        self._failures = 0

    def pause(self, now: float) -> None:
        """Send nothing for the backoff."""
        self._failures += 1
        self._retry_at = now + self._backoff.seconds(self._failures)

    def wait(self, now: float, *, acknowledgements: bool) -> None:
        """Call ``on_due`` when the pause is over, and acknowledgements no longer wait."""
        self._timer.set(max(self._retry_at, self._send_at if acknowledgements else now))

    def stop(self) -> None:
        """Call ``on_due`` no more."""
        self._timer.stop()
