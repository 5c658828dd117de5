"""Exponential backoff with jitter (KIP-580)."""

from __future__ import annotations

import random
from dataclasses import dataclass

#: With the default backoff, attempts in about 18 s: twice the default session of a broker.
_MOST_SEARCHED_FAILURES = 20


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double from ``first_ms`` up to ``longest_ms``. Each varies by a fifth, so that
    clients do not retry at the same moment.
    """

    first_ms: int
    longest_ms: int
    rng: random.Random

    @staticmethod
    def searches(failures: int) -> bool:
        """Whether metadata are requested as often as they may be, after this number of consecutive
        failures to reach a leader: another one may lead soon. Later each attempt to connect
        requests them, so that many clients that can't reach a broker do not load the others.
        """
        return failures <= _MOST_SEARCHED_FAILURES

    def seconds(self, failures: int) -> float:
        """Return the pause after this number of consecutive failures, in seconds; 0 for none."""
        if failures <= 0:
            return 0.0
        # 2**30 is above any useful limit; the cap keeps the power small.
        pause: float = min(self.first_ms * 2 ** min(failures - 1, 30), self.longest_ms)
        return pause * self.rng.uniform(0.8, 1.2) / 1000
