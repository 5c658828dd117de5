"""The question about exactly-once runs from end to end. Nothing here looks at how long anything takes."""

from __future__ import annotations

import pytest

from aioprod.testing import ThreadedCluster
from benchmarks import exactly_once


def test_both_kinds_of_writes_and_each_step_are_measured(threaded_broker: ThreadedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    exactly_once.main(["--bootstrap", threaded_broker.bootstrap_servers, "--rows", "10", "--repetitions", "1"])
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [row[:2] for row in rows[2:4]] == [["10", "at-least-once"], ["10", "exactly-once"]]
    assert {row[0] for row in rows[6:]} == set(exactly_once._STEPS)
    # Three batches, two of them to warm up.
    written = threaded_broker.records(exactly_once.TOPIC, committed_only=True)
    assert len(written) == 1 + 3 * 2 * 10
