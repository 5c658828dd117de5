"""The home of Spark in the cache: all of the installed PySpark, whose modules are not in a zip
file.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from aioprod.spark.spark_home import quick_spark_home
from aioprod.testing.cache import cache_dir

INSTALLED = Path(pyspark.__file__).resolve().parent


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return cache_dir()


def test_it_has_all_of_the_installed_pyspark(cache: Path) -> None:
    home = quick_spark_home()
    assert home is not None and home.parent == cache
    for part in INSTALLED.iterdir():
        assert (home / part.name).is_dir() == part.is_dir(), part
        if part.name != "python":
            assert (home / part.name).resolve() == part
    libraries = home / "python" / "lib"
    assert {part.name for part in libraries.iterdir()} == {
        part.name for part in (INSTALLED / "python" / "lib").iterdir()
    }
    assert (libraries / "pyspark.zip" / "pyspark").resolve() == INSTALLED


def test_it_is_made_once(cache: Path) -> None:
    first = quick_spark_home()
    assert first is not None
    made = first.stat().st_ino
    assert quick_spark_home() == first and first.stat().st_ino == made
    assert list(cache.iterdir()) == [first]


def test_a_part_that_is_added_to_pyspark_needs_another_home(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "pyspark"
    (installed / "python" / "lib").mkdir(parents=True)
    (installed / "python" / "lib" / "pyspark.zip").touch()
    (installed / "__init__.py").touch()
    monkeypatch.setattr(pyspark, "__file__", str(installed / "__init__.py"))
    before = quick_spark_home()
    (installed / "conf").mkdir()
    after = quick_spark_home()
    assert before is not None and after is not None
    assert not (before / "conf").exists() and (after / "conf").is_dir()


def test_workers_import_the_installed_pyspark(spark: SparkSession) -> None:
    def homes(_: int) -> list[str]:
        import pyspark as used

        return [used.__file__, *sys.path]

    used, *path = spark.sparkContext.parallelize([0], 1).flatMap(homes).collect()
    assert Path(used).resolve().parent == INSTALLED
    assert not [entry for entry in path if entry.endswith("pyspark.zip") and Path(entry).is_file()]
