"""Measurements run in rounds, and results are shown as tables and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.measures import Numbers
from benchmarks.results import Metric, Results, side_by_side
from benchmarks.rounds import Measurement, run_rounds
from benchmarks.targets import Target, target_table

COST = Metric("us", lambda numbers: float(numbers["cost"]), 1)
RATE = Metric("records/s", lambda numbers: float(numbers["rate"]), 0, compared=False)


def results() -> Results:
    found = Results("How much?", (COST, RATE), baseline="other")
    for own, other in ((1.0, 2.0), (2.0, 2.0), (4.0, 5.0)):
        found.add("small", "own", {"cost": own, "rate": 1000 * own})
        found.add("small", "other", {"cost": other, "rate": 1000 * other})
    found.add("large", "own", {"cost": 3.0, "rate": 3})
    return found


async def test_the_first_round_is_for_warm_up() -> None:
    order: list[str] = []

    def measurement(client: str) -> Measurement:
        async def run() -> Numbers:
            order.append(client)
            return {"cost": len(order), "rate": 1}

        return Measurement("case", client, run)

    found = Results("How much?", (COST,))
    await run_rounds(found, [measurement("a"), measurement("b")], 2)
    assert order == ["a", "b"] * 3
    assert found.values(COST, "case", "a") == [3, 5]
    assert found.values(COST, "case", "b") == [4, 6]


def test_the_table_has_medians_ranges_and_ratios() -> None:
    assert results().table().splitlines() == [
        "| case | client | us | times other | records/s |",
        "|---|---|---|---|---|",
        "| small | own | 2.0 (1.0-4.0) | 0.80 (0.50-1.00) | 2,000 (1,000-4,000) |",
        "| small | other | 2.0 (2.0-5.0) | 1.00 (1.00-1.00) | 2,000 (2,000-5,000) |",
        "| large | own | 3.0 (3.0-3.0) |  | 3 (3-3) |",
    ]


def test_runs_are_shown_side_by_side() -> None:
    newer = results()
    newer.interpreter = "CPython 9.9 without PGO, without LTO"
    newer.add("small", "third", {"cost": 1.0, "rate": 1})
    for _ in range(2):
        newer.add("small", "third", {"cost": 3.0, "rate": 1})
    older = results()
    older.interpreter = "CPython 3.11.2 with PGO, with LTO"
    older.metrics = newer.metrics = (COST, Metric("b", COST.value))
    assert side_by_side([older, newer]).splitlines() == [
        "| us, b: times other | own, CPython 3.11.2 | own, CPython 9.9 | third, CPython 9.9 |",
        "|---|---|---|---|",
        "| small | 0.80, 0.80 | 0.80, 0.80 | 0.60, 0.60 |",
        "| large |  |  |  |",
    ]


def test_the_json_file_has_all_numbers(tmp_path: Path) -> None:
    results().write_json(tmp_path / "results.json")
    content = json.loads((tmp_path / "results.json").read_text())
    assert content["title"] == "How much?"
    assert content["rounds"]["small"]["other"][2] == {"cost": 5.0, "rate": 5000.0}
    assert content["machine"]["packages"]["confluent-kafka"]


def test_a_target_is_met_missed_or_not_measured() -> None:
    targets = [
        Target("small", "own", COST, "other", "at most", 0.5),
        Target("small", "own", COST, "other", "at most", 0.8),
        Target("small", "own", COST, "other", "at least", 1.6),
        Target("small", "unknown", COST, "other", "at least", 1.6),
        Target("large", "own", COST, "other", "at least", 1.6),
    ]
    assert [target.shortfall(results()) for target in targets] == pytest.approx([0.6, 0, 0.5, 0, 0])
    assert target_table(results(), targets).splitlines()[2:] == [
        "| small | own: us | at most 0.5 times other | 0.80 times | missed by 60% |",
        "| small | own: us | at most 0.8 times other | 0.80 times | met |",
        "| small | own: us | at least 1.6 times other | 0.80 times | missed by 50% |",
    ]
