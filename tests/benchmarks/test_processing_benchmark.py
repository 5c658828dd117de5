"""The benchmark of processors runs from end to end. The test does not check durations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from aioprod.testing import ThreadedCluster
from benchmarks import processing
from benchmarks.processing_outputs import CLIENTS

pytestmark = pytest.mark.slow

PEERS = [
    "aioprod",
    pytest.param("aioprod,parallel-consumer", marks=pytest.mark.benchmarks),
]


@pytest.mark.parametrize("clients", PEERS)
def test_each_client_processes_all_records(
    clients: str,
    threaded_broker: ThreadedCluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextmanager
    def kept(servers: str, partitions: int) -> Iterator[str]:
        threaded_broker.create_topic("kept", partitions)
        yield "kept"

    monkeypatch.setattr(processing, "topic", kept)
    given = ["--concurrency", "8", "--keys", "10", "--records", "60", "--repetitions", "1"]
    servers = threaded_broker.bootstrap_servers
    processing.main(["--bootstrap", servers, "--clients", clients, *given])
    output = capsys.readouterr().out
    rows = [line.strip("| ").split(" | ") for line in output.splitlines() if line.startswith("|")]
    names = clients.split(",")
    assert [row[1] for row in rows[2:]] == names
    records = [record for each in range(6) for record in threaded_broker.records("kept", each)]
    assert len(records) == 60
    assert len({record.key for record in records}) == 10


def test_handlers_that_were_not_called_once_are_an_error() -> None:
    class Twice:
        def request(self, *_: object) -> list[str]:
            return ["61", "1.0", "1.0"]

    with pytest.raises(RuntimeError, match="61 handlers were called for 60 records"):
        processing.process(Twice(), "", "t", 8, 60, 5)  # type: ignore[arg-type]


def test_outputs_of_each_guarantee(
    threaded_broker: ThreadedCluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = iter(["inputs", "outputs"])

    @contextmanager
    def kept(servers: str, partitions: int) -> Iterator[str]:
        name = next(names)
        threaded_broker.create_topic(name, partitions)
        yield name

    monkeypatch.setattr(processing, "topic", kept)
    servers = threaded_broker.bootstrap_servers
    given = ["--outputs", "--keys", "10", "--records", "60", "--repetitions", "1"]
    processing.main(["--bootstrap", servers, *given])
    output = capsys.readouterr().out
    rows = [line.strip("| ").split(" | ") for line in output.splitlines() if line.startswith("|")]
    assert [tuple(row[:2]) for row in rows[2:]] == [
        (order, client) for order in ("key", "partition") for client in CLIENTS
    ]
    assert len(threaded_broker.records("outputs", committed_only=True)) == 60 * 2 * 2 * 4
