"""Time and random numbers of the standard library, simulated while a simulation runs.

aioprod's own clients accept a clock and a random number generator. This module is for applications
and other libraries, which work unchanged.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Any

from aioprod.cluster import client_ids


class SimulatedStandardLibrary:
    """Patches ``time``, ``random``, ``uuid`` and ``secrets`` within each ``with`` block: virtual
    time, and random numbers that depend on the seed. The numbers in default client ids start at 1.

    Not patched: ``time.perf_counter`` and ``time.process_time``, which measure; ``datetime.now``;
    compiled code; and functions that were imported by name earlier, as in ``from time import
    time``.
    """

    def __init__(
        self, now: Callable[[], float], wall_clock: Callable[[], float], source: Random
    ) -> None:
        self._patches: list[tuple[Any, str, Any]] = [
            (time, "time", wall_clock),
            (time, "time_ns", lambda: int(wall_clock() * 1e9)),
            (time, "monotonic", now),
            (time, "monotonic_ns", lambda: int(now() * 1e9)),
            (random, "Random", _seeded_class(source)),
            (random, "_urandom", source.randbytes),
            (os, "urandom", source.randbytes),
            (client_ids, "_counters", client_ids.new_counters()),
        ]
        self._originals: list[Any] = []
        self._random_state = Random(source.getrandbits(64)).getstate()
        self._original_random_state = self._random_state

    def __enter__(self) -> None:
        self._originals = [getattr(module, name) for module, name, _ in self._patches]
        for module, name, value in self._patches:
            setattr(module, name, value)
        self._original_random_state = random.getstate()
        random.setstate(self._random_state)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._random_state = random.getstate()
        random.setstate(self._original_random_state)
        for (module, name, _), original in zip(self._patches, self._originals, strict=True):
            setattr(module, name, original)


def _seeded_class(source: Random) -> type[Random]:
    class SeededRandom(Random):
        """``random.Random``, seeded by the simulation if no seed is given."""

        def __init__(self, x: Any = None) -> None:
            super().__init__(source.getrandbits(64) if x is None else x)

    return SeededRandom
