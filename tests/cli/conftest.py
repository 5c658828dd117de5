"""The command line as a function, and as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from aioprod import cli
from aioprod.testing import ThreadedCluster

LIMIT_S = 60


class Ended(NamedTuple):
    """How a command ended, and what it printed."""

    status: int
    output: str
    errors: str


Run = Callable[..., Ended]


@pytest.fixture
def run(threaded_broker: ThreadedCluster, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process, for the embedded broker unless it is told of another."""

    def call(*arguments: str) -> Ended:
        where = (
            ()
            if "-b" in arguments or "--config-file" in arguments
            else ("-b", threaded_broker.bootstrap_servers)
        )
        try:
            status = cli.main([*arguments, *where])
        except SystemExit as ended:
            status = int(str(ended.code))
        output, errors = capfd.readouterr()
        return Ended(status, output, errors)

    return call


@pytest.fixture
def run_process(threaded_broker: ThreadedCluster) -> Run:
    """Runs a command as a process, with something on its standard input."""

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
