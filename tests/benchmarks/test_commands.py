"""The benchmarks of latency, bursts, memory, partitions, idle producers and loop lag.

The tests do not check durations.
"""

from __future__ import annotations

import asyncio
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # from kafka-python
    from benchmarks import (
        broker,
        bursts,
        compat,
        distance,
        idle,
        latency,
        literal_design,
        lone_record,
        loop_lag,
        memory,
        scaling,
        start,
        trickle,
    )
    from benchmarks.ceilings import Ceiling, ceiling_table
    from benchmarks.results import Metric, Results
    from benchmarks.targets import growth_table
    from benchmarks.timing import in_milliseconds, on_schedule, percentile

ONCE = ["--repetitions", "1"]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with broker.broker_process({}) as address:
        yield address


def rows(printed: str) -> list[list[str]]:
    """Return the cells of all rows of all tables."""
    return [line.strip("| ").split(" | ") for line in printed.splitlines() if line.startswith("|")]


def test_literal_design(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(literal_design, "RECORDS", 100)
    monkeypatch.setattr(literal_design, "WAITERS", 10)
    monkeypatch.setattr(literal_design, "REPLIES", {100: 10, 100_000: 5})
    literal_design.main(ONCE)
    printed = capsys.readouterr().out
    assert (
        "pool: the notified waiter is cancelled in the same turn; the next one is woken" in printed
    )
    assert printed.count("streams ") == 2 and "future per record" in printed


@pytest.mark.benchmarks
def test_latency(servers: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    written = tmp_path / "latency.json"
    sizes = ["--records", "20", "--rates", "200", "--seconds", "0.2", "--json", str(written)]
    latency.main(["--bootstrap", servers, "--clients", "aioprod,kafka-python", *sizes, *ONCE])
    cases = [row[:2] for row in rows(capsys.readouterr().out)]
    assert [latency.ONE_AT_A_TIME, latency.RAW] in cases
    assert [latency.ONE_AT_A_TIME, "kafka-python"] in cases
    assert ["200 per second", "aioprod"] in cases
    assert ["200 per second", "kafka-python"] not in cases, "its calls block the event loop"
    assert (
        json.loads(written.read_text())["rounds"]["200 per second"]["aioprod"][0]["late_p99_ms"] > 0
    )


def test_lone_record(capsys: pytest.CaptureFixture[str]) -> None:
    lone_record.main(["--records", "5", "--repetitions", "2"])
    printed = capsys.readouterr().out.splitlines()
    numbers = {
        line[:16].strip(): [float(each) for each in line[16:].split()] for line in printed[2:]
    }
    assert numbers.keys() == {"record", "raw round trip", "client"}
    assert numbers["record"][0] > numbers["client"][0] > 0


@pytest.mark.benchmarks
def test_bursts(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    bursts.main(
        [
            "--bootstrap",
            servers,
            "--clients",
            "aioprod,aiokafka",
            "--records",
            "40",
            "--tasks",
            "10",
            "40",
            *ONCE,
        ]
    )
    found = rows(capsys.readouterr().out)
    assert [row[:3] for row in found[-3:]] == [
        ["40 tasks", client, "10 tasks"] for client in (bursts.BARE, "aioprod", "aiokafka")
    ]


@pytest.mark.benchmarks
def test_compat(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    compat.main(["--bootstrap", servers, "--records", "500", *ONCE])
    cases = [row[:2] for row in rows(capsys.readouterr().out)]
    for case in (*compat.SENDING, compat.AWAITED, *compat.CALLS):
        for client in (compat.OURS, compat.THEIRS):
            assert [case, client] in cases


@pytest.mark.benchmarks
async def test_memory_until_the_client_waits() -> None:
    numbers = await memory.memory("aioprod", 1_000, keep=True)
    assert numbers["waits"] == 1
    assert numbers["grown_ratio"] > 0
    assert numbers["records"] * 1_000 / (32 << 20) == pytest.approx(numbers["accepted_ratio"])


@pytest.mark.benchmarks
def test_scaling(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--records", "100", "--partitions", "3", "--topics", "4", "--linger-ms", "5"]
    scaling.main(["--bootstrap", servers, "--clients", "aioprod", *sizes, *ONCE])
    ratios = {row[0]: row[2] for row in rows(capsys.readouterr().out) if len(row) == 5}
    assert ratios.pop("3 partitions") == scaling.ONE_PARTITION
    assert ratios.pop("3 partitions, keys") == scaling.ONE_PARTITION_KEYS
    assert ratios.pop("4 topics known to the producer") == scaling.ONE_TOPIC


def test_start(
    servers: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "COMMANDS", ("--help", "topics list -b SERVERS"))
    start.main(["--bootstrap", servers, "--clients", "aioprod,asyncio alone", *ONCE])
    found = rows(capsys.readouterr().out)
    assert {tuple(row[:2]) for row in found} >= {
        (start.IMPORT, "aioprod"),
        (start.IMPORT, "asyncio alone"),
        (start.FIRST_RECORD, "aioprod"),
        ("aioprod --help", "aioprod"),
    }


@pytest.mark.benchmarks
def test_idle(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    idle.main(["--bootstrap", servers, "--clients", "aioprod", "--seconds", "0.1", *ONCE])
    assert rows(capsys.readouterr().out)[2][:2] == [idle.CASE, "aioprod"]


@pytest.mark.benchmarks
def test_trickle(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--bootstrap", servers, "--records", "20", "--partitions", "2", *ONCE]
    trickle.main(arguments)
    found = [row[1] for row in rows(capsys.readouterr().out) if row[0] == trickle.case_of(2)]
    assert found[:3] == [trickle.AIOPROD, trickle.BASELINE, trickle.AIOKAFKA]


@pytest.mark.benchmarks
def test_loop_lag(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    loop_lag.main(
        ["--bootstrap", servers, "--clients", "aioprod", "--rate", "10", "--seconds", "0.2", *ONCE]
    )
    assert rows(capsys.readouterr().out)[2][:2] == ["10 batches per second", "aioprod"]


async def test_late_ticks_are_not_skipped() -> None:
    late: list[float] = []

    def act(due: float) -> None:
        late.append(time.perf_counter() - due)
        if len(late) == 1:
            time.sleep(0.05)

    await on_schedule(0.01, 8, act)
    assert len(late) == 8
    assert late[1] >= 0.04 > 0.03 <= late[2]


async def test_a_schedule_lets_other_tasks_run() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await on_schedule(0.01, 3, lambda _: None)
    counting.cancel()
    assert turns > 3


@pytest.mark.parametrize(("percent", "value"), [(50, 50), (99, 99), (99.9, 100), (0, 1)])
def test_a_percentile_is_one_of_the_values(percent: float, value: int) -> None:
    assert percentile(range(1, 101), percent) == value


def test_durations_in_milliseconds() -> None:
    assert in_milliseconds([0.003, 0.001, 0.002]) == pytest.approx(
        {"p50_ms": 2, "p99_ms": 3, "p99.9_ms": 3, "max_ms": 3}
    )


def test_growth_and_ceilings_use_medians() -> None:
    cost = Metric("cost", lambda numbers: float(numbers["cost"]))
    results = Results("?", [cost])
    for small, large in ((1, 3), (2, 2), (4, 8)):
        results.add("small", "aioprod", {"cost": small})
        results.add("large", "aioprod", {"cost": large})
    assert rows(growth_table(results, cost, {"large": "small"}, 1.5))[2] == [
        "large",
        "aioprod",
        "small",
        "2.00 (1.00-3.00)",
        "1.5",
    ]
    found = rows(
        ceiling_table(
            results,
            [Ceiling("small", "aioprod", cost, 2.0), Ceiling("large", "aioprod", cost, 2.9)],
        )
    )
    assert [row[-1] for row in found[2:]] == ["met", "missed"]


@pytest.mark.benchmarks
def test_distance(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--round-trips", "20", "--partitions", "1", "--records", "2000", *ONCE]
    distance.main([*chosen, "--clients", "aioprod,confluent-kafka,aiokafka", "--tuned"])
    found = rows(capsys.readouterr().out)
    cases = [row[:2] for row in found]
    for case in (distance.case_of(20, 1), distance.case_of(20, 1, tuned=True)):
        assert [case, "aioprod"] in cases and [case, "aiokafka"] in cases
    (target,) = [row for row in found if row[0] == case and row[1] == "aioprod: MB/s"]
    assert target[2].startswith("at least 0.8 times ") and "aioprod" not in target[2]


@pytest.mark.benchmarks
@pytest.mark.interop
def test_distance_with_franz_go(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--round-trips", "20", "--partitions", "2", "--records", "2000", *ONCE]
    distance.main([*chosen, "--clients", "aioprod,franz-go"])
    case = distance.case_of(20, 2)
    cases = [row[:2] for row in rows(capsys.readouterr().out)]
    assert cases.count([case, "franz-go"]) == 2, "sending and reading"
