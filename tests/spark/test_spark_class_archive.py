"""The archive of the classes of Spark's JVM: made once, used as long as Java and the jars are the
same, never used in part.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from aioprod.spark.class_archive import ArchiveMaker, archive_options
from aioprod.testing.cache import cache_dir
from aioprod.testing.java import find_java


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return cache_dir()


def made(maker: ArchiveMaker, content: bytes = b"classes") -> None:
    """Write the file that the options name, as Java does when it ends."""
    option, _ = shlex.split(maker.options)
    name, _, path = option.partition("=")
    assert name == "-XX:ArchiveClassesAtExit"
    Path(path).write_bytes(content)


def archives(cache: Path) -> list[Path]:
    return sorted(cache.glob("*.jsa"))


def test_the_first_run_makes_the_archive_and_later_ones_use_it(cache: Path) -> None:
    assert archive_options() == ""
    maker = ArchiveMaker()
    assert maker.makes
    made(maker)
    assert archive_options() == "", "it is used once it has its name"
    maker.ended(0)
    (archive,) = archives(cache)
    assert shlex.split(archive_options())[0] == f"-XX:SharedArchiveFile={archive}"
    later = ArchiveMaker()
    assert not later.makes and later.options == archive_options()
    later.ended(0)
    assert archives(cache) == [archive]


def test_a_truncated_archive_is_not_used_but_made_again(cache: Path) -> None:
    first = ArchiveMaker()
    made(first)
    first.ended(0)
    (archive,) = archives(cache)
    archive.write_bytes(b"clas")
    assert archive_options() == ""
    second = ArchiveMaker()
    made(second, b"classes!")
    second.ended(0)
    (archive,) = archives(cache)
    assert str(archive) in archive_options()


def test_another_version_of_a_jar_needs_another_archive(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = tmp_path / "pyspark"
    (spark / "jars").mkdir(parents=True)
    jar = spark / "jars" / "spark-core.jar"
    jar.write_bytes(b"1")
    monkeypatch.setenv("SPARK_HOME", str(spark))
    maker = ArchiveMaker()
    made(maker)
    maker.ended(0)
    assert archive_options()
    jar.write_bytes(b"22")
    assert archive_options() == ""
    newer = ArchiveMaker()
    made(newer)
    newer.ended(0)
    assert archive_options() and len(archives(cache)) == 1, "the old one is removed"


def test_what_a_killed_java_has_written_is_removed(cache: Path) -> None:
    maker = ArchiveMaker()
    made(maker)
    maker.ended(-9)
    assert archives(cache) == [] and archive_options() == ""


def test_what_a_killed_run_has_left_is_removed_by_a_later_one(cache: Path) -> None:
    left = cache / ".spark-1.jsa"
    left.write_bytes(b"cla")
    ArchiveMaker()
    assert left.exists(), "its JVM may still write"
    os.utime(left, (0, 0))
    ArchiveMaker()
    assert not left.exists()


def test_java_that_makes_no_archive_is_no_error(cache: Path) -> None:
    maker = ArchiveMaker()
    maker.ended(0)
    assert archives(cache) == []


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_without_a_cache_spark_starts_without_an_archive(tmp_path: Path) -> None:
    (tmp_path / "aioprod").chmod(0o500)
    maker = ArchiveMaker()
    assert not maker.makes and maker.options == ""


def test_java_makes_and_uses_it_without_a_warning(cache: Path) -> None:
    def java(options: str) -> str:
        command = [str(find_java()), *shlex.split(options), "-Xshare:auto", "-version"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout

    maker = ArchiveMaker()
    assert java(maker.options) == ""
    maker.ended(0)
    assert archive_options() and java(archive_options()) == ""
