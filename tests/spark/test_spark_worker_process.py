"""Spark's processes load only the modules that they need. The garbage collector visits these once,
not after each use.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from aioprod.spark import worker_process
from aioprod.spark.worker_process import freeze_modules, postpone_pandas
from aioprod.testing import ThreadedCluster

PROGRAM = """
import gc
from aioprod.spark.worker_process import freeze_modules
import pyspark.worker
freeze_modules()
first = gc.get_freeze_count()
freeze_modules()  # nothing was loaded since
print(first, gc.get_freeze_count() - first)
import pyarrow
left = len(gc.get_objects())
freeze_modules()
print(left, len(gc.get_objects()))
"""


def run_in_worker(program: str, *arguments: str) -> list[str]:
    """Run a program in a process like those that Spark reuses; return the lines that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=os.environ | {"SPARK_REUSE_WORKER": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert not done.stderr
    return done.stdout.splitlines()


def test_a_process_that_spark_uses_again_puts_aside_what_it_has_loaded() -> None:
    frozen, more, with_pyarrow, left = map(int, " ".join(run_in_worker(PROGRAM)).split())
    assert frozen > 20_000 and more <= 0
    # It takes 3 ms of CPU after each task to look through what pyarrow has.
    assert with_pyarrow > 5_000 and left < 1_000


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("writing", "pandas"),
        ("sink", "pyarrow"),
        ("source", "pyarrow"),
        ("readers", "pyarrow"),
    ],
)
def test_planning_imports_no_packages_that_only_tasks_need(module: str, package: str) -> None:
    """pandas takes 0.3 s of CPU, pyarrow with numpy 0.15 s."""
    program = f"import sys, aioprod.spark.{module}; print({package!r} in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False\n"


def test_other_processes_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "_MANY_OBJECTS", 0)
    before, finders = gc.get_freeze_count(), list(sys.meta_path)
    unfrozen: list[list[int]] = [[] for _ in range(10_000)]
    freeze_modules()
    postpone_pandas()
    # Frozen objects may be deleted meanwhile.
    assert gc.get_freeze_count() <= before and sys.meta_path == finders
    del unfrozen


LIGHT = """
import sys
from pathlib import Path
from pyspark.sql.types import StringType, StructField, StructType
from aioprod.spark.source import KafkaDataSource
def heavy():
    found = sorted({"numpy", "pandas", "pyarrow"} & sys.modules.keys())
    print(found, len([*Path("/proc/self/task").iterdir()]))
options = {"kafka.bootstrap.servers": "h:1", "topic": "t"}
KafkaDataSource(options).writer(StructType([StructField("value", StringType())]), False)
heavy()
from aioprod.spark import committing
heavy()
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are read from /proc")
def test_processes_that_see_no_rows_load_no_arrow() -> None:
    """Planning and commits: pyarrow and numpy also start threads when they are imported."""
    assert run_in_worker(LIGHT) == ["[] 1", "[] 1"]


DAEMON = """
import sys
from aioprod.spark import worker_daemon
worker_daemon.load()
names = [*worker_daemon.MODULES, *worker_daemon.ARROW_MODULES]
print([name for name in names if name not in sys.modules], "pandas" in sys.modules)
"""

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="pyarrow is preloaded on Linux")


@linux_only
def test_the_daemon_loads_what_tasks_import_but_not_pandas() -> None:
    assert run_in_worker(DAEMON) == ["[] False"]


FORKS = """
import os, signal
from pathlib import Path
from aioprod.spark import worker_daemon
worker_daemon.load()
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
matrix = np.ones((300, 300))
matrix @ matrix  # starts OpenBLAS' threads
def work():
    signal.alarm(20)
    table = pa.table({"key": [1, 2] * 50_000, "value": range(100_000)})
    groups = table.group_by("key", use_threads=True).aggregate([("value", "sum")])
    assert pc.sum(groups["value_sum"]).as_py() == 4_999_950_000
    assert (matrix @ matrix)[0, 0] == 300
def fork():
    child = os.fork()
    if not child:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return child
for _ in range(10):
    children = [fork() for _ in range(3)]
    print([os.waitpid(child, 0)[1] for child in children])
names = [(each.name, (each / "comm").read_text()) for each in Path("/proc/self/task").iterdir()]
print({name.strip() for number, name in names if int(number) != os.getpid()})
"""


@linux_only
def test_forked_processes_of_the_daemon_use_the_threads_of_pyarrow_and_numpy() -> None:
    """Threads do not survive a fork, and their locks would stay locked."""
    *results, threads = run_in_worker(FORKS)
    assert results == ["[0, 0, 0]"] * 10
    assert threads in {"set()", "{'jemalloc_bg_thd'}"}, "does it survive a fork?"


WRITE = """
import sys
import pyarrow as pa
from aioprod.spark.sink import KafkaWriter
from aioprod.spark.sink_options import parse_sink_options
from aioprod.testing import EmbeddedCluster
with EmbeddedCluster.in_thread() as broker:
    broker.create_topic("t", 2)
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t"}
    writer = KafkaWriter(parse_sink_options({**given, "delivery": "at-least-once"}))
    ends = pa.py_buffer(b"".join(end.to_bytes(4, sys.byteorder) for end in (0, 1, 2)))
    column = pa.Array.from_buffers(pa.binary(), 2, [None, ends, pa.py_buffer(b"ab")])
    rows = pa.RecordBatch.from_arrays([column, column], ["key", "value"])
    print(writer.write(iter([rows])).rows)
    print("pandas" in sys.modules)
    import pandas as pd
    print(pa.array(pd.Series([1.0, float("nan")])).null_count, pa.array([1]).to_pandas().sum())
    print(writer.write(iter([rows])).rows)
"""


def test_a_task_of_spark_does_without_pandas_until_it_is_imported() -> None:
    """The import takes 0.3 s of CPU in each new process. A user's function gets the unchanged
    pyarrow.
    """
    assert run_in_worker(WRITE) == ["2", "False", "1 1", "2"]


@pytest.mark.spark
def test_writes_finish_their_workers(
    session: SparkSession, threaded_broker: ThreadedCluster
) -> None:
    threaded_broker.create_topic("t", 1)
    given = {
        "kafka.bootstrap.servers": threaded_broker.bootstrap_servers,
        "topic": "t",
        "delivery": "at-least-once",
    }
    rows = session.range(2, numPartitions=2)
    for _ in range(2):
        rows.selectExpr("CAST(id AS STRING) AS value").write.format("aioprod").mode(
            "append"
        ).options(**given).save()

    def frozen_objects(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch(
                {"frozen": pa.array([gc.get_freeze_count()] * batch.num_rows, pa.int64())}
            )

    # Spark has more workers than those that wrote, and takes whichever has waited longest.
    counts = rows.mapInArrow(frozen_objects, "frozen long")
    assert any(row.frozen > 20_000 for _ in range(5) for row in counts.collect())


TASK = """
import sys
from aioprod.spark import worker_daemon
worker_daemon.load()
loaded = {*sys.modules}
import pyarrow as pa
from aioprod.spark.exactly_once.ids import Sink, short_run
from aioprod.spark.exactly_once.reports import TaskAttempt
from aioprod.spark.offsets import OffsetRange
from aioprod.spark.reading import read_ranges
from aioprod.spark.sink_options import parse_sink_options
from aioprod.spark.source_options import parse_source_options
from aioprod.spark.writing import write_attempt, write_batches
servers = {"kafka.bootstrap.servers": sys.argv[1]}
rows = pa.record_batch({"key": [b"k"], "value": [b"v"]})
options = parse_sink_options({**servers, "topic": "t", "delivery": "at-least-once"})
print(write_batches(options, iter([rows])).rows)
source = parse_source_options({**servers, "subscribe": "t"}, streaming=False)
print(sum(each.num_rows for each in read_ranges(source, [OffsetRange("t", 0, 0, 1)])))
options = parse_sink_options({**servers, "topic": "t"})
attempt = TaskAttempt(Sink(options.transactional_id_prefix, "q"), short_run("run"), 0, 0, 0)
print(write_attempt(options, attempt, iter([rows])).rows)
packages = {"aioprod", "numpy", "pyarrow"}
print([name for name in sys.modules.keys() - loaded if name.partition(".")[0] in packages])
"""


@linux_only
def test_tasks_find_what_they_import_in_the_daemon(threaded_broker: ThreadedCluster) -> None:
    """A worker that Spark starts after a minute without work imports nothing to read or write."""
    threaded_broker.create_topic("t", 1)
    found = run_in_worker(TASK, threaded_broker.bootstrap_servers)
    assert found == ["1", "1", "1", "[]"]
