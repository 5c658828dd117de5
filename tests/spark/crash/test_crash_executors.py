"""Executors are killed at random moments while ``foreachBatch`` writes: no row is doubled or
missing, no run hangs, and aioprod prints no traceback.

``python -m pytest tests/spark/crash/test_crash_executors.py -m faults``. AIOPROD_CRASH_KILLS sets
the number of kills (60), AIOPROD_CRASH_SEED the seed; stalled runs leave their stacks in
AIOPROD_CRASH_REPORTS.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from .crash_executors import (
    MASTER,
    START_LIMIT_S,
    TASKS,
    kill_executors,
    report,
    stop,
    until,
    until_committed,
)
from .crash_report import ROWS
from .crash_spec import Event, Point
from .crash_stage import Life
from .crash_tracebacks import tracebacks

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.timeout(3_600)]

KILLS = int(os.environ.get("AIOPROD_CRASH_KILLS", "60"))
SEED = int(os.environ.get("AIOPROD_CRASH_SEED", str(random.randrange(1 << 16))))
SINK = {"delivery": "exactly-once"}


def test_executors_killed_at_random_while_foreach_batch_writes(
    kafka: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = Path(os.environ.get("AIOPROD_CRASH_REPORTS", str(tmp_path)))
    with Life(kafka, SINK, rows_per_batch=ROWS, scenario="foreachBatch") as life:
        tally = kill_executors(life, random.Random(SEED), KILLS, reports)
        ends = life.ends()
        try:
            ends.wait_for(ends.high())
        finally:
            ends.close()
        verdict = life.judge()
        logs = life.logs()
        printed = tracebacks(logs)
    with capsys.disabled():
        print(f"\nseed {SEED}: {tally}; {verdict.rows} of {life.fed} rows")
        for failure in tally.failures:
            print(failure[:500])
        print(json.dumps(Counter(f"{each.kind}: {each.error}" for each in printed), indent=1))
    assert sum(log.name == "stderr" for log in logs) >= KILLS, logs
    own = [each for each in printed if each.ours]
    assert not own, "\n\n".join(each.text for each in own[:5])
    assert verdict.exactly_once, f"seed {SEED}: {verdict}"
    assert not tally.hung, f"seed {SEED}: {tally}; see {tally.hung}"


def test_a_python_worker_that_hangs_is_found_and_ended(kafka: str, tmp_path: Path) -> None:
    """Spark waits for it without a limit, unless it gets one. What the run says of itself names
    the task, and where it waits.
    """
    settings = {
        "spark.python.worker.idleTimeoutSeconds": "20",
        "spark.python.worker.killOnIdleTimeout": "true",
    }
    still = Point("PRODUCE:after", "write", from_batch=1, action="ask")
    with Life(kafka, SINK, rows_per_batch=ROWS, scenario="foreachBatch") as life:
        with life.running(still, master=MASTER, repartition=TASKS, settings=settings) as run:
            life.feed(ROWS)
            until_committed(life, run, START_LIMIT_S)
            life.feed(ROWS)
            assert until(lambda: bool(_fired(life)), START_LIMIT_S)
            began = time.monotonic()
            said = report(life, run, tmp_path / "still")
            until_committed(life, run, START_LIMIT_S)
            assert 15 < time.monotonic() - began < 120  # the point itself lasts for 180 s
            stop(run)
        verdict = life.judge()
    assert verdict.exactly_once, verdict
    stacks = [file.read_text() for file in (said / "stacks").iterdir()]
    assert any("in wait_for_answer" in each and "spark/sink.py" in each for each in stacks), stacks
    state = json.loads(next(said.glob("*.answer")).read_text())
    assert [each["numActiveTasks"] for each in state["stages"].values()][-1:] >= [1], state
    dumps = [log for log in said.glob("*") if log.is_file() and "Full thread dump" in _text(log)]
    assert len(dumps) == 3, dumps  # the driver and both executors


def test_an_executor_that_hangs_is_replaced(kafka: str) -> None:
    """After ``spark.network.timeout``, checked every ``spark.network.timeoutInterval``."""
    settings = {
        "spark.network.timeout": "30s",
        "spark.network.timeoutInterval": "10s",
        "spark.executor.heartbeatInterval": "5s",
    }
    with Life(kafka, SINK, rows_per_batch=ROWS, scenario="foreachBatch") as life:
        with life.running(master=MASTER, repartition=TASKS, settings=settings) as run:
            life.feed(ROWS)
            until_committed(life, run, START_LIMIT_S)
            frozen = run.executors()[0]
            os.kill(frozen, signal.SIGSTOP)
            began = time.monotonic()
            life.feed(ROWS)
            until_committed(life, run, START_LIMIT_S)
            assert time.monotonic() - began > 10
            stop(run)
        verdict = life.judge()
    assert verdict.exactly_once, verdict


def _fired(life: Life) -> list[Event]:
    return [event for event in life.events() if event.point >= 0]


def _text(log: Path) -> str:
    return log.read_text(errors="replace")
