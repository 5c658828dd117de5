"""The tests on the pages about testing, and those of the README that use fixtures, pass as they
are.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import aioprod

pytest_plugins = ("pytester",)

ROOT = Path(aioprod.__file__).parents[1]


def python_blocks(document: str) -> list[str]:
    return re.findall(
        r"^```python\n(.*?)^```$", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL
    )


# The example of an application is in examples/ with its tests, that of real nodes in tests/faults.
BLOCKS = [
    block
    for page in ("docs/testing.md", "docs/embedded-broker.md")
    for block in python_blocks(page)
    if not re.search("fastapi_app|RealCluster", block)
]
BLOCKS += [block for block in python_blocks("README.md") if "kafka_topic" in block]


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_the_tests_in_the_documents_pass(pytester: pytest.Pytester, mode: str) -> None:
    """Blocks with anyio's marker need pytest-asyncio's strict mode, blocks without a marker its
    auto mode.
    """
    blocks = [block for block in BLOCKS if ("mark.anyio" in block) == (mode == "strict")]
    tests = re.findall(r"^(?:async )?def (test_\w+)", "\n".join(blocks), re.MULTILINE)
    assert tests
    pytester.makeini(
        f"[pytest]\nasyncio_mode = {mode}\nasyncio_default_fixture_loop_scope = function\n"
        "filterwarnings = error"
    )
    pytester.makepyfile(**{f"test_block_{number}": block for number, block in enumerate(blocks)})
    result = pytester.runpytest_inprocess(
        "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-v"
    )
    assert set(result.parseoutcomes()) == {"passed"}
    for test in tests:
        result.stdout.fnmatch_lines([f"*::{test}* PASSED*"])


def test_the_tests_that_the_pages_name_are_there() -> None:
    pages = ("testing.md", "embedded-broker.md", "testing-aioprod.md")
    text = "".join((ROOT / "docs" / page).read_text() for page in pages)
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name in re.findall(r"`(test_\w+)`", text) if f"def {name}(" not in tests] == []
    files = re.findall(r"`(\w[\w/]*/[\w/]+\.(?:py|json))`", text)
    assert len(files) > 10
    assert [name for name in files if not (ROOT / name).exists()] == []
