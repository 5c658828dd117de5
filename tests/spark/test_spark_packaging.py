"""The zip file for Spark's executors; no Java is needed."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from aioprod.spark import packaging
from aioprod.spark.packaging import main, write_archive


def names(path: Path) -> set[str]:
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


def test_without_dependencies_it_is_pure_python_and_imported_as_it_is(tmp_path: Path) -> None:
    assert write_archive(tmp_path / "aioprod.zip") == []
    found = names(tmp_path / "aioprod.zip")
    assert {"aioprod/spark/source.py", "pyspark_aioprod/__init__.py", "aioprod/py.typed"} <= found
    assert {name.split("/")[0] for name in found} == {"aioprod", "pyspark_aioprod"}
    assert not [name for name in found if "__pycache__" in name or name.endswith((".so", ".pyd"))]
    # The page is a file next to the code, which the driver reads out of the archive.
    program = "import aioprod.spark.source as source; print(source.__file__);"
    program += "from aioprod.spark.page import ProgressPage; ProgressPage('x')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": "aioprod.zip"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("aioprod.zip/aioprod/spark/source.py"), done.stderr


def test_with_dependencies_it_has_what_the_package_needs_and_no_more(tmp_path: Path) -> None:
    taken = {
        name.split()[0] for name in write_archive(tmp_path / "all.zip", with_dependencies=True)
    }
    assert {"anyio", "crc32c", "cramjam", "idna"} <= taken  # idna is anyio's
    assert not taken & {"aioprod", "pyspark", "pyarrow", "pandas", "uvloop", "rich"}
    found = names(tmp_path / "all.zip")
    assert {"anyio/__init__.py", "aioprod/__init__.py"} <= found
    assert [
        name for name in found if name.startswith("cramjam/") and name.endswith((".so", ".pyd"))
    ]
    assert not [name for name in found if name.startswith(("..", "/"))]


def test_the_command_says_what_it_packed_and_what_went_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "x.zip"), "--with-dependencies"]) == 0
    assert "x.zip: aioprod, anyio 4" in capsys.readouterr().out
    assert packaging.main([str(tmp_path / "missing" / "x.zip")]) == 1
    assert "missing" in capsys.readouterr().err
