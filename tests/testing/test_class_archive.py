"""Class archives are made once, are used only if complete and correct, and do no harm if they can't
be made.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from aioprod.testing import class_archive as archives
from aioprod.testing.cache import SetupError, cache_dir
from aioprod.testing.class_archive import class_archive
from aioprod.testing.jars import KAFKA_VERSIONS, kafka_jars
from aioprod.testing.java import find_java
from aioprod.testing.kafka_listener import Listener
from aioprod.testing.kafka_process import (
    KafkaProcess,
    free_ports,
    kafka_class_archive,
    new_cluster_id,
    node_settings,
)
from aioprod.testing.real_kafka import RealKafka

OPTIONS = ["-XX:+UseSerialGC"]


def java_home(home: Path, dump: str = 'cp "$list" "$archive"') -> Path:
    """A fake Java that prints its version, and whose archives are copies of the lists."""
    binary, own_classes = home / "bin" / "java", home / "lib" / "modules"
    for path in (binary, own_classes):
        path.parent.mkdir(parents=True)
    own_classes.write_text("the JDK's own classes")
    binary.write_text(f"""#!/bin/sh
for argument in "$@"; do
  case $argument in
    -XX:SharedClassListFile=*) list=${{argument#*=}} ;;
    -XX:SharedArchiveFile=*) archive=${{argument#*=}} ;;
  esac
done
case " $* " in *" -Xshare:dump "*) {dump}; exit ;; esac
echo "    java.home = {home}" >&2
echo "    java.specification.version = 17" >&2
""")
    binary.chmod(0o755)
    return home


class Recorder:
    """Writes its own lists, and counts them."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, classes: Path) -> None:
        self.calls += 1
        classes.write_text(f"list {self.calls}")


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, and no attempts by this process."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(archives, "_attempted", set())
    return cache_dir()


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    made = java_home(tmp_path / "java")
    monkeypatch.setenv("JAVA_HOME", str(made))
    return made


@pytest.fixture
def jars(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "a.jar", tmp_path / "b.jar"]
    for path in paths:
        path.write_text("classes")
    return paths


@pytest.mark.usefixtures("home")
class TestNames:
    """The name of an archive depends on what it is valid for."""

    def test_it_is_made_once(self, cache: Path, jars: list[Path]) -> None:
        recorder = Recorder()
        archive = class_archive("node", jars, OPTIONS, recorder)
        assert archive is not None and archive.read_text() == "list 1"
        assert class_archive("node", jars, OPTIONS, recorder) == archive
        assert recorder.calls == 1
        assert {path.name for path in cache.iterdir()} == {archive.name, "node.jsa.lock"}

    @pytest.mark.parametrize("changed", ["size", "time", "order", "options", "build", "Java"])
    def test_what_it_is_not_good_for_replaces_it(
        self,
        changed: str,
        cache: Path,
        home: Path,
        jars: list[Path],
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        recorder, options = Recorder(), OPTIONS
        old = class_archive("node", jars, options, recorder)
        if changed == "size":
            jars[1].write_text("more classes")
        elif changed == "time":
            os.utime(jars[1], (1, 1))
        elif changed == "order":
            jars.reverse()
        elif changed == "options":
            options = ["-XX:+UseParallelGC"]
        elif changed == "build":
            (home / "lib" / "modules").write_text("of another build")
        else:
            monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "other")))
        new = class_archive("node", jars, options, recorder)
        assert new is not None and new.read_text() == "list 2"
        assert new != old and list(cache.glob("*.jsa")) == [new]

    def test_what_a_killed_process_left_goes(self, cache: Path, jars: list[Path]) -> None:
        (cache / ".node.jsa-1").mkdir()
        (cache / ".node.jsa-1" / "archive").write_text("half")
        archive = class_archive("node", jars, OPTIONS, Recorder())
        assert archive is not None and {path.name for path in cache.iterdir()} == {
            archive.name,
            "node.jsa.lock",
        }

    def test_another_program_has_its_own(self, cache: Path, jars: list[Path]) -> None:
        made = {class_archive(name, jars, OPTIONS, Recorder()) for name in ("node", "tool")}
        assert len(made) == 2 and set(cache.glob("*.jsa")) == made

    def test_one_that_was_damaged_is_not_used_and_the_next_process_makes_it_again(
        self, cache: Path, jars: list[Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        recorder = Recorder()
        archive = class_archive("node", jars, OPTIONS, recorder)
        assert archive is not None
        os.truncate(archive, 4)
        assert class_archive("node", jars, OPTIONS, recorder) is None
        monkeypatch.setattr(archives, "_attempted", set())
        new = class_archive("node", jars, OPTIONS, recorder)
        assert new is not None and new.read_text() == "list 2"
        assert list(cache.glob("*.jsa")) == [new]

    def test_two_at_the_same_time_make_one(self, cache: Path, jars: list[Path]) -> None:
        started, go = threading.Event(), threading.Event()
        recorder = Recorder()

        def slow(classes: Path) -> None:
            started.set()
            assert go.wait(10)
            recorder(classes)

        results: list[Path | None] = []
        threads = [
            threading.Thread(
                target=lambda: results.append(class_archive("node", jars, OPTIONS, slow))
            )
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        assert started.wait(10)
        assert not list(cache.glob("*.jsa"))
        go.set()
        for thread in threads:
            thread.join(10)
        assert recorder.calls == 1
        assert results == list(cache.glob("*.jsa")) * 2


class TestWithout:
    """If an archive can't be made there is one attempt, and no files are left."""

    def attempts(self, cache: Path, jars: list[Path], error: Exception | None = None) -> int:
        class Failing(Recorder):
            def __call__(self, classes: Path) -> None:
                super().__call__(classes)
                if error:
                    raise error

        recorder = Failing()
        for _ in range(2):
            assert class_archive("node", jars, OPTIONS, recorder) is None
        assert {path.name for path in cache.iterdir()} == {"node.jsa.lock"}
        return recorder.calls

    @pytest.mark.usefixtures("home")
    @pytest.mark.parametrize(
        "error",
        [
            SetupError("did not start"),
            TimeoutError("did not end"),
            OSError(28, "No space left on device"),
        ],
    )
    def test_a_program_that_does_not_run(
        self, error: Exception, cache: Path, jars: list[Path]
    ) -> None:
        assert self.attempts(cache, jars, error) == 1

    @pytest.mark.parametrize(
        "dump",
        ["exit 1", "exit 0", 'echo half >"$archive"; kill -9 $$', "exec sleep 60"],
        ids=lambda dump: dump.split()[0],
    )
    def test_a_java_that_cannot(
        self,
        dump: str,
        cache: Path,
        jars: list[Path],
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        monkeypatch.setattr(archives, "_DUMP_TIMEOUT_S", 0.2 if "sleep" in dump else 10)
        monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "unable", dump)))
        assert self.attempts(cache, jars) == 1


@pytest.fixture
def kafka_cache(request: pytest.FixtureRequest) -> Path:
    """A cache that has only Kafka's jars."""
    directory = kafka_jars()[0].parent
    cache: Path = request.getfixturevalue("cache")
    (cache / directory.name).symlink_to(directory)
    return cache


def watched_java(monkeypatch: pytest.MonkeyPatch, home: Path, first: str = "") -> Path:
    """Replace Java by a script that runs a command first. Return the file to which it writes each
    command line of a Kafka program.
    """
    binary, log = home / "bin" / "java", home / "commands"
    binary.parent.mkdir(parents=True)
    binary.write_text(
        f'#!/bin/sh\ncase "$*" in *kafka.*) echo "$*" >>{log};; esac\n{first}\nexec '
        f'{find_java()} "$@"\n'
    )
    binary.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    return log


def new_node(directory: Path, version: str = KAFKA_VERSIONS[0]) -> KafkaProcess:
    directory.mkdir()
    controller_port, port = free_ports(2)
    settings = node_settings(
        1,
        directory,
        voters={1: controller_port},
        ports={"PLAINTEXT": port},
        listeners=[Listener(name="PLAINTEXT")],
    )
    return KafkaProcess(directory, settings, version=version, heap_mb=320, remove=directory)


@pytest.mark.kafka
class TestKafka:
    """With real Java and Kafka."""

    @pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
    def test_all_programs_use_it(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr("aioprod.testing.kafka_process._FORMATTED", {})
        log = watched_java(monkeypatch, tmp_path / "java")
        with RealKafka() as kafka:
            # Made before the first test.
            (archive,) = cache_dir().glob(f"kafka-{KAFKA_VERSIONS[0]}-*.jsa")
            assert str(archive) in Path(f"/proc/{kafka.pid}/maps").read_text()
        commands = log.read_text().splitlines()
        assert ["kafka.tools.StorageTool" in command for command in commands] == [True, False]
        for command in commands:
            assert f"-XX:SharedArchiveFile={archive} " in command and "-Xshare:auto" in command

    def test_the_storage_tool_runs_once_for_nodes_of_a_version(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr("aioprod.testing.kafka_process._FORMATTED", {})
        log = watched_java(monkeypatch, tmp_path / "java")
        made = []
        for name, cluster_id in (("first", new_cluster_id()), ("second", new_cluster_id())):
            new_node(tmp_path / name).prepare(cluster_id, {})
            data = tmp_path / name / "data"
            files = {
                path.relative_to(data): path.read_text("latin-1") for path in data.rglob("*.*")
            }
            identity = files.pop(Path("meta.properties")).splitlines()
            lines = {line.partition("=")[::2] for line in identity if not line.startswith("#")}
            assert {("version", "1"), ("cluster.id", cluster_id), ("node.id", "1")} < lines
            made.append((files, dict(lines)))
        assert log.read_text().count("kafka.tools.StorageTool") == 1
        (one, its_identity), (two, other_identity) = made
        assert one == two and one
        assert its_identity.keys() == other_identity.keys()
        assert its_identity["directory.id"] != other_identity["directory.id"]
        new_node(tmp_path / "third").prepare(new_cluster_id(), {"user": "password"})
        assert log.read_text().count("kafka.tools.StorageTool") == 2

    @pytest.mark.interop
    def test_the_first_broker_makes_it(
        self, kafka_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        log = watched_java(monkeypatch, tmp_path / "java")
        new_node(tmp_path / "node").format(new_cluster_id(), {})
        (archive,) = kafka_cache.glob("*.jsa")
        recording_format, recording, format = log.read_text().splitlines()
        assert "SharedArchiveFile" not in recording_format + recording
        assert "-XX:DumpLoadedClassList=" in recording
        assert f"-XX:SharedArchiveFile={archive} " in format
        assert {path.name for path in kafka_cache.iterdir()} == {
            f"kafka-{KAFKA_VERSIONS[0]}",
            archive.name,
            f"kafka-{KAFKA_VERSIONS[0]}.jsa.lock",
        }

    @pytest.mark.interop
    def test_a_java_that_makes_no_list_does_no_harm(
        self, kafka_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        log = watched_java(
            monkeypatch, tmp_path / "java", 'case "$*" in *DumpLoadedClassList*) exit 1;; esac'
        )
        new_node(tmp_path / "node").format(new_cluster_id(), {})
        assert (tmp_path / "node" / "data" / "meta.properties").exists()
        commands = log.read_text().splitlines()
        assert ["DumpLoadedClassList" in command for command in commands] == [False, True, False]
        assert "SharedArchiveFile" not in "".join(commands)

    @pytest.mark.interop
    @pytest.mark.parametrize("archive", ["foreign", "absent"])
    def test_one_that_java_does_not_take_does_no_harm(
        self, archive: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        given = (
            kafka_class_archive(KAFKA_VERSIONS[0], kafka_jars())
            if archive == "foreign"
            else tmp_path / "absent.jsa"
        )
        assert given is not None
        monkeypatch.setattr("aioprod.testing.kafka_process.kafka_class_archive", lambda *_: given)
        log = watched_java(monkeypatch, tmp_path / "java")
        new_node(tmp_path / "node", "3.9.2").format(new_cluster_id(), {})
        assert (tmp_path / "node" / "data" / "meta.properties").exists()
        assert f"-XX:SharedArchiveFile={given} " in log.read_text()
