"""The exactly-once benchmark runs from end to end. The test does not check durations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from aioprod.testing import ThreadedCluster
from benchmarks import exactly_once


def test_both_deliveries_and_each_step_are_measured(
    threaded_broker: ThreadedCluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextmanager
    def kept(servers: str, partitions: int) -> Iterator[str]:
        threaded_broker.create_topic("kept", partitions)
        yield "kept"

    monkeypatch.setattr(exactly_once, "topic", kept)
    given = ["--rows", "30", "--tasks", "3", "--partitions", "2", "--repetitions", "1"]
    exactly_once.main(["--bootstrap", threaded_broker.bootstrap_servers, *given])
    output = capsys.readouterr().out
    assert "30 rows, 3 tasks, 2 partitions" in output
    rows = [line.strip("| ").split(" | ") for line in output.splitlines() if line.startswith("|")]
    assert [row[0] for row in rows[2:4]] == ["at-least-once", "exactly-once"]
    assert {row[0] for row in rows[6:]} == set(exactly_once._STEPS)
    # Three batches, two of them for warm-up, and the first records of both partitions.
    written = [
        record
        for partition in range(2)
        for record in threaded_broker.records("kept", partition, committed_only=True)
    ]
    assert len(written) == 2 + 3 * 2 * 30
