"""docs/compatibility.md says what the workflows of CI run, and nothing else."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

from aioprod.testing.jars import KAFKA_VERSIONS
from tests import loops
from tests.selection import ON_DEMAND
from tests.strangers.releases import RELEASES
from tests.testing.doc_blocks import DOCS, table_rows

ROOT = DOCS.parent
WORKFLOWS = ROOT / ".github" / "workflows"
PAGE = (DOCS / "compatibility.md").read_text(encoding="utf-8")
SYSTEMS = {"ubuntu-latest": "Linux", "macos-latest": "macOS", "windows-latest": "Windows"}
#: Jobs that run no tests, or prove nothing about a version.
OTHERS = {"wheels", "coverage", "commits", "fuzz", "interop", "benchmarks", "simulation"}
#: How the table calls the loops of ``pytest --loop``.
LOOPS = {"asyncio": "asyncio", "uvloop": "uvloop", "eager": "eager tasks", "debug": "debug mode"}


def jobs_of(workflow: str) -> dict[str, str]:
    """Return the text of each job of a workflow."""
    text = (WORKFLOWS / workflow).read_text(encoding="utf-8").partition("\njobs:\n")[2]
    parts = re.split(r"^  ([\w-]+):\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def where(job: str) -> set[tuple[str, str]]:
    """Return the versions of Python and the systems that a job runs on."""
    included = {
        (python, SYSTEMS[system])
        for system, python in re.findall(r"\{os: ([\w.-]+), python: \"([\d.t]+)\"\}", job)
    }
    matrix = re.search(r"^ +python: \[(.*?)\]", job, re.MULTILINE)
    pythons = re.findall(r'"([\d.t]+)"', matrix[1]) if matrix else []
    systems = re.findall(r"^ +os: \[(.*?)\]|^    runs-on: ([\w.-]+)$", job, re.MULTILINE)
    names = [name for pair in systems for name in ", ".join(pair).split(", ") if name]
    if not matrix:
        pythons = re.findall(r'python-version: "([\d.t]+)"', job)
    return included | {(python, SYSTEMS[name]) for python in pythons for name in names}


ROWS = [row for row in table_rows(PAGE.partition("\n## ")[0]) if re.match(r"\d", row[0])]
JOBS = {
    (when, name): text
    for workflow, when in (("ci.yml", "each change"), ("weekly.yml", "each week"))
    for name, text in jobs_of(workflow).items()
    if name not in OTHERS
}


def job_of(row: list[str]) -> tuple[str, str]:
    found = re.fullmatch(r"(each \w+): `([\w-]+)`", row[5])
    assert found is not None, row
    return found[1], found[2]


def test_each_job_has_its_versions_and_systems_in_the_table() -> None:
    table: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
    for row in ROWS:
        table[job_of(row)] |= {(python, row[1]) for python in row[0].split(", ")}
    assert table == {key: where(text) for key, text in JOBS.items()}


def test_the_page_names_the_releases_of_kafka_that_the_tests_start() -> None:
    named = {
        name: set(re.findall(r"\d+\.\d+\.\d+", row[2])) for row in ROWS for name in job_of(row)
    }
    assert named["all"] == set(KAFKA_VERSIONS)
    assert named["strangers"] == set(RELEASES)
    assert named["faults"] == {KAFKA_VERSIONS[0]}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[5]} {row[1]}")
def test_the_event_loop_is_that_of_the_job(row: list[str]) -> None:
    text = JOBS[job_of(row)]
    script = (ROOT / ".ci" / "run").read_text() if ".ci/run" in text else ""
    chosen = set(re.findall(r"--loop=(\w+)", text + re.sub(r"^#.*$", "", script, flags=re.M)))
    assert chosen <= set(loops.KINDS)
    named = {kind for kind, name in LOOPS.items() if name in row[3]} - {"asyncio"}
    assert named == chosen - {"asyncio"}


def test_the_lowest_python_is_the_one_of_the_project() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lowest = re.search(r'requires-python = ">=([\d.]+)"', project)
    listed = set(re.findall(r"Programming Language :: Python :: (3\.\d+)", project))
    assert lowest is not None and lowest[1] in listed
    assert listed == {python for row in ROWS for python in row[0].split(", ")}
    for page in (ROOT / "README.md", DOCS / "index.md", DOCS / "compatibility.md"):
        assert f"{lowest[1]} or newer" in page.read_text(encoding="utf-8"), page


def test_a_workflow_runs_each_kind_of_test_that_only_runs_on_demand() -> None:
    """A kind that no workflow runs is broken when it is needed."""
    commands = "".join(path.read_text(encoding="utf-8") for path in WORKFLOWS.glob("*.yml"))
    run = re.findall(r"run: python -m pytest.* -m (\w+)(?: tests/\S+)?$", commands, re.MULTILINE)
    assert sorted(run) == sorted(ON_DEMAND)


def test_no_job_is_left_out_of_the_table_that_does_not_exist() -> None:
    written = {name for path in WORKFLOWS.glob("*.yml") for name in jobs_of(path.name)}
    assert written >= OTHERS


def test_workflows_fuzz_each_target() -> None:
    (listed,) = re.findall(r"target: \[(.*)\]", (WORKFLOWS / "weekly.yml").read_text())
    assert listed.split(", ") == [
        path.stem.removeprefix("fuzz_") for path in sorted(Path(ROOT, "fuzz").glob("fuzz_*.py"))
    ]


def test_each_action_is_pinned_by_its_digest() -> None:
    """A tag can be moved to other code."""
    uses = [
        (path.name, line)
        for path in WORKFLOWS.glob("*.yml")
        for line in re.findall(r"uses: (.*)", path.read_text())
    ]
    assert len(uses) > 30
    loose = [each for each in uses if not re.fullmatch(r"\S+@[0-9a-f]{40}  # v[\d.]+", each[1])]
    assert loose == []


def test_the_paths_of_the_code_owners_exist() -> None:
    lines = (ROOT / ".github" / "CODEOWNERS").read_text(encoding="utf-8").splitlines()
    paths = [line.split()[0] for line in lines if line.startswith("/")]
    assert len(paths) > 5
    assert [path for path in paths if not (ROOT / path.strip("/")).exists()] == []


def test_the_page_names_each_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {re.split(r"[><=;]", each)[0] for each in project["dependencies"]}
    rows = table_rows(PAGE.partition("## What is installed with it")[2])
    assert {row[0] for row in rows[2:]} == needed
