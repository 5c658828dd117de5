"""Exponential backoff with jitter (KIP-580)."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double from ``first_ms`` up to ``longest_ms``. Each varies by a fifth, so that
    clients do not retry at the same moment.
    """

    first_ms: int
    longest_ms: int
    rng: random.Random

    def seconds(self, failures: int) -> float:
        """Return the pause after this number of consecutive failures, in seconds; 0 for none."""
        if failures <= 0:
            return 0.0
        # 2**30 is above any useful limit; the cap keeps the power small.
        pause: float = min(self.first_ms * 2 ** min(failures - 1, 30), self.longest_ms)
        return pause * self.rng.uniform(0.8, 1.2) / 1000
