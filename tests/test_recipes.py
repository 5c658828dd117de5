"""The programs of docs/quickstart.md and docs/recipes run as they are."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme
import uvloop
from aiohttp.test_utils import TestClient, TestServer

from aioprod import Producer
from aioprod.testing import BrokerSecurity, EmbeddedCluster, ThreadedCluster
from tests.net.certificates import Certificates
from tests.testing.doc_blocks import DOCS, python_blocks, run_block
from tests.waiting import until

pytest_plugins = ("pytester",)

RECIPES = DOCS / "recipes"
LIMIT_S = 30


class _Enough(Exception):
    """A program has printed what the test waits for."""


@pytest.fixture(autouse=True)
def _logging_is_as_before() -> Iterator[None]:
    """The recipes configure it, as applications do; later tests read the log of theirs."""
    loggers = [logging.getLogger(name) for name in ("", "aioprod")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture
def run_until(
    threaded_broker: ThreadedCluster, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, int], list[str]]:
    """Run the programs of a page until they have printed some lines."""

    def run(page: str, lines: int) -> list[str]:
        printed: list[str] = []

        def show(*values: object) -> None:
            printed.append(" ".join(map(str, values)))
            if len(printed) == lines:
                raise _Enough

        monkeypatch.setattr("builtins.print", show)
        monkeypatch.setattr(
            uvloop, "run", lambda main: asyncio.run(asyncio.wait_for(main, LIMIT_S))
        )
        text = (DOCS / page).read_text(encoding="utf-8")
        text = text.replace('if __name__ == "__main__":', "if True:")
        for block in python_blocks(text):
            try:
                run_block(page, text, block, threaded_broker.bootstrap_servers)
            except* _Enough:
                pass
        return printed

    return run


def send(broker: ThreadedCluster, topic: str, *values: bytes) -> None:
    async def run() -> None:
        async with Producer(broker.bootstrap_servers) as producer:
            await (await producer.send_many(topic, values)).wait()

    asyncio.run(run())


def test_the_quickstart(run_until: Callable[[str, int], list[str]]) -> None:
    assert run_until("quickstart.md", 2) == [
        "stored in partition 0 at offset 0",
        "b'anna' b'hello'",
    ]


def test_json(threaded_broker: ThreadedCluster, run_until: Callable[[str, int], list[str]]) -> None:
    send(threaded_broker, "orders", b"{")
    skipped, printed = run_until("recipes/json.md", 2)
    assert skipped.startswith("skipped") and printed == "tea 2"


def test_pydantic(run_until: Callable[[str, int], list[str]]) -> None:
    (printed,) = run_until("recipes/pydantic.md", 1)
    assert printed.startswith("Order(item='tea', count=1, at=datetime.datetime(")


def test_several_consumers(
    threaded_broker: ThreadedCluster, run_until: Callable[[str, int], list[str]]
) -> None:
    threaded_broker.create_topic("orders", 3)
    send(threaded_broker, "orders", *[b"tea"] * 9)
    printed = run_until("recipes/several-consumers.md", 9)
    assert all(re.fullmatch(r"reader [012] [012] b'tea'", line) for line in printed)


def test_tuning(
    threaded_broker: ThreadedCluster, run_until: Callable[[str, int], list[str]]
) -> None:
    send(threaded_broker, "orders", *[b"tea"] * 1_000)
    rate, idle, _, lag = run_until("recipes/tuning-consumers.md", 4)
    assert rate.endswith(" records/s") and idle.startswith("idle: ") and lag == "lag: 0.0"


def test_logging(run_until: Callable[[str, int], list[str]]) -> None:
    assert run_until("recipes/logging.md", 1) == []


def test_nothing_arrives(
    threaded_broker: ThreadedCluster, run_until: Callable[[str, int], list[str]]
) -> None:
    send(threaded_broker, "orders", b"tea", b"milk")
    _, state, exists, position = run_until("recipes/nothing-arrives.md", 4)
    assert "reading" in state and exists == "topic exists: True"
    assert position.endswith("position 2 end 2")


def test_scram_and_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    certificates = Certificates(trustme.CA(), tmp_path)
    monkeypatch.setenv("KAFKA_PASSWORD", "pencil")
    text = (RECIPES / "scram-tls.md").read_text(encoding="utf-8")
    security = BrokerSecurity(ssl_context=certificates.server_context(), users={"alice": "pencil"})
    with EmbeddedCluster.in_thread(security=security) as cluster:
        text = text.replace("kafka.example.org:9093", cluster.bootstrap_servers)
        run_block("scram-tls.md", text.replace("authority.pem", certificates.truststore), "SCRAM")
    assert capsys.readouterr().out == "b'tea'\n"


@pytest.mark.parametrize("page", ["aiohttp", "kubernetes"])
async def test_aiohttp_and_kubernetes(
    broker: EmbeddedCluster, page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for topic in ("orders", "orders.dead"):
        broker.create_topic(topic)
    text = (RECIPES / f"{page}.md").read_text(encoding="utf-8")
    names = run_block(f"{page}.md", text, "web.run_app", broker.bootstrap_servers)
    async with TestClient(TestServer(names["app"])) as client, asyncio.timeout(LIMIT_S):
        if page == "aiohttp":
            response = await client.post("/orders", data=b"tea")
            assert (response.status, await response.json()) == (201, {"offset": 0})
        else:
            async with Producer(broker.bootstrap_servers) as producer:
                await producer.send_and_wait("orders", b"tea")
        await until(lambda: names["processor"].metrics()["records-handled-total"])
        for probe in ("ready", "healthy"):
            assert (await client.get(f"/kafka/{probe}")).status == 200
    assert "ing b'tea'" in capsys.readouterr().out


def test_fastapi(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    application, tests = python_blocks((RECIPES / "fastapi.md").read_text(encoding="utf-8"))
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    monkeypatch.syspath_prepend(str(pytester.path))
    pytester.makeini(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
        "filterwarnings = error"
    )
    pytester.makepyfile(shop=application, test_shop=tests)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    result.assert_outcomes(passed=2)


@pytest.mark.parametrize("page", sorted(RECIPES.glob("*.md")), ids=lambda page: page.stem)
def test_a_recipe_fits_on_a_screen_or_two(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 75
    assert page.stem == "index" or "```python" in text.partition("\n\n")[2][:400]
