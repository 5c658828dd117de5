"""docs/aiokafka-tests.md: which of aiokafka's own tests fail on the layer, and why."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testing.doc_blocks import DOCS, table_rows

PAGE = (DOCS / "aiokafka-tests.md").read_text()
ROOT = DOCS.parent
MODULES = (
    "consumer",
    "producer",
    "transactional_consumer",
    "transactional_producer",
    "admin",
    "pep492",
)
ALL = 133
FAIL_WITH_BOTH = {"test_ssl_consume", "test_producer_ssl"}


def listed() -> dict[str, str]:
    """The tests of the page with their reasons, as ``module::test``."""
    rows = [row for row in table_rows(PAGE) if row[0].startswith("`")]
    found = {f"{row[0].strip('`')}::{row[1].strip('`')}": row[2] for row in rows}
    assert len(found) == len(rows)
    return found


def test_the_page_counts_its_tests() -> None:
    failing = set(listed())
    both = {each for each in failing if each.partition("::")[2] in FAIL_WITH_BOTH}
    assert all(listed().values())
    assert len(both) == len(FAIL_WITH_BOTH)
    alone = len(failing - both)
    private = [
        reason
        for name, reason in listed().items()
        if name not in both and re.match("(reads|replaces|counts) ", reason)
    ]
    assert f"aiokafka passes {ALL - len(both)} of the {ALL}" in " ".join(PAGE.split())
    assert f"the layer {ALL - len(failing)}." in " ".join(PAGE.split())
    assert f"{alone} more fail with the layer: {len(private)} of them" in " ".join(PAGE.split())
    summary = " ".join((DOCS / "aiokafka.md").read_text().split())
    assert f"passes {ALL - len(failing)} of the {ALL} tests" in summary
    assert f"The {alone} tests by name" in summary


@pytest.mark.interop
@pytest.mark.timeout(1_800)
@pytest.mark.skipif(
    "AIOKAFKA_SOURCE" not in os.environ, reason="AIOKAFKA_SOURCE names no checkout of aiokafka"
)
@pytest.mark.parametrize("client", ["aiokafka", "aioprod"])
def test_the_page_lists_what_fails(client: str, tmp_path: Path) -> None:
    (tmp_path / "tests").symlink_to(Path(os.environ["AIOKAFKA_SOURCE"]).resolve() / "tests")
    plugin = ROOT / "tests" / "compat" / "programs"
    options = "-c /dev/null -p aiokafka_suite --noconftest -q -rf --tb=no --timeout=100 -W ignore"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options.split(), f"--rootdir={tmp_path}"]
        + [f"tests/test_{module}.py" for module in MODULES],
        cwd=tmp_path,
        env={
            **os.environ,
            "AIOKAFKA_TESTS_CLIENT": client,
            "PYTHONPATH": os.pathsep.join(map(str, (tmp_path, ROOT, plugin))),
        },
        capture_output=True,
        text=True,
        timeout=1_500,
        check=False,
    )
    print(done.stdout, done.stderr)
    failed = {
        f"{module}::{name}"
        for module, name in re.findall(r"^FAILED tests/(\w+\.py)::\w+::(\w+)", done.stdout, re.M)
    }
    expected = set(listed())
    if client == "aiokafka":
        expected = {each for each in expected if each.partition("::")[2] in FAIL_WITH_BOTH}
    assert failed == expected
    assert f"{ALL - len(expected)} passed" in done.stdout
