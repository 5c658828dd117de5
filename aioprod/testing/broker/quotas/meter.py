"""How fast something flows, as Kafka's brokers measure it: sums over eleven windows of one
second.
"""

from __future__ import annotations

from collections import deque

_WINDOW_SECONDS = 1.0  # broker setting quota.window.size.seconds
_WINDOWS = 11  # broker setting quota.window.num
BURST_SECONDS = (_WINDOWS - 1) * _WINDOW_SECONDS  # who did nothing before may take as much at once


class Meter:
    """The rate of one entity.

    A client that has just begun counts as one that did nothing before: what it sends at once is
    spread over ten seconds.
    """

    def __init__(self) -> None:
        self._samples: deque[list[float]] = deque()  # when each window began, and its sum

    def add(self, amount: float, now: float) -> None:
        """Count ``amount``, which may be negative to take something back."""
        if not self._samples or now - self._samples[-1][0] >= _WINDOW_SECONDS:
            self._samples.append([now, 0.0])
        self._samples[-1][1] += amount
        while now - self._samples[0][0] >= _WINDOWS * _WINDOW_SECONDS:
            self._samples.popleft()

    def excess_seconds(self, limit: float, now: float) -> float:
        """How long to pause, so that the rate is not above ``limit`` a second; 0 where it is
        not.
        """
        total, elapsed = sum(amount for _, amount in self._samples), self._elapsed(now)
        rate = total / elapsed
        return (rate - limit) / limit * elapsed if rate > limit else 0.0

    def _elapsed(self, now: float) -> float:
        """The time that the windows stand for, ten seconds at least."""
        elapsed = now - self._samples[0][0] if self._samples else 0.0
        missing = _WINDOWS - 1 - int(elapsed / _WINDOW_SECONDS)
        return elapsed + max(missing, 0) * _WINDOW_SECONDS
