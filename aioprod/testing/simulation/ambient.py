"""Time and chance as programs take them from the standard library: virtual, and decided by the
seed, while a simulation runs.

aioprod itself takes both from outside. This is for applications, and for other libraries, as they
are.
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


class Ambient:
    """Has the modules ``time``, ``random``, ``uuid`` and ``secrets`` give virtual time and seeded
    chance for the length of each ``with`` block.

    Left alone: ``time.perf_counter`` and ``time.process_time``, which measure; ``datetime.now``;
        what compiled code asks by itself; and functions
    that were imported by name before, as by ``from time import time``. Client ids that the producer
    makes up are counted from 1.
    """

    def __init__(
        self, now: Callable[[], float], wall_clock: Callable[[], float], source: Random
    ) -> None:
        self._values: list[tuple[Any, str, Any]] = [
            (time, "time", wall_clock),
            (time, "time_ns", lambda: int(wall_clock() * 1e9)),
            (time, "monotonic", now),
            (time, "monotonic_ns", lambda: int(now() * 1e9)),
            (random, "Random", _seeded_class(source)),
            (random, "_urandom", source.randbytes),
            (os, "urandom", source.randbytes),
            (client_ids, "_counters", client_ids.new_counters()),
        ]
        self._state = Random(source.getrandbits(64)).getstate()
        self._outside: list[Any] = []
        self._state_outside = self._state

    def __enter__(self) -> None:
        self._outside = [getattr(module, name) for module, name, _ in self._values]
        for module, name, value in self._values:
            setattr(module, name, value)
        self._state_outside = random.getstate()
        random.setstate(self._state)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._state = random.getstate()
        random.setstate(self._state_outside)
        for (module, name, _), value in zip(self._values, self._outside, strict=True):
            setattr(module, name, value)


def _seeded_class(source: Random) -> type[Random]:
    class SeededRandom(Random):
        """``random.Random``; where no seed is given, the simulation's decides."""

        def __init__(self, x: Any = None) -> None:
            super().__init__(source.getrandbits(64) if x is None else x)

    return SeededRandom
