"""The benchmarks of transactions, TLS and a constant rate. The tests do not check durations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import clusters, steady, transactions
from benchmarks.broker import broker_process
from benchmarks.measures import Numbers

ONCE = ["--repetitions", "1"]


@pytest.mark.benchmarks
@pytest.mark.kafka
def test_transactions_of_each_client_are_committed(
    kafka: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    written = tmp_path / "transactions.json"
    sizes = ["--transactions", "3", "--records-each", "1", "7", *ONCE]
    transactions.main(["--bootstrap", kafka, *sizes, "--json", str(written)])
    rounds = json.loads(written.read_text())["rounds"]
    clients = ["aioprod", "confluent-kafka", "java", "aiokafka"]
    few, many = transactions.case_of(1, 1), transactions.case_of(1, 7)
    assert list(rounds[few]) == clients
    assert list(rounds[many]) == [*clients, transactions.PLAIN]
    for client, (numbers,) in rounds[many].items():
        assert (numbers["transactions"], numbers["records"]) == (3, 21), client
    assert "aioprod: transactions/s | at least 5 times confluent-kafka" in capsys.readouterr().out


@pytest.mark.benchmarks
@pytest.mark.kafka
def test_tls_is_compared_with_plaintext(capsys: pytest.CaptureFixture[str]) -> None:
    clusters.main(["--records", "600", "--clusters", clusters.TLS, *ONCE])
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()]
    for client in clusters.CLIENTS:
        case, plain = clusters.case_of(100, clusters.TLS), clusters.case_of(100, clusters.ONE)
        assert [row for row in rows if row[:3] == [case, client, plain]], client


@pytest.mark.slow
def test_each_window_of_a_constant_rate_is_measured(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    written = tmp_path / "steady.json"
    sizes = ["--rate", "200", "--minutes", "0.01", "--window-seconds", "0.2"]
    with broker_process({}) as servers:
        steady.main(["--bootstrap", servers, *sizes, "--json", str(written)])
    rounds = json.loads(written.read_text())["rounds"]
    assert list(rounds) == [steady.FIRST, steady.LAST, steady.GROWTH]
    (numbers,) = rounds[steady.FIRST]["aioprod"]
    assert numbers["p99_ms"] > 0 and numbers["rss_mb"] > 1 and numbers["cpu_percent"] > 0
    assert "| last third, times the first | aioprod: RSS MB | 1.1 |" in capsys.readouterr().out


def test_the_last_third_is_compared_with_the_first() -> None:
    windows: list[Numbers] = [{"p99_ms": value} for value in (1, 3, 2, 9, 9, 9, 6, 8, 4)]
    found = steady.compared(windows)
    assert [each["p99_ms"] for each in found[steady.FIRST]] == [1, 3, 2]
    assert [each["p99_ms"] for each in found[steady.LAST]] == [6, 8, 4]
    assert found[steady.GROWTH] == [{"p99_ms": 3.0}]
