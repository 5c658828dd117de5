"""The home of Spark in the cache: all of the installed PySpark, whose modules are not in a zip
file.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import py4j  # type: ignore[import-untyped]
import pyspark
import pytest
from pyspark.sql import SparkSession

from aioprod.spark.spark_home import class_path_settings, quick_spark_home
from aioprod.testing.cache import cache_dir

INSTALLED = Path(pyspark.__file__).resolve().parent
PY4J = Path(py4j.__file__).resolve().parent


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
    (py4j_zip,) = libraries.glob("py4j-*-src.zip")
    assert (py4j_zip / "py4j").resolve() == PY4J


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


def test_another_version_of_py4j_stays_in_its_zip_file(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "pyspark"
    libraries = installed / "python" / "lib"
    libraries.mkdir(parents=True)
    for name in ("pyspark.zip", "py4j-0.10.1-src.zip"):
        (libraries / name).touch()
    monkeypatch.setattr(pyspark, "__file__", str(installed / "__init__.py"))
    home = quick_spark_home()
    assert home is not None
    assert (home / "python" / "lib" / "py4j-0.10.1-src.zip").is_file()


def test_java_looks_first_into_the_jars_that_have_most_classes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    jars = class_path_settings()["spark.driver.extraClassPath"].split(os.pathsep)
    assert all(Path(jar).is_file() for jar in jars)
    names = [Path(jar).name.partition("_")[0] for jar in jars]
    assert names[:2] == ["spark-catalyst", "spark-core"]
    assert len(jars) == len(set(jars)) < len(list((INSTALLED / "jars").iterdir())) / 5


def test_a_class_path_of_the_user_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    defaults = tmp_path / "spark-defaults.conf"
    defaults.write_text("spark.driver.memory 1g\n")
    assert class_path_settings()
    defaults.write_text("spark.driver.extraClassPath /opt/mine.jar\n")
    assert class_path_settings() == {}


def test_without_jars_the_class_path_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert class_path_settings() == {}


def test_workers_import_the_installed_pyspark(spark: SparkSession) -> None:
    def homes(_: int) -> list[str]:
        import py4j as used_py4j
        import pyspark as used

        return [used.__file__, used_py4j.__file__, *sys.path]

    used, used_py4j, *path = spark.sparkContext.parallelize([0], 1).flatMap(homes).collect()
    assert Path(used).resolve().parent == INSTALLED
    assert Path(used_py4j).resolve().parent == PY4J
    assert not [
        entry
        for entry in path
        if entry.endswith(("pyspark.zip", "-src.zip")) and Path(entry).is_file()
    ]
