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


def test_a_process_that_spark_uses_again_puts_aside_what_it_has_loaded() -> None:
    environment = os.environ | {"SPARK_REUSE_WORKER": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    frozen, more, with_pyarrow, left = map(int, done.stdout.split())
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
import sys, threading
from pathlib import Path
from pyspark.sql.types import StringType, StructField, StructType
from aioprod.spark.source import KafkaDataSource
def heavy():
    found = sorted({"numpy", "pandas", "pyarrow"} & sys.modules.keys())
    threads = Path("/proc/self/status").read_text().partition("Threads:")[2].split()[0]
    print(found, threads)
options = {"kafka.bootstrap.servers": "h:1", "topic": "t"}
KafkaDataSource(options).writer(StructType([StructField("value", StringType())]), False)
heavy()
from aioprod.spark import committing
heavy()
from aioprod.spark import worker_daemon
worker_daemon.load()
heavy()
missing = [name for name in worker_daemon.MODULES if name not in sys.modules]
print(missing)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="threads are read from /proc")
def test_processes_that_see_no_rows_load_no_arrow() -> None:
    """Planning, commits and the daemon. The daemon forks, so it must have no other threads: pyarrow
    and numpy start some when they are imported.
    """
    done = subprocess.run(
        [sys.executable, "-c", LIGHT],
        env=os.environ | {"SPARK_REUSE_WORKER": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines() == ["[] 1", "[] 1", "[] 1", "[]"] and not done.stderr


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
    done = subprocess.run(
        [sys.executable, "-c", WRITE],
        env=os.environ | {"SPARK_REUSE_WORKER": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["2", "False", "1", "1", "2"]


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
