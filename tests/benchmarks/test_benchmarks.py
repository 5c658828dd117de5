"""The benchmarks run from end to end and tell what they promise. Nothing here looks at how long anything takes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks import broker, embedded_broker, many_partitions, many_tasks, new_topics
from benchmarks.clients import PEERS, Open, Settings, aioprod
from benchmarks.harness import Case, Cost, in_turn, measured, table

REPOSITORY = Path(broker.__file__).parents[1]
MANY_TASKS = ["--records", "60", "--few", "2", "--many", "20"]
MANY_PARTITIONS = ["--records", "100", "--partitions", "5", "--topics", "7", "--linger-ms", "5"]


@pytest.mark.parametrize(
    ("benchmark", "sizes", "clients"),
    [
        (many_tasks, [*MANY_TASKS, "--no-peers", "--uvloop"], ["aioprod"]),
        (many_partitions, [*MANY_PARTITIONS, "--no-peers"], ["aioprod"]),
        (new_topics, ["--records", "20"], ["aioprod", *PEERS]),
    ],
    ids=["many_tasks", "many_partitions", "new_topics"],
)
def test_a_benchmark_runs_through_and_prints_rows_for_each_client(
    benchmark: ModuleType, sizes: list[str], clients: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark.main([*sizes, "--repetitions", "1"])
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].startswith("| case | CPU us a record |")
    for client in clients:
        assert [row for row in rows if row.startswith(f"| {client}")], f"no row for {client}"
    assert [row for row in rows if row.endswith((" 2 |", " 1.2 |"))], "no row has a target"


def test_the_embedded_broker_is_measured_in_every_respect(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gc.collect", lambda: 0)  # a test run's heap is large
    embedded_broker.main(["--records", "600", "--repetitions", "1"])
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == list(embedded_broker.rows(600))
    assert [row.split(" | ")[3] for row in rows] == ["20 ms |", " |", " |", "50 ms |", "300,000 records/s |", "300,000 records/s |", " |"]


def test_a_benchmark_is_a_command() -> None:
    command = [sys.executable, "-m", "benchmarks.many_tasks", *MANY_TASKS, "--repetitions", "1", "--no-peers"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert len([row for row in done.stdout.splitlines() if row.startswith("| aioprod")]) == 3


@pytest.mark.parametrize("client", [aioprod, *PEERS.values()], ids=["aioprod", *PEERS])
async def test_every_client_really_delivers(client: Open) -> None:
    with broker.broker_process({"t": 1}) as servers:
        async with client(servers, Settings()) as opened:
            deliveries = [await opened.send("t", b"value", b"key") for _ in range(10)]
            await opened.send_and_wait("t", b"value", None)
            await opened.flush()
            for delivery in deliveries:
                await delivery
        assert await end_offset(servers) == 11


async def end_offset(servers: str) -> int:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
        offsets = await consumer.end_offsets([TopicPartition("t", 0)])
    return int(offsets[TopicPartition("t", 0)])


def test_the_broker_process_ends_with_its_block() -> None:
    with broker.broker_process({"t": 1}) as servers:
        host, _, port = servers.rpartition(":")

    async def connect() -> None:
        await asyncio.open_connection(host, int(port))

    with pytest.raises(OSError):
        asyncio.run(connect())


async def test_cases_take_turns_and_the_first_round_does_not_count() -> None:
    order: list[str] = []

    def case(name: str) -> Case:
        async def once() -> Cost:
            order.append(name)
            return Cost(1, len(order), len(order))

        return Case(once)

    costs = await in_turn({"a": case("a"), "b": case("b")}, 2)
    assert order == ["a", "b"] * 3
    assert {name: [cost.cpu_s for cost in of] for name, of in costs.items()} == {"a": [3, 5], "b": [4, 6]}


async def test_only_the_work_itself_is_measured() -> None:
    async def work() -> None:
        await asyncio.sleep(0.05)

    cost = await measured(10, work)
    assert cost.records == 10
    assert cost.wall_s >= 0.05 > cost.cpu_s


def test_the_table_gives_medians_ranges_and_the_median_of_paired_ratios() -> None:
    async def never() -> Cost:
        raise AssertionError

    cases = {"one": Case(never), "many": Case(never, "one", 1.2)}
    costs = {
        "one": [Cost(1_000_000, cpu, 2 * cpu) for cpu in (1.0, 2.0, 4.0)],
        "many": [Cost(1_000_000, cpu, 2 * cpu) for cpu in (3.0, 2.0, 8.0)],
    }
    assert table(cases, costs).splitlines()[2:] == [
        "| one | 2.00 (1.00-4.00) | 4.00 (2.00-8.00) |  |  |  |  |",
        "| many | 3.00 (2.00-8.00) | 6.00 (4.00-16.00) | one | 2.00 (1.00-3.00) | 2.00 (1.00-3.00) | 1.2 |",
    ]
