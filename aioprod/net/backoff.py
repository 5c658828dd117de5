"""Exponential backoff with jitter (KIP-580)."""

import random
from typing import NamedTuple

#: Attempts within about 18 s at the default backoff: twice the default session timeout of brokers.
_MOST_SEARCHED_FAILURES = 20


class Backoff(NamedTuple):
    """Pauses that double from ``first_ms`` up to ``longest_ms``, with a random jitter of 20 %, so
    that clients do not retry at the same moment.
    """

    first_ms: int
    longest_ms: int
    rng: random.Random

    @staticmethod
    def searches(failures: int) -> bool:
        """Return whether metadata is still requested as often as allowed after this number of
        consecutive failures to reach a leader, since a new leader may be elected soon. Later, only
        each attempt to connect requests it, so that many clients that can't reach a broker do not
        load the others.
        """
        return failures <= _MOST_SEARCHED_FAILURES

    def seconds(self, failures: int) -> float:
        """Return the pause after this number of consecutive failures, in seconds; 0 for none."""
        if failures <= 0:
            return 0.0
        # 2**30 is above any useful limit; this keeps the power small.
        pause: float = min(self.first_ms * 2 ** min(failures - 1, 30), self.longest_ms)
        return pause * self.rng.uniform(0.8, 1.2) / 1000
