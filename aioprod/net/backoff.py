"""Exponential back-off with jitter (KIP-580)."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double from ``first_ms`` up to ``longest_ms``, each varied by a fifth so that
    clients don't march in step.
    """

    first_ms: int
    longest_ms: int
    rng: random.Random

    def seconds(self, failures: int) -> float:
        """Pause after the given number of failures in a row, in seconds; none after no failure."""
        if failures <= 0:
            return 0.0
        # 2**30 is past every sensible limit; the cap keeps the power from growing for ever.
        pause: float = min(self.first_ms * 2 ** min(failures - 1, 30), self.longest_ms)
        return pause * self.rng.uniform(0.8, 1.2) / 1000
