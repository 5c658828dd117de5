"""A pytest that is stopped, in any way, leaves no process and no data of a broker."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import orphans
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent
LIMIT_S = 60
pytestmark = [
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the guard needs Linux"),
    pytest.mark.timeout(300),
]
# Tests that start processes: directly, by a shell, in a session of their own, and deaf to signals.
STARTING = """
import os, signal, subprocess, sys, time
from pathlib import Path

import pytest

SLEEP = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"


@pytest.fixture(scope="session")
def server():
    with subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("number", [1, 2])
def test_waits(server, number):
    shell = subprocess.Popen(["sh", "-c", "sleep 1000 & sleep 1000"])
    Path(f"ready-{number}").write_text(str(os.getpid()))
    time.sleep(1000)
"""
WITH_KAFKA = """
import os, signal
from pathlib import Path


def test_waits(kafka, request):
    Path("ready-1").write_text(str(os.getpid()))
    signal.pause()
"""


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> str:
    until = time.monotonic() + LIMIT_S
    while not (path.exists() and (text := path.read_text())):
        assert process.poll() is None and time.monotonic() < until, path.name
        time.sleep(0.05)
    return text


def descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            yield child
            yield from descendants(child)


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def started_pytest(directory: Path, tests: str, *options: str) -> subprocess.Popen[bytes]:
    """Start pytest with the fixtures of `tests/conftest.py`."""
    shutil.copy(ROOT / "tests" / "conftest.py", directory)
    (directory / "test_it.py").write_text(tests)
    (directory / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    with (directory / "output").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(directory)},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def stop_and_look(
    directory: Path,
    tests: str,
    stop: signal.Signals,
    *options: str,
    workers: int = 0,
    of_worker: bool = False,
) -> None:
    """Stop pytest, or one of its workers and then pytest, and look for what is left."""
    with started_pytest(directory, tests, *options) as process:
        pids = [
            wait_for(directory / f"ready-{number}", process)
            for number in range(1, max(workers, 1) + 1)
        ]
        started = [process.pid, *descendants(process.pid)]
        assert len(started) >= 3
        if of_worker:
            worker = int(pids[0])
            its_own = [worker, *descendants(worker)]
            os.kill(worker, stop)
            wait_for_the_end(its_own)
        process.send_signal(stop)
        process.wait(LIMIT_S)
    wait_for_the_end(started)


def wait_for_the_end(pids: list[int]) -> None:
    until = time.monotonic() + LIMIT_S
    while left := [pid for pid in pids if is_running(pid)]:
        if time.monotonic() > until:
            commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in left]
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            pytest.fail(f"left: {commands}")
        time.sleep(0.05)


def test_a_killed_pytest_leaves_nothing(tmp_path: Path) -> None:
    """The controller is killed; its two workers are within a test."""
    stop_and_look(tmp_path, STARTING, signal.SIGKILL, "-n", "2", workers=2)


@pytest.mark.faults
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_pytest_leaves_nothing(
    tmp_path: Path, stop: signal.Signals, workers: int
) -> None:
    stop_and_look(tmp_path, STARTING, stop, "-n", str(workers), workers=workers)


@pytest.mark.faults
def test_a_killed_worker_leaves_nothing(tmp_path: Path) -> None:
    stop_and_look(tmp_path, STARTING, signal.SIGKILL, "-n", "2", workers=2, of_worker=True)


@pytest.mark.kafka
@pytest.mark.parametrize(
    "stop",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGINT, marks=pytest.mark.faults),
        pytest.param(signal.SIGTERM, marks=pytest.mark.faults),
    ],
)
def test_a_real_broker_and_its_data_end_too(tmp_path: Path, stop: signal.Signals) -> None:
    stop_and_look(tmp_path, WITH_KAFKA, stop, "-m", "kafka")
    assert list(tmp_path.glob("aioprod-kafka-*")) == []


@pytest.mark.faults
@pytest.mark.parametrize("tenths", range(0, 60, 6))
def test_a_broker_ends_whenever_pytest_does(tmp_path: Path, tenths: int) -> None:
    """While modules are imported, the broker starts, or a test runs."""
    process = started_pytest(tmp_path, WITH_KAFKA, "-m", "kafka")
    with process:
        time.sleep(tenths / 10)
        started = [process.pid, *descendants(process.pid)]
        process.kill()
    wait_for_the_end(started)
    assert list(tmp_path.glob("aioprod-kafka-*")) == []


def test_processes_are_found_by_their_token() -> None:
    token = f"some token of {os.getpid()}"
    assert orphans.processes_of(token) == []
    environment = {**os.environ, orphans.VARIABLE: token}
    with subprocess.Popen(["sleep", "1000"], env=environment) as process:
        try:
            wait_until(lambda: orphans.processes_of(token) == [process.pid])
            orphans.end_all(token)
            assert process.wait(LIMIT_S) == -signal.SIGKILL
        finally:
            process.kill()


def test_a_process_is_found_whose_environment_was_empty_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program has just replaced another in that process (execve)."""
    found = iter([[], [17], [], [17], [], []])
    killed: list[int] = []
    monkeypatch.setattr(orphans, "processes_of", lambda token: next(found))
    monkeypatch.setattr(orphans, "_GRACE_S", 0.0)
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append(pid))
    orphans.end_all("token")
    assert killed == [17, 17]
    assert next(found, None) is None
