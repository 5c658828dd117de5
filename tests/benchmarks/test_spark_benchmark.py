"""The Spark benchmark counts the CPU time of all processes. With ``-m benchmarks`` it runs from end
to end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import broker, spark, spark_session
from benchmarks.process_tree import tree_cpu_s

REPOSITORY = Path(broker.__file__).parents[1]
WORKERS = REPOSITORY / "benchmarks" / "spark_workers"
BURN_S = 0.2
# The kernel reports CPU time in ticks of 10 ms, rounded down.
SEEN_S = BURN_S - 0.03
BURN = f"""
import time
while time.process_time() < {BURN_S}:
    pass
"""
# Like Spark's daemon, ignores the end of its children.
FORKING = f"""
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
ended, end = os.pipe()
if os.fork():
    os.close(end)
    os.read(ended, 1)  # returns when the child ends
    time.sleep(0.05)
else:
    {BURN.replace(chr(10), chr(10) + "    ")}
    os._exit(0)
"""

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="CPU time of other processes is read from /proc"
)


@needs_proc
def test_ended_processes_are_counted() -> None:
    own, below = tree_cpu_s(os.getpid())
    subprocess.run([sys.executable, "-c", BURN], check=True, timeout=30)
    own_after, below_after = tree_cpu_s(os.getpid())
    assert below_after - below >= SEEN_S
    assert own_after >= own


@needs_proc
@pytest.mark.parametrize(("seen", "module"), [(True, "pyspark.daemon"), (False, "another")])
def test_workers_of_sparks_daemon_are_counted(seen: bool, module: str) -> None:
    below = tree_cpu_s(os.getpid())[1]
    environment = {**os.environ, "PYTHONPATH": str(WORKERS)}
    subprocess.run([sys.executable, "-c", FORKING, module], check=True, timeout=30, env=environment)
    assert (tree_cpu_s(os.getpid())[1] - below >= SEEN_S) == seen


@pytest.mark.benchmarks
@pytest.mark.timeout(300)
def test_the_benchmark_measures_all_cases() -> None:
    sizes = ["--rows", "200", "--micro-batch", "20", "--repetitions", "1"]
    sizes += ["--idle-seconds", "0.1", "--flights", "300", "--partitions", "8"]
    # The part cold waits for minutes until Spark ends its workers.
    sizes += ["--parts", "frames,sinks,copies,idle,partitions,pipeline"]
    with broker.broker_process({}) as servers:
        command = [sys.executable, "-m", "benchmarks.spark", "--bootstrap", servers, *sizes]
        done = subprocess.run(
            command, cwd=REPOSITORY, capture_output=True, text=True, timeout=280, check=False
        )
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()
    for case, clients in (
        (spark.WRITE, spark_session.SINKS),
        (spark.READ, spark_session.SOURCES),
        (spark.JSON, spark_session.SOURCES),
        (spark.stream_case(20), spark_session.SINKS),
        (spark.COPY, spark_session.SINKS),
        (spark.copy_case(spark.SMALL_MICRO_BATCH), spark_session.SINKS),
        (spark.IDLE, spark_session.SINKS),
        ("write, 8 partitions", spark_session.SINKS),
        (spark.pipeline_case(300, spark.COLD), spark_session.SOURCES),
        (spark.pipeline_case(300, spark.WARM), spark_session.SOURCES),
    ):
        for client in clients:
            assert [row for row in rows if row.startswith(f"| {case} | {client} | ")]
    measured = [row for row in rows if " | at least " in row or " | at most " in row]
    assert len(measured) == len([*spark.TARGETS, *spark.COPY_TARGETS])
