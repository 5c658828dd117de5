"""Complete jars come from the cache, others are fetched, and jars with a wrong sum are never
used.
"""

from __future__ import annotations

import hashlib
import ssl
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from aioprod.testing import jars
from aioprod.testing.cache import SetupError, locked
from aioprod.testing.jars import Jar, fetch, locked_jars
from aioprod.testing.java import find_java, home_of
from aioprod.testing.trust_store import PASSWORD, write_trust_store

CONTENT = {"a-1.0.jar": b"first", "b_2.13-2.0.jar": b"second"}
JARS = [
    Jar("org/example/a/1.0/a-1.0.jar", hashlib.sha256(b"first").hexdigest()),
    Jar("org/example/b_2.13/2.0/b_2.13-2.0.jar", hashlib.sha256(b"second").hexdigest()),
]


class Repository:
    """A fake way to fetch that writes files and counts its calls."""

    def __init__(self, content: dict[str, bytes]) -> None:
        self.content = content
        self.calls = 0

    def __call__(self, wanted: Sequence[Jar], directory: Path) -> None:
        self.calls += 1
        for name, data in self.content.items():
            (directory / name).write_bytes(data)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "aioprod"


def test_what_is_in_the_cache_is_not_fetched_again() -> None:
    repository = Repository(CONTENT)
    paths = fetch("things", JARS, {"fake": repository})
    assert [path.read_bytes() for path in paths] == [b"first", b"second"]
    assert fetch("things", JARS, {"fake": repository}) == paths
    assert repository.calls == 1


def test_a_wrong_sum_is_refused_and_nothing_of_it_stays(cache: Path) -> None:
    repository = Repository({**CONTENT, "a-1.0.jar": b"forged"})
    with pytest.raises(
        SetupError,
        match=(
            f"a-1.0.jar has the SHA-256 sum {hashlib.sha256(b'forged').hexdigest()}, not "
            f"{JARS[0].sha256}"
        ),
    ):
        fetch("things", JARS, {"fake": repository})
    assert [path.name for path in cache.iterdir()] == ["things.lock"]


def test_a_damaged_cache_is_fetched_again() -> None:
    repository = Repository(CONTENT)
    paths = fetch("things", JARS, {"fake": repository})
    paths[1].write_bytes(b"bitrot")
    assert fetch("things", JARS, {"fake": repository})[1].read_bytes() == b"second"
    paths[0].unlink()
    assert fetch("things", JARS, {"fake": repository})[0].read_bytes() == b"first"


def test_the_next_way_is_tried_when_one_fails_and_the_error_names_all() -> None:
    def broken(wanted: Sequence[Jar], directory: Path) -> None:
        raise SetupError("exit status 1")

    incomplete = Repository({"a-1.0.jar": b"first"})
    with pytest.raises(SetupError, match=r"Maven: exit status 1\nIvy: b_2.13-2.0.jar is missing"):
        fetch("things", JARS, {"Maven": broken, "Ivy": incomplete})
    assert len(fetch("things", JARS, {"Maven": broken, "Ivy": Repository(CONTENT)})) == 2


def test_without_maven_and_pyspark_the_error_says_what_to_install() -> None:
    with pytest.raises(SetupError, match="Install Maven, or PySpark"):
        fetch("things", JARS, {})


def test_two_at_the_same_time_fetch_once() -> None:
    started, go = threading.Event(), threading.Event()
    repository = Repository(CONTENT)

    def slow(wanted: Sequence[Jar], directory: Path) -> None:
        started.set()
        assert go.wait(10)
        repository(wanted, directory)

    results: list[list[Path]] = []
    threads = [
        threading.Thread(target=lambda: results.append(fetch("things", JARS, {"slow": slow})))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    assert started.wait(10)
    go.set()
    for thread in threads:
        thread.join(10)
    assert len(results) == 2
    assert repository.calls == 1


@pytest.mark.skipif(sys.platform == "win32", reason="no lock there")
def test_a_lock_that_stays_taken_is_an_error_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "taken.lock"
    with (
        locked(path, timeout_s=1),
        pytest.raises(SetupError, match=f"another process has had the lock {path}"),
        locked(path, timeout_s=0.1),
    ):
        pass


def test_a_cache_that_cannot_be_made_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(SetupError, match="set XDG_CACHE_HOME"):
        fetch("things", JARS, {})


def test_a_way_that_takes_too_long_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mvn = tmp_path / "bin" / "mvn"
    mvn.parent.mkdir()
    mvn.write_text("#!/bin/sh\nexec sleep 60\n")
    mvn.chmod(0o755)
    monkeypatch.setenv("PATH", f"{mvn.parent}:/usr/bin:/bin")
    monkeypatch.setattr(jars, "FETCH_TIMEOUT_S", 0.2)
    with pytest.raises(SetupError, match=r"Maven: not done within 0.2 s"):
        fetch("things", JARS, {"Maven": jars.fetch_by_maven})


@pytest.mark.all_packages
def test_a_ways_last_words_are_in_the_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mvn = tmp_path / "bin" / "mvn"
    mvn.parent.mkdir()
    mvn.write_text("#!/bin/sh\necho '[ERROR] no network'; exit 3\n")
    mvn.chmod(0o755)
    monkeypatch.setenv("PATH", f"{mvn.parent}:/usr/bin:/bin")
    assert list(jars.ways()) == ["Maven", "Ivy"]
    with pytest.raises(SetupError, match=r"exit status 3\n\[ERROR\] no network"):
        jars.fetch_by_maven(JARS, tmp_path)


def test_the_lock_file_names_whole_releases() -> None:
    sizes = {
        "kafka-4.4.0": 45,
        "kafka-4.1.0": 46,
        "kafka-3.9.2": 56,
        "kafka-tools-4.1.0": 1,
        "spark-kafka-connector": 5,
        "parallel-consumer": 16,
        "java-compiler": 1,
    }
    lists = {name: locked_jars(name) for name in sizes}
    assert {name: len(found) for name, found in lists.items()} == sizes
    for version in jars.KAFKA_VERSIONS:
        assert ("org.apache.kafka", "kafka_2.13", version) in [
            jar.coordinates for jar in lists[f"kafka-{version}"]
        ]
    for found in lists.values():
        assert len({jar.file_name for jar in found}) == len(found), (
            "two jars of one name would overwrite each other"
        )
    for jar in [jar for found in lists.values() for jar in found]:
        _, artifact, version = jar.coordinates
        assert jar.file_name == f"{artifact}-{version}.jar"
        assert len(bytes.fromhex(jar.sha256)) == 32


def test_an_unknown_version_of_kafka_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"version='2\.8': must be one of 4\.4\.0, 4\.1\.0, 3\.9\.2"
    ):
        jars.kafka_jars("2.8")


def test_java_reads_the_trust_store(tmp_path: Path) -> None:
    authorities = ssl.create_default_context().get_ca_certs(binary_form=True)[:3]
    if not authorities:
        pytest.skip("this machine has no certificate authorities to write")
    write_trust_store(tmp_path / "store", authorities)
    keytool = home_of(find_java()) / "bin" / "keytool"
    command = [
        str(keytool),
        "-list",
        "-keystore",
        str(tmp_path / "store"),
        "-storepass",
        PASSWORD,
        "-J-Duser.language=en",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert f"contains {len(authorities)} entries" in done.stdout, done.stdout
    sha256 = hashlib.sha256(authorities[0]).hexdigest().upper()
    assert ":".join(sha256[i : i + 2] for i in range(0, 64, 2)) in done.stdout
