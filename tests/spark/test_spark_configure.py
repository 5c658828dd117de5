"""The environment that PySpark starts in."""

from __future__ import annotations

import os
import site
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import aioprod
from aioprod.spark import configure, spark_session_builder

HOME = str(Path(aioprod.__file__).resolve().parent.parent)


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in (
        "PYSPARK_PYTHON",
        "PYSPARK_DRIVER_PYTHON",
        "PYTHONPATH",
        "SPARK_LOCAL_IP",
        "PYSPARK_GATEWAY_PORT",
        "SPARK_HOME",
    ):
        # Set first, so that what configure() sets is undone too.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))
    return monkeypatch


def test_workers_run_this_python_and_find_this_package(
    clean: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clean.setenv("PYTHONPATH", str(tmp_path))
    configure()
    configure()
    assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert (Path(os.environ["JAVA_HOME"]) / "bin" / "java").exists()
    expected = (
        [str(tmp_path)]
        if HOME in site.getsitepackages()
        else [HOME, f"{HOME}/aioprod/spark/registration", str(tmp_path)]
    )
    assert os.environ["PYTHONPATH"].split(os.pathsep) == expected
    command = [sys.executable, "-c", "import aioprod, pyspark_aioprod; print(aioprod.__file__)"]
    found = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=True
    ).stdout.strip()
    assert Path(found).resolve() == Path(aioprod.__file__).resolve()


def test_an_address_that_is_set_is_kept(clean: pytest.MonkeyPatch) -> None:
    clean.setenv("SPARK_LOCAL_IP", "10.0.0.7")
    configure()
    assert os.environ["SPARK_LOCAL_IP"] == "10.0.0.7"


def settings(master: str | None = None) -> dict[str, str]:
    """Return the builder's settings, which only its private dictionary has."""
    builder = spark_session_builder(master)
    return dict(builder._options)


@pytest.mark.parametrize("master", [None, "local[2]", "local-cluster[2,1,1024]"])
def test_on_one_machine_only_that_machine_is_listened_on(
    clean: pytest.MonkeyPatch, master: str | None
) -> None:
    given = settings(master)
    assert given["spark.master"] == (master or "local[*]")
    assert (
        given["spark.driver.host"]
        == given["spark.driver.bindAddress"]
        == os.environ["SPARK_LOCAL_IP"]
        == "127.0.0.1"
    )
    assert given["spark.sql.shuffle.partitions"] == "2"


@pytest.mark.parametrize(
    ("version", "loaded"),
    [("4.0.5", False), ("4.1.4", False), ("4.2.0", True), ("4.10.1", True), ("4.4.0.dev1", True)],
)
def test_workers_are_forked_from_a_loaded_daemon_if_pyspark_starts_no_threads_there(
    clean: pytest.MonkeyPatch, version: str, loaded: bool
) -> None:
    """Before 4.2 PySpark's modules for tasks import numpy."""
    clean.setattr(pyspark, "__version__", version)
    assert ("spark.python.daemon.module" in settings("local[2]")) == loaded
    assert "spark.python.daemon.module" not in settings("spark://10.0.0.7:7077")


def test_executors_of_a_cluster_reach_the_driver_and_keep_their_own_python(
    clean: pytest.MonkeyPatch,
) -> None:
    clean.setenv("PYSPARK_PYTHON", "/opt/python/bin/python")
    given = settings("spark://10.0.0.7:7077")
    assert given == {
        "spark.master": "spark://10.0.0.7:7077",
        "spark.app.name": "aioprod",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    assert "SPARK_LOCAL_IP" not in os.environ
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python/bin/python"
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_what_spark_submit_was_reported_stands(clean: pytest.MonkeyPatch) -> None:
    clean.setenv("PYSPARK_GATEWAY_PORT", "12345")
    clean.setenv("JAVA_HOME", "/chosen")
    given = settings()
    assert "spark.master" not in given and "spark.driver.host" not in given
    assert os.environ["JAVA_HOME"] == "/chosen"


def test_a_home_of_spark_that_is_set_is_kept(clean: pytest.MonkeyPatch) -> None:
    clean.setenv("SPARK_HOME", "/opt/spark")
    configure()
    assert os.environ["SPARK_HOME"] == "/opt/spark"


def test_for_a_cluster_no_home_of_spark_is_set(clean: pytest.MonkeyPatch) -> None:
    configure("spark://cluster:7077")
    assert "SPARK_HOME" not in os.environ
