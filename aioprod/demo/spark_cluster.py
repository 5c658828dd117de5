"""Runs a Spark cluster on this machine: a standalone master and workers, in separate processes, on
127.0.0.1.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import pyspark

from aioprod.demo.options import DemoError
from aioprod.spark.session import SHORT_RUN_JAVA_OPTIONS
from aioprod.testing.java import java_home_for_spark

_START_LIMIT_S = 60.0
_STOP_LIMIT_S = 5.0
_POLL_S = 0.05
_MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")
# What PySpark's workers need for Arrow; PySpark itself comes with Spark.
_SPARKS_PACKAGES = ("numpy", "pandas", "pyarrow", "python-dateutil", "pytz", "six")
# Spark replaces the shell, so it has the process id that we started. A watcher waits on a pipe
# whose other end only our process has. When our process ends in any way, the watcher kills
# its process group: master or worker, and the worker's executors.
_WATCHED = (
    'exec 3<&0; (read -r _ <&3 || kill -9 0) >/dev/null 2>&1 & exec 3<&- </dev/null; exec "$@"'
)


def watched(command: Sequence[str]) -> list[str]:
    """Return a command that ends with its process group when its standard input closes."""
    return ["sh", "-c", _WATCHED, "sh", *command]


def spark_home() -> Path:
    """Return the directory of Spark's jars and commands: ``SPARK_HOME``, else PySpark's own."""
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def spark_environment() -> dict[str, str]:
    """Return the environment for Spark's commands: this process's, with Java's directory and only
    local addresses.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_", "PYTHONPATH"))
    }
    return {
        **kept,
        "SPARK_HOME": str(spark_home()),
        "JAVA_HOME": str(java_home_for_spark()),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def bare_python(directory: Path) -> Path:
    """Create a Python environment with only what PySpark needs, as on machines of a cluster; return
    its executable.
    """
    venv.EnvBuilder(symlinks=os.name == "posix", with_pip=False).create(directory)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = directory / "lib" / version / "site-packages"
    for name in _SPARKS_PACKAGES:
        try:
            installed = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # newer pandas needs no pytz
        for top in {
            file.parts[0]
            for file in installed.files or ()
            if file.parts[0] not in ("..", "__pycache__")
        }:
            (packages / top).symlink_to(str(installed.locate_file(top)))
    return directory / "bin" / "python"


class SparkCluster:
    """A master and workers of one core each. They end with the context manager's block, and when
    this process ends in any way.
    """

    def __init__(self, directory: Path, *, workers: int = 2, worker_memory_mb: int = 1024) -> None:
        """Keep the processes' logs and the executors' files in ``directory``."""
        self._directory = directory
        self._workers = workers
        self._memory_mb = worker_memory_mb
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master_url: str = ""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start all processes and wait until the workers have registered.

        Raises:
            DemoError: if they have not started within a minute; the message names the log.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        log = self._launch(
            "master",
            "org.apache.spark.deploy.master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--webui-port",
            "0",
        )
        self.master_url = self._wait_for(log, _MASTER_URL)
        for number in range(1, self._workers + 1):
            self._launch(
                f"worker{number}",
                "org.apache.spark.deploy.worker.Worker",
                "--host",
                "127.0.0.1",
                "--webui-port",
                "0",
                "--cores",
                "1",
                "--memory",
                f"{self._memory_mb}m",
                "--work-dir",
                str(self._directory / f"worker{number}"),
                self.master_url,
            )
        self._wait_for(log, re.compile(f"((?:Registering worker.*){{{self._workers}}})", re.DOTALL))

    def stop(self) -> None:
        """End all processes and their executors; may be called again, and from any thread."""
        for process in self._processes:
            signal_group(process, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_LIMIT_S
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
            signal_group(process, signal.SIGKILL)  # the watcher, and executors still running
            process.wait(_STOP_LIMIT_S)
            assert process.stdin is not None
            process.stdin.close()

    def _launch(self, name: str, *command: str) -> Path:
        log = self._directory / f"{name}.log"
        java = [str(spark_home() / "bin" / "spark-class"), *command]
        environment = {
            **spark_environment(),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": SHORT_RUN_JAVA_OPTIONS,
        }
        with log.open("wb") as output:
            # A new session: the terminal's Ctrl-C is for our process only.
            process = subprocess.Popen(
                watched(java),
                env=environment,
                cwd=self._directory,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        return log

    def _wait_for(self, log: Path, wanted: re.Pattern[str]) -> str:
        deadline = time.monotonic() + _START_LIMIT_S
        while (found := wanted.search(log.read_text(errors="replace"))) is None:
            if time.monotonic() > deadline or any(
                process.poll() is not None for process in self._processes
            ):
                raise DemoError(f"Spark's cluster did not start (more in {log.parent})")
            time.sleep(_POLL_S)
        return found.group(1)


def signal_group(process: subprocess.Popen[Any], number: signal.Signals) -> None:
    """Signal all processes of a group. Its number is not reused while one of them exists, or our
    child is not waited for.
    """
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass
