"""A leak of the size of a limit is found in synthetic series, and noise and gaps are not leaks."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from aioprod.testing import EmbeddedCluster
from tests.anomalies.soak import LIMITS, Judgment, Sample, judge, schedule, slope
from tests.anomalies.soak_process import SoakProcess

HOUR_S = 3600.0
INTERVAL_S = 10.0


def series(hours: float, seed: int = 1, /, **per_hour: float) -> list[Sample]:
    """Return samples of a run: noise, a gap of the rate in each hundredth one, and slopes."""
    random = Random(seed)
    steady = Sample(0.0, 80.0, 24.0, 30.0, 40.0, 1000.0)._asdict()
    noise = {"rss_mib": 1.0, "descriptors": 1.0, "tasks": 2.0, "cpu_us": 0.5, "rate": 5.0}
    found = []
    for number in range(int(hours * HOUR_S / INTERVAL_S)):
        at_s = number * INTERVAL_S
        values = {
            name: steady[name]
            + random.gauss(0, deviation)
            + per_hour.get(name, 0.0) * at_s / HOUR_S
            for name, deviation in noise.items()
        }
        if number % 100 == 50:
            values["rate"] = 0.0
        found.append(Sample(at_s=at_s, **values))
    return found


def judgments(samples: list[Sample]) -> dict[str, Judgment]:
    return {each.name: each.judgment for each in judge(samples)}


@pytest.mark.parametrize("seed", range(5))
def test_noise_and_gaps_are_within_the_limits(seed: int) -> None:
    assert judgments(series(3, seed)) == dict.fromkeys(LIMITS, Judgment.WITHIN)


@pytest.mark.parametrize(
    ("name", "value", "per_hour"),
    [
        ("memory", "rss_mib", 5.0),
        ("descriptors", "descriptors", 1.5),
        ("tasks", "tasks", 2.0),
        ("CPU per record", "cpu_us", 1.2),
        ("rate", "rate", -15.0),
    ],
)
def test_a_slope_beyond_the_limit_is_found(name: str, value: str, per_hour: float) -> None:
    expected = dict.fromkeys(LIMITS, Judgment.WITHIN) | {name: Judgment.EXCEEDED}
    assert judgments(series(3, **{value: per_hour})) == expected


@pytest.mark.parametrize(("value", "per_hour"), [("rss_mib", -20.0), ("rate", 30.0)])
def test_a_slope_in_the_other_direction_is_permitted(value: str, per_hour: float) -> None:
    assert judgments(series(3, **{value: per_hour})) == dict.fromkeys(LIMITS, Judgment.WITHIN)


def test_the_begin_is_not_judged() -> None:
    samples = series(3)
    filling = [each._replace(rss_mib=each.at_s / 10) for each in samples[:60]]
    assert judgments(filling + samples[60:])["memory"] is Judgment.WITHIN


def test_a_short_run_is_undecided() -> None:
    assert judgments(series(0.4, rss_mib=500.0)) == dict.fromkeys(LIMITS, Judgment.UNDECIDED)
    assert judgments(series(0.6, rss_mib=500.0))["memory"] is Judgment.EXCEEDED
    with pytest.raises(ValueError, match="at least 8"):
        judge(series(0.02))


def test_a_slope_without_noise_is_exact() -> None:
    times = [60.0 * number for number in range(600)]
    found = slope(times, [7 + 3 * at / HOUR_S for at in times])
    assert (found.low, found.per_hour, found.high) == pytest.approx((3, 3, 3))


def test_two_runs_of_a_seed_have_the_same_schedule() -> None:
    first = schedule(7, HOUR_S)
    assert first == schedule(7, HOUR_S)
    assert first != schedule(8, HOUR_S)
    assert len(first) > 40 and all(each.pause >= 15 for each in first)
    assert len({each.action for each in first}) > 3


async def test_a_process_reports_samples_and_that_nothing_is_lost() -> None:
    with EmbeddedCluster.in_thread() as cluster:
        cluster.create_topic("t", 3)
        async with SoakProcess.running(cluster.bootstrap_servers, "t", 0.2) as process:
            async with asyncio.timeout(60):
                while len(process.samples) < 5:  # noqa: ASYNC110 - lines of a process
                    await asyncio.sleep(0.05)
            ended = await process.end()
    assert ended["lost"] == ended["duplicates"] == ended["failed"] == 0
    assert ended["read"] == ended["acknowledged"] > 300
    last = process.samples[-1]
    assert last.rss_mib > 10 and last.descriptors > 3 and last.tasks > 3 and last.cpu_us > 0
