"""The command line as a function, and as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

import pytest

from aioprod import cli
from aioprod.testing import ThreadedCluster

LIMIT_S = 60


class Ended(NamedTuple):
    """The exit status of a command, and its output."""

    status: int
    output: str
    errors: str


Run = Callable[..., Ended]


@pytest.fixture(autouse=True)
def config_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of profiles: not that of the user who runs the tests."""
    for variable in ("AIOPROD_BOOTSTRAP_SERVERS", "AIOPROD_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    home = tmp_path / "config"
    monkeypatch.setenv("APPDATA" if os.name == "nt" else "XDG_CONFIG_HOME", str(home))
    return home / "aioprod"


@pytest.fixture
def run(
    threaded_broker: ThreadedCluster,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Runs a command in this process, for the embedded broker unless another is given, with bytes
    on its standard input if any are given.
    """

    def call(*arguments: str, given: bytes | None = None) -> Ended:
        where = (
            ()
            if "-b" in arguments or "--config-file" in arguments
            else ("-b", threaded_broker.bootstrap_servers)
        )
        with monkeypatch.context() as patch, TemporaryFile() as file:
            if given is not None:
                file.write(given)
                file.seek(0)
                patch.setattr(sys, "stdin", TextIOWrapper(file))
            try:
                status = cli.main([*arguments, *where])
            except SystemExit as ended:
                status = int(str(ended.code))
        output, errors = capfd.readouterr()
        return Ended(status, output, errors)

    return call


@pytest.fixture
def run_process(threaded_broker: ThreadedCluster) -> Run:
    """Runs a command as a process, with bytes on its standard input. A process costs ten times the
    CPU of ``run``: use it where the process itself is tested.
    """

    def call(*arguments: str, given: bytes = b"") -> Ended:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "aioprod",
                *arguments,
                "-b",
                threaded_broker.bootstrap_servers,
            ],
            input=given,
            capture_output=True,
            timeout=LIMIT_S,
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
            check=False,
        )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call
