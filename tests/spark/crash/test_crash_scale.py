"""Millions of rows on a cluster: three brokers, a master of Spark and two workers. A worker and a
broker are killed in between, and each row is there once.

``python -m pytest tests/spark/crash/test_crash_scale.py -m faults``. AIOPROD_SCALE_ROWS sets the
number of rows (10,000,000 of 100 bytes; they take 6 GB on the brokers' disks).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from aioprod.demo.spark_cluster import SparkCluster
from aioprod.testing.real_cluster import RealCluster

from .crash_scale import count_rows, cpu_times, fill, worker_jvm
from .crash_scale_job import ScaleSpec
from .crash_stage import committed_rows

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.timeout(3_600)]

ROWS = int(os.environ.get("AIOPROD_SCALE_ROWS", "10000000"))
PARTITIONS = 6
BATCHES = 20
KILL_WORKER_AT, KILL_BROKER_AT = 0.3, 0.6
RESTARTS = 3
_ROOT = Path(__file__).resolve().parents[3]
_LIMIT_S = 2_400.0
_POLL_S = 0.1


class Plan:
    """Kills when this number of rows are committed, and says when."""

    def __init__(self, steps: list[tuple[float, str, Callable[[], None]]]) -> None:
        self.done: list[tuple[str, float, int]] = []
        self._steps = steps
        self._began = time.monotonic()

    def proceed(self, committed: int) -> None:
        while self._steps and committed >= self._steps[0][0] * ROWS:
            _, name, act = self._steps.pop(0)
            act()
            self.done.append((name, round(time.monotonic() - self._began, 1), committed))


def copy(spec: ScaleSpec, plan: Plan) -> list[str]:
    """Run the job until it has copied all; return the ends of the outputs of runs that failed."""
    failures: list[str] = []
    deadline = time.monotonic() + _LIMIT_S
    path = spec.save()
    log = Path(spec.directory) / "job.log"
    while len(failures) <= RESTARTS:
        with log.open("wb") as output:
            job = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.crash.crash_scale_job", str(path)],
                cwd=_ROOT,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            while job.poll() is None:
                assert time.monotonic() < deadline, log.read_text()[-4_000:]
                plan.proceed(committed_rows(spec.checkpoint))
                time.sleep(_POLL_S)
        finally:
            job.kill()
        if job.wait() == 0:
            return failures
        failures.append(log.read_text(errors="replace")[-1_500:])
    raise AssertionError("\n\n".join(failures))


def test_a_worker_and_a_broker_killed_while_a_cluster_copies_a_topic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    java = ("-XX:+UseParallelGC", "-Xshare:auto")
    with (
        RealCluster(3, heap_mb=512, java_options=java) as brokers,
        SparkCluster(tmp_path / "spark", workers=2) as spark,
        cpu_times() as cpu,
    ):
        servers = brokers.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        topics = [NewTopic(name, PARTITIONS, 3) for name in ("rows", "copy")]
        for created in admin.create_topics(topics).values():
            created.result(30)
        began = time.monotonic()
        asyncio.run(fill(servers, "rows", ROWS))
        filled_s = time.monotonic() - began
        before = cpu.total()
        python_path = os.pathsep.join(map(str, (_ROOT, _ROOT / "aioprod/spark/registration")))
        spec = ScaleSpec(
            str(tmp_path), spark.master_url, servers, "rows", "copy", ROWS // BATCHES, python_path
        )

        def kill_worker() -> None:
            # Its executor is in its process group.
            os.killpg(os.getpgid(worker_jvm(tmp_path / "spark" / "worker2")), signal.SIGKILL)

        plan = Plan(
            [
                (KILL_WORKER_AT, "worker killed", kill_worker),
                (KILL_BROKER_AT, "broker killed", lambda: brokers.kill(brokers.node_ids[-1])),
            ]
        )
        began = time.monotonic()
        failures = copy(spec, plan)
        copied_s = time.monotonic() - began
        after = cpu.total()
        began = time.monotonic()
        found = count_rows(servers, "copy", PARTITIONS, ROWS)
        read_s = time.monotonic() - began
    batches = [json.loads(line) for line in spec.batches.read_text().splitlines()]
    with capsys.disabled():
        print(
            f"\n{ROWS} rows: filled in {filled_s:.0f} s, copied in {copied_s:.0f} s, read in "
            f"{read_s:.0f} s; {dict(found)}; {plan.done}; {len(failures)} runs failed"
        )
        print(
            "CPU s of the copy:",
            {kind: round(seconds - before.get(kind, 0.0), 1) for kind, seconds in after.items()},
        )
        for batch in batches:
            print(batch["batchId"], batch["numInputRows"], batch["durationMs"])
        print("\n\n".join(failures))
    assert len(plan.done) == 2, plan.done
    assert found == {"once": ROWS, "missing": 0, "doubled": 0, "wrong": 0}
