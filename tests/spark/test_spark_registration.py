"""The module by which Spark finds the data source by itself."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark_aioprod
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

import aioprod
from aioprod.spark import KafkaDataSource
from aioprod.testing import ThreadedCluster

REPOSITORY = Path(aioprod.__file__).parents[1]
TIMEOUT_S = 60


def python(code: str, *arguments: str) -> str:
    """Run code in a new process of this Python, and return its output."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_spark_registers_what_it_finds() -> None:
    """The module passes the checks of PySpark's ``lookup_data_sources``."""
    assert issubclass(pyspark_aioprod.DefaultSource, DataSource)
    assert pyspark_aioprod.DefaultSource.name() == KafkaDataSource.name() == "aioprod"
    made = pyspark_aioprod.DefaultSource(options={"subscribe": "t"})
    assert type(made) is KafkaDataSource
    assert made.options == {"subscribe": "t"}


def test_finding_it_costs_other_data_sources_nothing() -> None:
    found = python(
        "import sys, pyspark_aioprod; print(sorted({'aioprod', 'pyarrow', 'pandas'} & "
        "sys.modules.keys()))"
    )
    assert found == "[]"


def test_without_pyarrow_it_is_reported_by_who_asks_for_the_format() -> None:
    code = """
import sys
sys.modules["pyarrow"] = None
from pyspark_aioprod import DefaultSource
print(DefaultSource.name())
try:
    DefaultSource(options={})
except ImportError as error:
    print(error)
"""
    name, message = python(code).splitlines()
    assert name == "aioprod"
    assert message.startswith("aioprod.spark needs PySpark 4.0 or newer, and pyarrow (")
    assert message.endswith("python -m pip install 'aioprod[spark]'")


def test_the_wheel_has_it_at_its_top_level_and_nowhere_else(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "wheel",
        "--directory",
        str(tmp_path),
    ]
    # To compile takes long, and would replace the library that other tests load.
    pure = {**os.environ, "AIOPROD_PURE": "1", "AIOPROD_NATIVE": ""}
    subprocess.run(
        command, cwd=REPOSITORY, check=True, timeout=TIMEOUT_S, capture_output=True, env=pure
    )
    (wheel,) = tmp_path.glob("aioprod-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if "pyspark_aioprod" in name] == ["pyspark_aioprod/__init__.py"]
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {
        "aioprod",
        "pyspark_aioprod",
    }


def test_a_session_knows_the_format_without_being_asked(
    spark: SparkSession, threaded_broker: ThreadedCluster
) -> None:
    session = spark.newSession()
    for view, option in (("sink", "topic 't'"), ("source", "subscribe 't'")):
        options = f"`kafka.bootstrap.servers` '{threaded_broker.bootstrap_servers}', {option}"
        session.sql(f"CREATE TEMPORARY VIEW {view} USING aioprod OPTIONS ({options})")
    session.sql("INSERT INTO sink (key, value) VALUES (NULL, CAST('x' AS BINARY))")
    assert [
        (record.key, record.value) for record in threaded_broker.records("t", committed_only=True)
    ] == [(None, b"x")]
    assert [row["value"] for row in session.table("source").collect()] == [b"x"]
