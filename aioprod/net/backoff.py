"""Exponential backoff with jitter (KIP-580)."""

from __future__ import annotations

import random

#: Attempts within about 18 s at the default backoff: twice the default session timeout of brokers.
_MOST_SEARCHED_FAILURES = 20


class Backoff:
    """Pauses that double from ``first_ms`` up to ``longest_ms``, with a random jitter of 20 %, so
    that clients do not retry at the same moment.
    """

    __slots__ = ("_first_ms", "_longest_ms", "_rng")

    def __init__(self, first_ms: int, longest_ms: int, rng: random.Random) -> None:
        self._first_ms = first_ms
        self._longest_ms = longest_ms
        self._rng = rng

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
        pause: float = min(self._first_ms * 2 ** min(failures - 1, 30), self._longest_ms)
        return pause * self._rng.uniform(0.8, 1.2) / 1000
