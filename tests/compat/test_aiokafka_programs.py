"""Programs that use aiokafka run on ``aioprod.compat.aiokafka`` with the same outcome."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

from aioprod.testing import EmbeddedCluster

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parents[2]
PACKAGES = {
    "faststream": ["faststream[kafka]"],
    "kstreams": ["kstreams"],
    # Its default assignor is kafka-python's: with 2.3 and 3 it fails with aiokafka.
    "taskiq": ["taskiq-aio-kafka", "kafka-python==2.2.21"],
    "opentelemetry": ["aiokafka", "opentelemetry-instrumentation-aiokafka", "opentelemetry-sdk"],
}


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the programs' packages."""
    home = tmp_path_factory.mktemp("programs") / "venv"
    venv.create(home, with_pip=True)
    python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packages = sorted({package for listed in PACKAGES.values() for package in listed})
    subprocess.run(
        [python, "-m", "pip", "install", "-q", *packages, *project["dependencies"]],
        check=True,
        timeout=600,
    )
    return python


def seen_by(client: str, program: str, python: Path, *packages: Path) -> object:
    """Run a program with its own broker, and return what it prints."""
    with EmbeddedCluster.in_thread() as broker:
        done = subprocess.run(
            [python, PROGRAMS / f"{program}_program.py", client, broker.bootstrap_servers],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*packages, ROOT)))},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    print(done.stderr, file=sys.stderr)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.interop
@pytest.mark.timeout(900)
@pytest.mark.parametrize("program", PACKAGES)
def test_a_program_has_the_same_outcome(program: str, environment: Path) -> None:
    theirs = seen_by("aiokafka", program, environment)
    assert seen_by("aioprod", program, environment) == theirs


@pytest.mark.interop
@pytest.mark.timeout(900)
def test_a_test_of_faststream_has_the_broker_in_its_event_loop(environment: Path) -> None:
    assert seen_by("aioprod", "faststream_testing", environment) == [["20", "30", "40"], 3]


@pytest.mark.interop
@pytest.mark.timeout(900)
def test_taskiq_runs_with_kafka_python_3(environment: Path, tmp_path: Path) -> None:
    """Its partitioners are objects with a method, and its assignors get other arguments."""
    subprocess.run(
        [environment, "-m", "pip", "install", "-q", "--target", tmp_path, "kafka-python>=3"],
        check=True,
        timeout=600,
    )
    theirs = seen_by("aiokafka", "taskiq", environment)  # with kafka-python 2.2
    assert seen_by("aioprod", "taskiq", environment, tmp_path) == theirs
