"""Judge a long run by its samples: how memory, descriptors, tasks, CPU time and rate change."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from operator import attrgetter
from random import Random
from typing import NamedTuple

from tests.anomalies.faults import FAULTS
from tests.anomalies.schedule import Step, steps

_HOUR_S = 3600.0
_MOST_POINTS = 240
"""Samples are reduced to as many medians, as the number of pairs grows with the square."""
_LEAST_POINTS = 8
_SIGMAS = 2.576
"""A confidence of 99 %."""
_WARM_UP_S = 600.0
"""The begin of a run is not judged: caches and the allocator fill. Nor is half of a shorter run."""
_LEAST_S = 1800.0
"""Slopes of a shorter run are shown, but not judged: memory grows in steps."""
_FAULTS = ("kill", "freeze", "nap", "roll", "move")
_PAUSE_S = (15.0, 45.0)


class Sample(NamedTuple):
    """The state of a client's process.

    Attributes:
        at_s: seconds since the begin of the run.
        rss_mib: its memory.
        descriptors: the number of its open files and sockets.
        tasks: the number of its tasks.
        cpu_us: CPU time in microseconds for each acknowledged record since the last sample.
        rate: acknowledged records per second since the last sample.
    """

    at_s: float
    rss_mib: float
    descriptors: float
    tasks: float
    cpu_us: float
    rate: float


class Judgment(StrEnum):
    """A slope, compared with its limit."""

    WITHIN = "within its limit"
    UNDECIDED = "undecided: run longer"
    EXCEEDED = "exceeds its limit"


@dataclass(frozen=True)
class Slope:
    """The change of a value per hour.

    Attributes:
        low, high: the bounds of 99 % confidence.
    """

    per_hour: float
    low: float
    high: float

    def judged(self, limit: float, *, falls: bool = False) -> Judgment:
        """Compare the slope with the largest permitted increase, or decrease if ``falls``."""
        low, high = (-self.high, -self.low) if falls else (self.low, self.high)
        if low > limit:
            return Judgment.EXCEEDED
        return Judgment.WITHIN if high <= limit else Judgment.UNDECIDED


@dataclass(frozen=True)
class Limit:
    """The permitted change of a value per hour.

    Attributes:
        relative: whether ``most`` is a share of the value's median.
        falls: whether the limit is that of a decrease.
    """

    value: Callable[[Sample], float]
    most: float
    unit: str
    relative: bool = False
    falls: bool = False


LIMITS: Mapping[str, Limit] = {
    "memory": Limit(attrgetter("rss_mib"), 4.0, "MiB"),
    "descriptors": Limit(attrgetter("descriptors"), 1.0, "open"),
    "tasks": Limit(attrgetter("tasks"), 1.0, "tasks"),
    "CPU per record": Limit(attrgetter("cpu_us"), 0.02, "us", relative=True),
    "rate": Limit(attrgetter("rate"), 0.01, "records/s", relative=True, falls=True),
}


class Finding(NamedTuple):
    """The judgment of a value.

    Attributes:
        limit: in the unit of the value.
    """

    name: str
    slope: Slope
    limit: float
    unit: str
    judgment: Judgment

    def __str__(self) -> str:
        slope = self.slope
        return (
            f"{self.name}: {slope.per_hour:+.2f} {self.unit} per hour "
            f"({slope.low:+.2f} to {slope.high:+.2f}), limit {self.limit:.2f}: {self.judgment}"
        )


def slope(times_s: Sequence[float], values: Sequence[float]) -> Slope:
    """Return the median of the slopes of all pairs (Theil and Sen), which a few gaps don't change,
    with the bounds of Sen's test. Times must be different.

    Raises:
        ValueError: if there are fewer than 8 values.
    """
    points = _reduced(times_s, values)
    if len(points) < _LEAST_POINTS:
        raise ValueError(f"{len(points)} samples: a slope needs at least {_LEAST_POINTS}")
    slopes = sorted(
        (later - value) / (until - at) * _HOUR_S
        for (at, value), (until, later) in combinations(points, 2)
    )
    count = len(points)
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    apart = round(_SIGMAS * deviation / 2)
    middle = len(slopes) // 2
    return Slope(
        statistics.median(slopes),
        slopes[max(0, middle - apart)],
        slopes[min(len(slopes) - 1, middle + apart)],
    )


def _reduced(times_s: Sequence[float], values: Sequence[float]) -> list[tuple[float, float]]:
    size = max(1, math.ceil(len(values) / _MOST_POINTS))
    return [
        (
            statistics.fmean(times_s[first : first + size]),
            statistics.median(values[first : first + size]),
        )
        for first in range(0, len(values), size)
    ]


def judge(samples: Sequence[Sample]) -> list[Finding]:
    """Judge a run without its begin. A run of less than half an hour is undecided.

    Raises:
        ValueError: if there are too few samples.
    """
    seconds = samples[-1].at_s if samples else 0.0
    warm_up_s = min(_WARM_UP_S, seconds / 2)
    judged = [each for each in samples if each.at_s >= warm_up_s]
    times = [each.at_s for each in judged]
    found = []
    for name, limit in LIMITS.items():
        values = [limit.value(each) for each in judged]
        changed = slope(times, values)
        most = limit.most * (abs(statistics.median(values)) if limit.relative else 1.0)
        judgment = changed.judged(most, falls=limit.falls)
        if seconds < _LEAST_S:
            judgment = Judgment.UNDECIDED
        found.append(Finding(name, changed, most, limit.unit, judgment))
    return found


def schedule(seed: int, seconds: float) -> list[Step]:
    """Return the faults of a run, with pauses in which the cluster works."""

    def next_step(random: Random, number: int) -> Step:
        make = FAULTS[random.choice(_FAULTS)].next_step
        assert make is not None
        return make(random, number)._replace(pause=random.uniform(*_PAUSE_S))

    return steps(Random(f"{seed}/soak"), seconds, next_step)
