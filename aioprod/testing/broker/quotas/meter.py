"""Measures rates as Kafka's brokers do: sums over eleven windows of one second."""

from __future__ import annotations

from collections import deque

_WINDOW_SECONDS = 1.0  # broker setting quota.window.size.seconds
_WINDOWS = 11  # broker setting quota.window.num
# An idle client may use the quota of this many seconds at once.
BURST_SECONDS = (_WINDOWS - 1) * _WINDOW_SECONDS


class Meter:
    """The rate of one entity.

    A new client counts as idle until now: its first bytes are averaged over ten seconds.
    """

    def __init__(self) -> None:
        self._samples: deque[list[float]] = deque()  # the start and the sum of each window

    def add(self, amount: float, now: float) -> None:
        """Count ``amount``. A negative amount undoes an earlier one."""
        if not self._samples or now - self._samples[-1][0] >= _WINDOW_SECONDS:
            self._samples.append([now, 0.0])
        self._samples[-1][1] += amount
        while now - self._samples[0][0] >= _WINDOWS * _WINDOW_SECONDS:
            self._samples.popleft()

    def excess_seconds(self, limit: float, now: float) -> float:
        """Return how long to pause so that the rate is not above ``limit`` per second; 0 if it is
        not.
        """
        total, elapsed = sum(amount for _, amount in self._samples), self._elapsed(now)
        rate = total / elapsed
        return (rate - limit) / limit * elapsed if rate > limit else 0.0

    def _elapsed(self, now: float) -> float:
        """Return the time that the windows cover, at least ten seconds."""
        elapsed = now - self._samples[0][0] if self._samples else 0.0
        missing = _WINDOWS - 1 - int(elapsed / _WINDOW_SECONDS)
        return elapsed + max(missing, 0) * _WINDOW_SECONDS
