"""The demo on a Spark cluster: ``spark-submit``, executors in processes of their own, and the
package shipped to a Python that does not have it.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from aioprod import Producer, cli
from aioprod.demo.checking import check_result
from aioprod.demo.expected import expect
from aioprod.demo.flights import Flights, read_flights
from aioprod.demo.planting import PLANTED, plant
from aioprod.demo.sending import FlightSender, FlightTopics
from aioprod.demo.spark_cluster import bare_python, watched
from aioprod.demo.submitted_job import SubmittedJob, _listen, _result
from aioprod.spark.progress import QueryProgress
from aioprod.testing import ThreadedCluster
from tests.spark.own_home import spark_home_in
from tests.spark.page_progress import rejected

TOPICS = FlightTopics("flights", "flights.cancelled")


async def _fill(servers: str, flights: Flights) -> None:
    async with Producer(servers) as producer:
        await FlightSender(producer, flights, TOPICS).run()
        await plant(producer, TOPICS.flights)


@pytest.fixture
def spark_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = spark_home_in(tmp_path)
    monkeypatch.setenv("SPARK_HOME", str(home))
    return home


@pytest.mark.spark
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("executors", "cores"),
    [
        pytest.param(1, 2, id="one"),
        pytest.param(2, 1, id="two", marks=pytest.mark.interop),  # 12 s more of CPU
    ],
)
def test_executors_without_aioprod_run_the_submitted_pipeline(
    threaded_broker: ThreadedCluster, tmp_path: Path, spark_in: Path, executors: int, cores: int
) -> None:
    """Each is a Java process of its own, whose Python has only what is in the archive."""
    threaded_broker.create_topic("flights", 4)
    flights = read_flights(1_000)
    asyncio.run(_fill(threaded_broker.bootstrap_servers, flights))
    seen: list[QueryProgress] = []
    job = SubmittedJob(
        tmp_path, tmp_path / "spark.log", master=f"local-cluster[{executors},{cores},1024]"
    )
    result = job.run(
        threaded_broker.bootstrap_servers,
        "flights",
        "flights.delays",
        on_started=lambda: None,
        on_progress=seen.append,
    )
    assert check_result(result, expect(flights)) == []
    assert {progress.query for progress in seen if progress.rows} == {
        "flights: delays",
        "flights: dead letters",
    }
    letters = threaded_broker.records("flights.dead-letters", committed_only=True)
    assert sorted((record.key, record.value) for record in letters) == sorted(
        (record.key, record.value) for record in PLANTED
    )
    assert len(list(spark_in.glob("work/app-*/*/packages/aioprod/__init__.py"))) == executors


@pytest.mark.interop
@pytest.mark.timeout(900)
def test_the_demo_on_three_kafka_nodes_and_two_workers(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "aioprod", "demo", "--cluster"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "336,776 flights sent" in done.stdout
    assert "sent = stored = read = counted" in done.stdout


def test_a_cluster_does_not_follow(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        cli.main(["demo", "--cluster", "--follow"])
    assert raised.value.code == 2
    assert "--cluster: not allowed with --follow" in capsys.readouterr().err


def test_the_output_of_a_submitted_pipeline_is_sorted_out() -> None:
    progress = rejected(1, lag=None, lag_by_partition=None)
    seen: list[QueryProgress] = []
    log = io.StringIO()
    lines = [
        "WARN something\n",
        json.dumps(asdict(progress), default=str) + "\n",  # as --progress json prints it
        '{"rows_read": 5}\n',
        "aioprod.demo.pipeline: no topic\n",
    ]
    assert _listen(lines, log, seen.append) == ({"rows_read": 5}, "no topic")
    assert seen == [progress]
    assert log.getvalue() == "WARN something\naioprod.demo.pipeline: no topic\n"


def test_the_numbers_are_read_from_parquet_with_hours_in_utc(tmp_path: Path) -> None:
    hours = pa.array([datetime(2013, 1, 1, 11), datetime(2013, 1, 1, 10)], pa.timestamp("us"))
    measured = {
        "flights": [1, 2],
        "mean_delay": [1.0, 2.0],
        "p90_delay": [1.0, 2.0],
        "late_share": [0.0, 0.5],
    }
    pq.write_table(
        pa.table({"carrier": ["UA", "B6"], "time_hour": hours, **measured}), tmp_path / "delays"
    )
    counts = {
        "rows_read": 3,
        "dead_letters": 0,
        "late": 0,
        "delays_path": str(tmp_path / "delays"),
        "routes_path": str(tmp_path / "none"),
    }
    result = _result(counts)
    found = [(delay.carrier, delay.time_hour, delay.flights) for delay in result.delays]
    assert found == [("B6", "2013-01-01T10:00:00Z", 2), ("UA", "2013-01-01T11:00:00Z", 1)]
    assert result.routes == []


def test_a_bare_python_has_arrow_and_not_aioprod(tmp_path: Path) -> None:
    python = bare_python(tmp_path / "python")
    program = (
        "import importlib.util as u, pyarrow; print([name for name in ('aioprod', 'crc32c', "
        "'pandas', 'numpy') if u.find_spec(name)])"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "['pandas', 'numpy']\n", done.stderr


def test_a_watched_process_ends_with_the_pipe_to_it() -> None:
    process = subprocess.Popen(
        watched(["sleep", "60"]), stdin=subprocess.PIPE, start_new_session=True
    )
    assert process.poll() is None
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(10) == -9
