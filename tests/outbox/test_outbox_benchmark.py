"""The benchmark of the outbox runs from end to end. The test does not check durations."""

from __future__ import annotations

import pytest

from aioprod.testing import ThreadedCluster
from benchmarks import outbox
from tests.outbox.postgres_server import PostgresServer

pytestmark = [pytest.mark.benchmarks]


def test_all_parts_are_measured(
    postgres_server: PostgresServer,
    threaded_broker: ThreadedCluster,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sizes = ["--rows", "3000", "--repetitions", "1", "--seconds", "2", "--rounds", "1"]
    sizes += ["--floor-rows", "10"]
    servers = ["--bootstrap", threaded_broker.bootstrap_servers]
    outbox.main([postgres_server.url, *servers, *sizes, "--per-second", "50"])
    output = capsys.readouterr().out
    parts = ("shards=1", "shards=4", "without a database", "floor", "acknowledged", "reader")
    for part in (*parts, "1000 rows in a call"):
        assert part in output
