"""The programs in README.md run unchanged."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import re
import subprocess
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from aioprod import Producer, TopicPartition
from aioprod.testing import EmbeddedCluster, ThreadedCluster
from tests import selection
from tests.selection import needs_posix
from tests.testing import doc_blocks
from tests.testing.doc_blocks import python_blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
_TOP_LEVEL_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
README = (ROOT / "README.md").read_text()


def run_block(containing: str, bootstrap_servers: str = "") -> dict[str, Any]:
    """Run the one Python block of the README that contains a text, with another broker's address in
    it.
    """
    return doc_blocks.run_block("README.md", README, containing, bootstrap_servers)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_python_blocks_compile(document: Path) -> None:
    for number, block in enumerate(python_blocks(document.read_text()), 1):
        compile(block, f"{document.name} block {number}", "exec", flags=_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text())
    assert [target for target in targets if not (document.parent / target).exists()] == []


def test_the_files_that_contributing_names_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    paths = re.findall(r"`((?:aioprod|tests|docs)/[\w/.]+|\.ci/run)`", text)
    assert len(paths) > 20
    missing = [path for path in paths if "NAME" not in path and not (ROOT / path).exists()]
    assert missing == []
    rules = text[text.index("## Where things go") :]
    for name in re.findall(r"`(_?[A-Z_]{5,}|\w+(?:Config|Settings))`", rules):
        sources = [ROOT / path for path in paths if path.endswith(".py") and "NAME" not in path]
        assert any(re.search(rf"\b{name}\b", source.read_text()) for source in sources), name


async def test_the_fastapi_application_sends(broker: EmbeddedCluster) -> None:
    app = run_block("FastAPI(lifespan", broker.bootstrap_servers)["app"]
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as client,
    ):
        response = await client.post("/orders/17", content=b"two apples")
    assert response.json() == {"partition": 0, "offset": 0}
    assert [(record.key, record.value) for record in broker.records("orders")] == [
        (b"17", b"two apples")
    ]


async def test_the_transaction_is_committed(broker: EmbeddedCluster) -> None:
    (source,) = [block for block in python_blocks(README) if "producer.transaction()" in block]
    code = compile(
        source.replace("localhost:9092", broker.bootstrap_servers),
        "README.md",
        "exec",
        flags=_TOP_LEVEL_AWAIT,
    )
    broker.create_topic("orders")
    await eval(code, {})
    assert [
        len(broker.records(topic, committed_only=True)) for topic in ("payments", "shipments")
    ] == [1, 1]
    assert broker.committed_offsets("order-service") == {TopicPartition("orders", 0): 42}


async def test_what_the_consumer_prints(
    broker: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    (source,) = [
        block for block in python_blocks(README) if "async for record in consumer" in block
    ]
    source = source.replace("localhost:9092", broker.bootstrap_servers)
    code = compile(f"{source.rstrip()}\n        break", "README.md", "exec", flags=_TOP_LEVEL_AWAIT)
    async with Producer(broker.bootstrap_servers) as producer:
        await producer.send_and_wait("orders", b"two apples", key=b"17")
    await eval(code, {})
    assert capsys.readouterr().out == "0 0 b'17' b'two apples'\n"
    assert broker.committed_offsets("billing") == {TopicPartition("orders", 0): 1}


async def test_the_admin_client_makes_a_topic_and_finds_the_group(
    broker: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    (source,) = [block for block in python_blocks(README) if "import Admin" in block]
    code = compile(
        source.replace("localhost:9092", broker.bootstrap_servers),
        "README.md",
        "exec",
        flags=_TOP_LEVEL_AWAIT,
    )
    broker.set_group_members("billing", 1, {"a": None})
    await eval(code, {})
    assert len(broker.topics["invoices"].partitions) == 6
    assert capsys.readouterr().out == "Stable [frozenset()]\n"


def test_the_script_sends(threaded_broker: ThreadedCluster) -> None:
    run_block("uvloop.run(main())", threaded_broker.bootstrap_servers)
    assert [record.value for record in threaded_broker.records("readings")] == [
        str(number).encode() for number in range(1000)
    ]


class _Printed(Exception):
    """The endless loop of the consumer has printed a record."""


def test_the_python_blocks_run_from_top_to_bottom(
    threaded_broker: ThreadedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one session against one broker. The block with Spark has a test of its own."""
    printed: list[str] = []

    def show(*values: object) -> None:
        printed.append(" ".join(map(str, values)))
        if "async for" in source:
            raise _Printed

    monkeypatch.setattr("builtins.print", show)
    names: dict[str, Any] = {"__name__": "__main__"}
    for source in python_blocks(README):
        if "spark_session_builder" in source:
            continue
        source = source.replace("localhost:9092", threaded_broker.bootstrap_servers)
        code = compile(source, "README.md", "exec", flags=_TOP_LEVEL_AWAIT, dont_inherit=True)
        done = eval(code, names)
        if inspect.iscoroutine(done):
            with contextlib.suppress(_Printed):
                asyncio.run(asyncio.wait_for(done, 30))
        if "FastAPI" in source:
            asyncio.run(_order(names["app"]))
        if "async def test_" in source:
            asyncio.run(names["test_an_order_survives_a_change_of_leader"]())
    assert printed == ["1000 records in readings", "0 0 b'17' b'two apples'", "Empty []"]


async def _order(app: Any) -> None:
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as client,
    ):
        assert (await client.post("/orders/17", content=b"two apples")).status_code == 200


async def test_the_test_passes() -> None:
    await run_block("test_an_order_survives")["test_an_order_survives_a_change_of_leader"]()


def test_the_spark_example_shows_records(
    spark: SparkSession, threaded_broker: ThreadedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    async def send() -> None:
        async with Producer(threaded_broker.bootstrap_servers) as producer:
            await producer.send_and_wait("orders", b"two apples", key=b"17")

    asyncio.run(send())
    run_block("spark_session_builder", threaded_broker.bootstrap_servers)
    assert "two apples" in capsys.readouterr().out


def test_the_extras_and_the_command_that_the_readme_names_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(re.findall(r'"\.\[([\w-]+)\]"', README))
    assert extras == {"demo", "fast", "test"}
    assert extras <= project["optional-dependencies"].keys()
    assert "aioprod" in project["scripts"]


@needs_posix
def test_ci_runs_the_readmes_commands() -> None:
    """Its first installation is the README's; then it has all packages, and runs all tests."""
    ((install, tests),) = re.findall(
        r"^(python -m pip install .*test.*) && (python -m pytest -n 3)$", README, re.MULTILINE
    )
    script = (ROOT / ".ci" / "run").read_text()
    assert f" {tests} " not in script
    places = [
        script.index(part)
        for part in (install, "pytest -q --collect-only", selection.INSTALL, selection.RUN_ALL)
    ]
    assert places == sorted(places)
    for part in ("`test-all`", "`--all`"):
        assert part in README
    assert (
        subprocess.run(["bash", "-n", ROOT / ".ci" / "run"], timeout=10, check=False).returncode
        == 0
    )


def test_the_tests_that_ci_names_exist() -> None:
    """pytest ends without running anything if one of its files was renamed."""
    files = [ROOT / ".ci" / "run", *(ROOT / ".github").rglob("*.yml")]
    named = {
        path for file in files for path in re.findall(r"tests/[\w/]+(?:\.py)?", file.read_text())
    }
    assert len(named) > 20
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_the_readme_is_short() -> None:
    lines = README.splitlines()
    assert len(lines) <= 150
    assert [line for line in lines if len(line) > 100] == []


def test_the_front_pages_name_only_measurements_of_the_first_section() -> None:
    """The first table that a reader of the front page finds agrees with it."""
    page = (ROOT / "docs" / "performance.md").read_text()
    measured = page.split("\n## ")[1].split("\n### ")[0]
    rows = {row[0]: row[1:] for row in doc_blocks.table_rows(measured)}
    reliability = (ROOT / "docs" / "reliability.md").read_text()
    for page in (README, (ROOT / "docs" / "index.md").read_text()):
        reasons = page[page.index("**Fast") : page.index("**Quick")]
        speed, _, correct = reasons.partition("**Correct")
        found = re.findall(r"\d[\d,]{3,}(?= records/s)", speed)
        assert len(found) == 2 and [each for each in found if each not in measured] == []
        (times,) = re.findall(r"([\d.]+)\s+times confluent-kafka", speed)
        assert times == rows["100 B"][0].partition(" ")[0], "a median, without its range"
        found = re.findall(r"\d[\d,]{3,}(?= records)|\d+(?= fault scenarios)", correct)
        assert len(found) == 2 and [each for each in found if each not in reliability] == []


def test_the_first_page_of_the_site_sends_and_reads(
    threaded_broker: ThreadedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (
        (ROOT / "docs" / "index.md")
        .read_text()
        .replace(
            'Consumer("greetings", ', 'Consumer("greetings", bootstrap_servers="localhost:9092", '
        )
    )
    doc_blocks.run_block(
        "docs/index.md", page, "uvloop.run(main())", threaded_broker.bootstrap_servers
    )
    assert capsys.readouterr().out == "stored at offset 0\nread b'hello'\n"


def test_the_extras_that_the_workflows_install_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    files = [ROOT / ".ci" / "run", *(ROOT / ".github").rglob("*.yml"), ROOT / "mkdocs.yml"]
    extras = {
        extra
        for path in files
        for names in re.findall(r'"\.\[([\w,-]+)\]"', path.read_text())
        for extra in names.split(",")
    }
    tools = {"docs", "coverage", "kerberos", "pyright"}
    assert extras == {"test", "test-all", "schema-registry"} | tools
    assert extras <= project["optional-dependencies"].keys()
