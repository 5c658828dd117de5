"""The benchmarks run from end to end. The tests do not check durations."""

from __future__ import annotations

import asyncio
import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks import (
    broker,
    check,
    consumer,
    embedded_broker,
    growth,
    many_tasks,
    new_topics,
    producer,
    readers,
    scaling,
)
from benchmarks.latency import METRICS, ONE_AT_A_TIME, ONE_AT_A_TIME_TARGETS, RAW
from benchmarks.real_broker import bootstrap
from benchmarks.results import Results

pytestmark = pytest.mark.slow

REPOSITORY = Path(broker.__file__).parents[1]
PRODUCER = ["--repetitions", "1", "--seconds", "0.02"]


@pytest.mark.benchmarks
@pytest.mark.parametrize(
    ("benchmark", "sizes"),
    [
        (many_tasks, ["--records", "60", "--other-records", "2", "--few", "2", "--many", "20"]),
        (new_topics, ["--topics", "20"]),
    ],
    ids=["many_tasks", "new_topics"],
)
def test_benchmarks_of_the_embedded_broker_measure_each_client(
    benchmark: ModuleType, sizes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark.main([*sizes, "--repetitions", "1"])
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].startswith("| case | client | CPU us per record |")
    for client in benchmark.CLIENTS:
        assert [row for row in rows if f"| {client} |" in row and row.endswith("| 2 |")], (
            f"no row with a target for {client}"
        )


def test_all_rows_of_the_embedded_broker_are_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gc.collect", lambda: 0)  # slow with a test run's heap
    embedded_broker.main(["--records", "600", "--repetitions", "1"])
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == list(
        embedded_broker.rows(600)
    )
    assert [row.split(" | ")[3] for row in rows] == [
        "20 ms |",
        " |",
        " |",
        "50 ms |",
        "300,000 records/s |",
        "300,000 records/s |",
        " |",
    ]


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(producer, "FIRST_RECORDS", 100)
    with broker.broker_process({}) as address:
        yield address


def test_producer_measures_supported_clients_and_writes_files(
    servers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers, picture = tmp_path / "numbers.json", tmp_path / "picture.png"
    clients = ["aioprod", "confluent-kafka", "confluent-kafka AIOProducer", "line rate"]
    points = ["--value-size", "10", "--headers", "1", "--uvloop", "no,yes"]
    files = ["--json", str(numbers), "--png", str(picture)]
    producer.main(
        [*PRODUCER, "--bootstrap", servers, "--clients", ",".join(clients), *points, *files]
    )
    rounds = json.loads(numbers.read_text())["rounds"]
    assert {case: list(found) for case, found in rounds.items()} == {
        "10 B, headers: 1": ["aioprod", "confluent-kafka", "line rate"],
        "10 B, headers: 1, uvloop": ["aioprod", "confluent-kafka"],
    }
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "| 10 B, headers: 1 | line rate |" in capsys.readouterr().out


@pytest.mark.benchmarks
def test_reading_and_idle_polls_are_measured(
    servers: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "POINTS", consumer.POINTS[1:3])
    clients = ["aioprod async for", "aioprod getmany", "confluent-kafka consume"]
    arguments = [
        "--records",
        "1200",
        "--polls",
        "50",
        "--repetitions",
        "1",
        "--clients",
        ",".join(clients),
    ]
    consumer.main(["--bootstrap", servers, *arguments])
    rows = [row.strip("| ").split(" | ") for row in capsys.readouterr().out.splitlines()]
    cases = [(point.name, reader) for point in consumer.POINTS for reader in clients]
    cases += [(consumer.IDLE, reader) for reader in clients[1:]]
    assert [
        tuple(row[:2])
        for row in rows
        if len(row) > 5 and row[0] not in ("case", "---|---|---|---|---|---|")
    ] == cases
    targets = [
        row[0]
        for row in rows
        if len(row) == 5 and row[1].startswith("aioprod getmany: CPU us per record")
    ]
    assert targets == [point.name for point in consumer.POINTS]
    grown = [row for row in rows if len(row) == 5 and row[0] == consumer.IDLE]
    assert [row[1] for row in grown] == [
        f"aioprod getmany: {metric.title}" for metric in consumer.GROWN
    ]


OF_PROGRAMS = {"franz-go": pytest.mark.interop, "java": pytest.mark.kafka}
READERS = [pytest.param(name, marks=OF_PROGRAMS.get(name, ())) for name in readers.READERS]


@pytest.mark.benchmarks
@pytest.mark.parametrize("reader", READERS)
async def test_each_reader_reads_all_records_and_nothing_from_an_empty_topic(
    reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "WARM_UP_S", 0.0)
    with broker.broker_process({"empty": 1}) as address, bootstrap(address):
        async with consumer.filled_topic(
            address, consumer.Point(sizes_vary=True, headers=2, compression_type="lz4"), 2_500
        ) as load:
            async with readers.opened(reader, address) as reading:
                reading.assign(load.topic, 1)
                assert await reading.read(2_500) == sum(map(len, load.values()))
                measures_itself = reader in (*OF_PROGRAMS, consumer.LINE_RATE)
                assert (reading.cost is not None) == measures_itself
                if reading.cost is not None:
                    assert reading.cost.records >= 2_500 and reading.cost.wall_s > 0
                    return
        async with readers.opened(reader, address) as polling:
            polling.assign("empty", 1)
            assert await polling.poll(10) == 0


def test_a_benchmark_is_a_command_and_shows_targets(servers: str) -> None:
    arguments = [*PRODUCER, "--bootstrap", servers, "--clients", "aioprod,confluent-kafka"]
    command = [sys.executable, "-m", "benchmarks.producer", *arguments, "--value-size", "100"]
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()
    assert (
        len(
            [
                row
                for row in rows
                if row.startswith("| 100 B | aioprod: ") and " times confluent-kafka | " in row
            ]
        )
        == 2
    )


@pytest.mark.parametrize(
    ("own_cost", "own_delay", "status"),
    [(0.43, 1.4, 0), (0.5, 1.0, 1), (0.35, 1.6, 1)],
    ids=["within tolerance", "too expensive", "too slow"],
)
def test_check_fails_if_a_target_is_missed_by_more_than_15_percent(
    own_cost: float, own_delay: float, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, one = (
        Results("many", (producer.RATE, producer.CPU)),
        Results("one", METRICS, baseline=RAW),
    )
    for client, cost in (("aioprod", own_cost), ("confluent-kafka", 1.0), ("aiokafka", 9.0)):
        many.add(producer.HEADLINE.name, client, {"records": 1000, "cpu_s": cost, "wall_s": cost})
    for client, delay in (("aioprod", own_delay), (RAW, 1.0)):
        one.add(ONE_AT_A_TIME, client, {"p50_ms": delay, "p99_ms": delay, "p99.9_ms": delay})

    async def measured(_: str, **__: object) -> list[check.Checked]:
        return [(many, producer.TARGETS), (one, ONE_AT_A_TIME_TARGETS)]

    monkeypatch.setattr(check, "measure", measured)
    if status == 0:
        check.main(["--bootstrap", "127.0.0.1:1"])
    else:
        with pytest.raises(SystemExit, match="more than 15%"):
            check.main(["--bootstrap", "127.0.0.1:1"])


@pytest.mark.benchmarks
def test_check_measures_all_targets(
    servers: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "RECORDS_ONE_AT_A_TIME", 20)
    monkeypatch.setattr(check, "RECORDS_READ", 1_000)
    monkeypatch.setattr(check, "RECORDS_WITH_KEYS", 1_000)
    monkeypatch.setattr(check, "LINGER_MS", 5)
    monkeypatch.setattr(check, "TOLERANCE", float("inf"))
    check.main([*PRODUCER, "--bootstrap", servers])
    targets = [
        row.split(" | ")[:2]
        for row in capsys.readouterr().out.splitlines()
        if " | at most " in row or " | at least " in row
    ]
    assert targets == [
        ["| 100 B", "aioprod: CPU s per million records"],
        ["| 100 B", "aioprod: records/s"],
        ["| 100 B", "aioprod send_many: records/s"],
        ["| 100 B", "aioprod send_arrow: records/s"],
        ["| 100 B, keys: 10,000, partitions: 6", "aioprod: CPU s per million records"],
        ["| 10 B", "aioprod: CPU s per million records"],
        ["| 1,000 B", "aioprod: CPU s per million records"],
        ["| one at a time", "aioprod: p50 ms"],
        ["| one at a time", "aioprod: p99 ms"],
        ["| 100 B", "aioprod async for: CPU us per record"],
        ["| 1,000 B", "aioprod async for: CPU us per record"],
        ["| 100 B", "aioprod getmany: CPU us per record"],
        ["| 1,000 B", "aioprod getmany: CPU us per record"],
        [f"| {check.SLOW_KEYS}", "1,000 partitions: CPU us per record"],
    ]


@pytest.mark.benchmarks
def test_growth_is_measured_and_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "growth.png"
    axes = [growth.BROKERS, "producers", growth.PAYLOAD]
    growth.main(
        ["--records", "10000", "--repetitions", "1", "--png", str(picture), "--axes", *axes]
    )
    printed = capsys.readouterr().out
    cases = [case for axis in axes for case in growth.AXES[axis]]
    rows = [row.split(" | ")[0] for row in printed.splitlines() if row.endswith(" | 1.2 |")]
    assert rows == [f"| {case.name}" for case in cases if case.at != growth.AXES[case.axis][0].at]
    assert f"| {cases[-1].name} | aioprod-pure |" in printed
    assert "- aioprod-pure: aioprod without the accelerator: AIOPROD_PURE is set" in printed
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_growth_of_a_payload_is_relative_to_a_records_and_its_bytes_costs() -> None:
    results = Results("growth", (scaling.CPU,))
    for axis, costs in {growth.PAYLOAD: (1, 2, 6, 10, 50, 600), "tasks": (2, 3, 4, 4, 8)}.items():
        for case, cost in zip(growth.AXES[axis], costs, strict=True):
            results.add(case.name, "aioprod", {"records": 1, "cpu_s": cost})
    assert growth.growth(results, "tasks", "aioprod") == {
        1: [1.0],
        10: [1.5],
        100: [2.0],
        1_000: [2.0],
        10_000: [4.0],
    }
    grown = growth.growth(results, growth.PAYLOAD, "aioprod")
    assert [round(ratio, 2) for (ratio,) in grown.values()] == [1.0, 1.85, 3.17, 1.0, 0.55, 0.67]


def test_results_show_the_build_and_the_accelerator(
    servers: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    numbers = tmp_path / "numbers.json"
    producer.main(
        [
            *PRODUCER,
            "--bootstrap",
            servers,
            "--clients",
            "aioprod-pure,confluent-kafka",
            "--value-size",
            "100",
            "--python",
            f"{sys.executable},{sys.executable}",
            "--json",
            str(numbers),
        ]
    )
    printed = capsys.readouterr().out.splitlines()
    build = f"- CPython {platform.python_version()} with"
    assert len([line for line in printed if line.startswith(build)]) == 2
    accelerator = "aioprod without the accelerator: AIOPROD_PURE is set"
    assert printed.count(f"- aioprod-pure: {accelerator}") == 2
    for name in ("numbers.json", "numbers-1.json"):
        content = json.loads((tmp_path / name).read_text())
        assert content["clients"]["aioprod-pure"] == accelerator
        assert "PGO" in content["interpreter"] and "LTO" in content["interpreter"]


def test_a_missing_client_is_named(
    servers: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    clients = ["--clients", "aioprod,franz-go", "--value-size", "100"]
    producer.main([*PRODUCER, "--bootstrap", servers, *clients])
    printed = capsys.readouterr()
    expected = "LEFT OUT: franz-go: Go 1.26 is not installed: no go on PATH"
    assert expected in printed.err and f"- {expected}" in printed.out
    assert "| 100 B | aioprod |" in printed.out


def test_the_broker_process_ends_with_its_block() -> None:
    with broker.broker_process({"t": 1}) as servers:
        host, _, port = servers.rpartition(":")

    async def connect() -> None:
        await asyncio.open_connection(host, int(port))

    with pytest.raises(ConnectionRefusedError):
        asyncio.run(connect())
