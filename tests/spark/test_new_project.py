"""The project that `aioprod pipeline new` writes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from contextlib import ExitStack
from pathlib import Path

import pytest

import aioprod
from aioprod import cli
from aioprod.cli.pipeline import FORMATS, SINKS
from aioprod.demo.spark_cluster import SparkCluster, bare_python, spark_environment
from aioprod.testing import EmbeddedCluster
from tests.waiting import programs_per_core

from .other_pyspark import INSTALL_TIMEOUT_S, pyspark_environment
from .source_topics import send
from .yarn_cluster import YarnCluster

ROOT = Path(aioprod.__file__).parent.parent
TEMPLATE = ROOT / "aioprod" / "spark" / "template"
PYSPARK = {"delta": "4.2.1", "iceberg": "4.1.4"}
EVENT = '{"id": "%s", "item": "tea", "price": 4.50, "at": "2026-01-31T%sZ"}'


def new(directory: Path, *arguments: str) -> int:
    try:
        return cli.main(["pipeline", "new", "--in", str(directory), *arguments])
    except SystemExit as ended:
        return int(str(ended.code))


def logs_in(directory: Path) -> str:
    """Return what the processes of a cluster have printed."""
    files = [each for name in ("stdout", "stderr", "*.log") for each in directory.rglob(name)]
    return "\n".join(f"{each}:\n{each.read_text(errors='replace')}" for each in files)


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
    package = [f"orders_by_hour/{name}.py" for name in ("__init__", "job", "schema", "sink")]
    tests = ("__init__", "conftest", "events", "outputs", "test_job", "test_sink")
    assert files_of(project) == [
        *(".github/workflows/test.yml", ".gitignore", "Dockerfile", "README.md"),
        *package,
        *(f"orders_by_hour/tests/{name}.py" for name in tests),
        "pyproject.toml",
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


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("form", FORMATS)
def test_only_the_parts_of_its_sink_and_format_are_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sink: str, form: str
) -> None:
    assert new(tmp_path, "orders", "--sink", sink, "--format", form) == 0
    needed = re.findall(r"needs PySpark (\S+),", capsys.readouterr().out)
    project = tmp_path / "orders"
    names = {path.name for path in (project / "orders").rglob("*.py")}
    kept = {"job.py", "sink.py", "schema.py", "events.py", "outputs.py", "test_job.py"}
    assert names == kept | {"__init__.py", "conftest.py"} | (
        {"test_sink.py"} if sink == "kafka" else set()
    )
    text = {name: (project / name).read_text(encoding="utf-8") for name in files_of(project)}
    others = {*SINKS, *FORMATS} - {sink, form}
    for name, each in text.items():
        assert "<!--" not in each and "# if" not in each and "# end" not in each, name
        assert not re.search(rf"(sink|outputs|schema|events)_({'|'.join(others)})\b", each), name
        if name.endswith(".py"):
            compile(each, name, "exec")
    settings = tomllib.loads(text["pyproject.toml"])["project"]["dependencies"]
    assert ("aioprod[schema-registry]" in settings) == (form == "avro")
    pins = [each.removeprefix("pyspark==").removesuffix(".*") for each in settings[1:]]
    assert (
        needed
        == [pin for pin in pins if pin[0] == "4"]
        == [version.rpartition(".")[0] for name, version in PYSPARK.items() if name == sink]
    )
    kind = "aioprod" if sink == "kafka" else sink
    assert f'writeStream.format("{kind}")' in text["orders/sink.py"]
    assert f'"value.format": "{"avro" if form == "avro" else "json"}"' in text["orders/schema.py"]


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("a", ()),
        ("orders-by-hour", ()),
        ("orders", ("--sink", "parquet", "--format", "avro")),
        ("orders", ("--sink", "delta", "--format", "debezium")),
        ("orders", ("--sink", "iceberg")),
    ],
    ids=["a", "orders-by-hour", "parquet-avro", "delta-debezium", "iceberg"],
)
def test_its_lint_passes(tmp_path: Path, name: str, chosen: tuple[str, ...]) -> None:
    assert new(tmp_path, name, *chosen) == 0
    workflow = (tmp_path / name / ".github" / "workflows" / "test.yml").read_text()
    readme = (tmp_path / name / "README.md").read_text()
    lint, test = re.findall(r"run: python (-m (?:ruff|pytest).*)", workflow)
    assert f"{lint} && python {test}" in readme
    done = subprocess.run(
        [sys.executable, *lint.split(), "--no-cache"],
        cwd=tmp_path / name,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


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


def run_tests(project: Path, *arguments: str, **environment: str) -> str:
    """Run the project's tests in a process of its own, with a Spark session of its own."""
    paths = [str(ROOT), str(ROOT / "aioprod" / "spark" / "registration")]
    if given := environment.get("PYTHONPATH"):
        paths.insert(0, given)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *arguments],
        cwd=project,
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=380 * programs_per_core(),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.spark
@pytest.mark.usefixtures("quick_python")
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("chosen", "passed"),
    [
        ("minutes or dead_letters or twice", 3),
        pytest.param("test", 7, marks=pytest.mark.interop, id="all"),
    ],
)
def test_its_tests_pass_as_they_are(tmp_path: Path, chosen: str, passed: int) -> None:
    assert new(tmp_path, "orders-by-hour") == 0
    assert f"{passed} passed" in run_tests(tmp_path / "orders-by-hour", "-k", chosen)


@pytest.mark.interop
@pytest.mark.spark
@pytest.mark.usefixtures("quick_python")
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("sink", "form"), [("kafka", "avro"), ("kafka", "debezium"), ("parquet", "json")]
)
def test_the_tests_of_other_sinks_and_formats_pass(tmp_path: Path, sink: str, form: str) -> None:
    assert new(tmp_path, "orders", "--sink", sink, "--format", form) == 0
    assert f"{7 if sink == 'kafka' else 6} passed" in run_tests(tmp_path / "orders")


@pytest.mark.interop
@pytest.mark.spark
@pytest.mark.timeout(INSTALL_TIMEOUT_S + 400)
@pytest.mark.parametrize(("sink", "form"), [("delta", "avro"), ("iceberg", "json")])
def test_the_tests_of_tables_pass_with_their_pyspark(tmp_path: Path, sink: str, form: str) -> None:
    environment = pyspark_environment(PYSPARK[sink])
    assert new(tmp_path, "orders", "--sink", sink, "--format", form) == 0
    path = environment["PYTHONPATH"]
    assert "6 passed" in run_tests(tmp_path / "orders", PYTHONPATH=path, SPARK_HOME="")


def submitting(where: str, directory: Path, stack: ExitStack) -> tuple[str, dict[str, str]]:
    """Return the master, and the environment of `spark-submit`. Executors, in processes of their
    own, have a Python without aioprod and the project.
    """
    path = os.environ["PATH"]
    here = os.pathsep.join([str(Path(sys.executable).parent), path])
    python = os.pathsep.join([str(ROOT), str(ROOT / "aioprod" / "spark" / "registration")])
    if where == "local[2]":
        return where, {**spark_environment(), "PATH": here, "PYTHONPATH": python}
    there = os.pathsep.join([str(bare_python(directory / "python").parent), path])
    patch = stack.enter_context(pytest.MonkeyPatch.context())
    if where == "standalone":
        patch.setenv("PATH", there)
        cluster = stack.enter_context(SparkCluster(directory / "cluster"))
        return cluster.master_url, {**spark_environment(), "PATH": here, "PYTHONPATH": python}
    patch.delenv("SPARK_HOME")  # YARN distributes the zip files that the quick one lacks
    yarn = stack.enter_context(YarnCluster(directory / "yarn")).environment(there)
    # As docs/spark-deploy.md says.
    return where, {**spark_environment(), **yarn, "PATH": here, "PYTHONPATH": "packages"}


@pytest.mark.interop  # takes 60 s; tests/demo/test_demo_cluster.py submits in the same way
@pytest.mark.spark
@pytest.mark.usefixtures("quick_python")
@pytest.mark.timeout(500)
@pytest.mark.parametrize("where", ["local[2]", "standalone", "yarn --deploy-mode cluster"])
def test_its_lines_for_spark_submit_run_the_job(tmp_path: Path, where: str) -> None:
    """The package of the project is found, and so is aioprod."""
    assert new(tmp_path, "orders-by-hour") == 0
    project = tmp_path / "orders-by-hour"
    readme = (project / "README.md").read_text(encoding="utf-8")
    (lines,) = [
        block for block in re.findall(r"```sh\n(.*?)```", readme, re.DOTALL) if "submit" in block
    ]
    with ExitStack() as stack:
        broker = stack.enter_context(EmbeddedCluster.in_thread())
        master, environment = submitting(where, tmp_path, stack)
        broker.create_topic("orders-by-hour", 2)
        for value in (EVENT % ("1", "10:00:10"), EVENT % ("2", "11:00:00"), "no event"):
            send(broker.bootstrap_servers, "orders-by-hour", value=[value.encode()])
        for given, used in (
            ("spark://HOST:7077", f"{master} --conf spark.sql.shuffle.partitions=2"),
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
            timeout=480 * programs_per_core(),
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr + logs_in(tmp_path)
        totals = broker.records("orders-by-hour.totals", committed_only=True)
        letters = broker.records("orders-by-hour.dead-letters", committed_only=True)
    assert [json.loads(record.value or b"")["sales"] for record in totals] == [1]
    assert [record.value for record in letters] == [b"no event"]
