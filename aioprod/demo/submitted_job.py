"""Spark's part of the demo on a cluster: the pipeline by ``spark-submit``, on a master with two
workers whose Python does not have aioprod.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO
from uuid import UUID

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from aioprod.demo.options import DemoError
from aioprod.demo.pipeline import CarrierHourDelay, PipelineResult, RouteDelay
from aioprod.demo.pipeline.__main__ import PROGRAM
from aioprod.demo.spark_cluster import (
    SparkCluster,
    bare_python,
    signal_group,
    spark_environment,
    spark_home,
    watched,
)
from aioprod.spark.packaging import write_archive
from aioprod.spark.progress import QueryProgress
from aioprod.spark.session import SHORT_RUN_JAVA_OPTIONS

_END_LIMIT_S = 5.0
_PACKAGES = "packages"
_EXECUTOR_MEMORY_MB = 1024


class SubmittedJob:
    """One run of the pipeline. `run` blocks and belongs in a thread; `kill` may be called from
    another one.
    """

    def __init__(self, work_dir: Path, log: Path, master: str | None = None) -> None:
        """``work_dir`` takes Parquet, checkpoints and the cluster's files; ``log`` takes what
        ``spark-submit`` prints.

        ``master``: Spark's master URL; None starts a master and workers of its own.
        """
        self._master = master
        self._work_dir = work_dir
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def run(
        self,
        servers: str,
        topic: str,
        sink_topic: str,
        *,
        on_started: Callable[[], None],
        on_progress: Callable[[QueryProgress], None],
    ) -> PipelineResult:
        """Start the cluster if none is given, submit the pipeline and end what was started.

        Raises:
            DemoError: if the cluster did not start or the pipeline failed; the message names the
                log.
        """
        packages = self._pack()
        with self._cluster() as master_url:
            on_started()
            arguments = [
                "--bootstrap-servers",
                servers,
                "--topic",
                topic,
                "--sink-topic",
                sink_topic,
                "--progress",
                "json",
            ]
            arguments += [
                "--out",
                str(self._work_dir / "parquet"),
                "--checkpoint",
                str(self._work_dir / "checkpoint"),
            ]
            command = self._command(master_url, packages) + arguments
            with self._log.open("w", encoding="utf-8") as log, self._submitted(command) as process:
                assert process.stdout is not None
                counts, said = _listen(process.stdout, log, on_progress)
        if process.returncode != 0 or counts is None:
            raise DemoError(
                f"Spark failed: {said or f'exit status {process.returncode}'} (more in {self._log})"
            )
        return _result(counts)

    def kill(self) -> None:
        """End ``spark-submit`` and its Python at once; a `run` that waits for it fails, and ends
        the cluster.
        """
        if self._process is not None:
            signal_group(self._process, signal.SIGKILL)

    @contextmanager
    def _cluster(self) -> Iterator[str]:
        if self._master is not None:
            yield self._master
            return
        with SparkCluster(
            self._work_dir / "cluster", worker_memory_mb=_EXECUTOR_MEMORY_MB
        ) as cluster:
            yield cluster.master_url

    def _pack(self) -> Path:
        """The package and its dependencies, as a file for the executors and unpacked for the
        driver.
        """
        archive = self._work_dir / f"{_PACKAGES}.zip"
        write_archive(archive, with_dependencies=True)
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(self._work_dir / _PACKAGES)
        return archive

    def _command(self, master_url: str, packages: Path) -> list[str]:
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": SHORT_RUN_JAVA_OPTIONS,
            "spark.executor.extraJavaOptions": SHORT_RUN_JAVA_OPTIONS,
            # where the archive is unpacked, in the directory in which an executor works
            "spark.executorEnv.PYTHONPATH": _PACKAGES,
            "spark.pyspark.python": str(bare_python(self._work_dir / "python")),
            "spark.pyspark.driver.python": sys.executable,
            "spark.sql.warehouse.dir": str(self._work_dir / "warehouse"),
            "spark.ui.enabled": "false",
        }
        main = self._work_dir / _PACKAGES / "aioprod" / "demo" / "pipeline" / "__main__.py"
        return [
            str(spark_home() / "bin" / "spark-submit"),
            "--master",
            master_url,
            "--driver-memory",
            "1g",
            "--executor-memory",
            f"{_EXECUTOR_MEMORY_MB}m",
            "--archives",
            f"{packages}#{_PACKAGES}",
            *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
            str(main),
        ]

    @contextmanager
    def _submitted(self, command: list[str]) -> Iterator[subprocess.Popen[str]]:
        environment = {**spark_environment(), "PYTHONPATH": str(self._work_dir / _PACKAGES)}
        process = subprocess.Popen(
            watched(command),
            env=environment,
            cwd=self._work_dir,
            text=True,
            encoding="utf-8",
            errors="replace",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._process = process
        try:
            yield process
            process.wait(_END_LIMIT_S)  # it has closed its output
        finally:
            signal_group(process, signal.SIGKILL)
            process.wait(_END_LIMIT_S)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def _listen(
    output: Iterable[str], log: TextIO, on_progress: Callable[[QueryProgress], None]
) -> tuple[dict[str, Any] | None, str]:
    """Report each micro-batch; return the summary of the application, and why it failed."""
    counts, said = None, ""
    for line in output:
        if line.startswith('{"query"'):
            on_progress(_progress(line))
        elif line.startswith("{"):
            counts = json.loads(line)
        else:
            log.write(line)
            said = line.strip() if line.startswith(PROGRAM) else said
    return counts, said.removeprefix(f"{PROGRAM}: ")


def _progress(line: str) -> QueryProgress:
    fields: dict[str, Any] = json.loads(line)
    return QueryProgress(**{**fields, "run_id": UUID(fields["run_id"])})


def _result(counts: dict[str, Any]) -> PipelineResult:
    delays = [
        CarrierHourDelay(**{**row, "time_hour": f"{row['time_hour']:%Y-%m-%dT%H:%M:%SZ}"})
        for row in _rows(counts["delays_path"])
    ]
    routes = [RouteDelay(**row) for row in _rows(counts["routes_path"])]
    return PipelineResult(
        **counts,
        delays=sorted(delays, key=lambda delay: delay.place),
        routes=sorted(routes, key=lambda route: route.place),
    )


def _rows(path: str) -> list[dict[str, Any]]:
    if not Path(path).exists():
        return []
    table = pq.read_table(path)
    hour = table.schema.get_field_index("time_hour")
    if hour >= 0:
        # Spark writes the time in UTC, and does not say so.
        table = table.set_column(hour, "time_hour", table.column(hour).cast(pa.timestamp("s")))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
