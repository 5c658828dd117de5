"""The environment that PySpark starts in."""

from __future__ import annotations

import os
import site
import subprocess
import sys
from pathlib import Path

import pytest

import aioprod
from aioprod.spark import configure

HOME = str(Path(aioprod.__file__).resolve().parent.parent)


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH", "SPARK_LOCAL_IP"):
        # Set first, so that what configure() sets is undone too.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))
    return monkeypatch


def test_workers_run_this_python_and_find_this_package(clean: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean.setenv("PYTHONPATH", str(tmp_path))
    configure()
    configure()
    assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert (Path(os.environ["JAVA_HOME"]) / "bin" / "java").exists()
    expected = [str(tmp_path)] if HOME in site.getsitepackages() else [HOME, str(tmp_path)]
    assert os.environ["PYTHONPATH"].split(os.pathsep) == expected
    command = [sys.executable, "-c", "import aioprod; print(aioprod.__file__)"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    assert Path(found).resolve() == Path(aioprod.__file__).resolve()


def test_an_address_that_is_set_is_kept(clean: pytest.MonkeyPatch) -> None:
    clean.setenv("SPARK_LOCAL_IP", "10.0.0.7")
    configure()
    assert os.environ["SPARK_LOCAL_IP"] == "10.0.0.7"
