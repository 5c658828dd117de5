"""The project that `aioprod pipeline new` writes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import aioprod
from aioprod import cli
from aioprod.demo.spark_cluster import spark_environment
from aioprod.testing import EmbeddedCluster

from .source_topics import send

ROOT = Path(aioprod.__file__).parent.parent
TEMPLATE = ROOT / "aioprod" / "spark" / "template"
EVENT = '{"id": "1", "item": "tea", "price": 4.50, "at": "2026-01-31T%sZ"}'


def new(directory: Path, *arguments: str) -> int:
    try:
        return cli.main(["pipeline", "new", "--in", str(directory), *arguments])
    except SystemExit as ended:
        return int(str(ended.code))


def files_of(directory: Path) -> list[str]:
    return sorted(
        path.relative_to(directory).as_posix()
        for path in directory.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    )


def test_the_project_has_its_own_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert new(tmp_path, "orders-by-hour") == 0
    project = tmp_path / "orders-by-hour"
    output = capsys.readouterr().out
    assert f"next: cd {project}" in output
    assert files_of(project) == [
        path.replace("my_pipeline", "orders_by_hour") for path in files_of(TEMPLATE)
    ]
    for name in files_of(project):
        text = (project / name).read_text(encoding="utf-8")
        assert f"wrote {project / name}" in output
        assert "my_pipeline" not in text and "my-pipeline" not in text
        if name.endswith(".py"):
            compile(text, name, "exec")
    settings = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["project"]["name"] == "orders-by-hour"
    assert settings["project"]["scripts"] == {"orders-by-hour": "orders_by_hour.job:main"}


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "orders").mkdir()
    assert new(tmp_path, "orders") == 1
    assert f"can't write {tmp_path / 'orders'}: File exists" in capsys.readouterr().err
    assert files_of(tmp_path) == []
    assert new(tmp_path / "none", "orders") == 1
    assert "No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name",
    [
        "Orders",
        "1st",
        "a.b",
        "../x",
        "a b",
        "",
        "a-",
        "json",
        "class",
        "aioprod",
        "tests",
        "pyspark-x",
    ],
)
def test_names_that_python_or_spark_would_mistake_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert new(tmp_path, name) == 2
    assert repr(name) in capsys.readouterr().err
    assert files_of(tmp_path) == []


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_its_tests_pass_as_they_are(tmp_path: Path) -> None:
    """In a process of its own, with a Spark session of its own."""
    assert new(tmp_path, "orders-by-hour") == 0
    paths = [str(ROOT), str(ROOT / "aioprod" / "spark" / "registration")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"],
        cwd=tmp_path / "orders-by-hour",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_its_lines_for_spark_submit_run_the_job(tmp_path: Path) -> None:
    """On this machine; the package of the project is found, and so is aioprod."""
    assert new(tmp_path, "orders-by-hour") == 0
    project = tmp_path / "orders-by-hour"
    readme = (project / "README.md").read_text(encoding="utf-8")
    (lines,) = [
        block for block in re.findall(r"```sh\n(.*?)```", readme, re.DOTALL) if "submit" in block
    ]
    python = os.pathsep.join([str(ROOT), str(ROOT / "aioprod" / "spark" / "registration")])
    environment = {
        **spark_environment(),
        "PYTHONPATH": python,
        "PYSPARK_PYTHON": sys.executable,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    with EmbeddedCluster.in_thread() as broker:
        broker.create_topic("orders-by-hour", 2)
        for value in (EVENT % "10:00:10", EVENT % "11:00:00", "no event"):
            send(broker.bootstrap_servers, "orders-by-hour", value=[value.encode()])
        for given, used in (
            ("spark://HOST:7077", "local[2]"),
            ("HOST:9092", broker.bootstrap_servers),
            ("DIRECTORY", str(tmp_path / "checkpoint")),
        ):
            assert given in lines
            lines = lines.replace(given, used)
        done = subprocess.run(
            ["bash", "-euc", lines],
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            timeout=380,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        totals = broker.records("orders-by-hour.totals", committed_only=True)
        letters = broker.records("orders-by-hour.dead-letters", committed_only=True)
    assert [json.loads(record.value or b"")["sales"] for record in totals] == [1]
    assert [record.value for record in letters] == [b"no event"]
