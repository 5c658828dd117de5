"""docs/processing.md: its code works, and its names and defaults are those of the code."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from aioprod import Producer
from aioprod.processing import Processor, ProcessorConfig, RetryPolicy
from aioprod.processing import failure_headers as headers
from aioprod.testing import EmbeddedCluster
from tests.testing.doc_blocks import python_blocks

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "processing.md").read_text(encoding="utf-8")
FIGURES = (DOCS / "observability.md").read_text(encoding="utf-8")


async def test_the_code_of_the_page_works(broker: EmbeddedCluster, capsys: Any) -> None:
    broker.create_topic("orders", 1)
    first, probes = python_blocks(PAGE)
    names: dict[str, Any] = {"__name__": "page"}
    exec(first.replace("localhost:9092", broker.bootstrap_servers), names)
    exec(probes, names)
    processor: Processor[Any, Any] = names["processor"]
    app: FastAPI = names["app"]
    async with Producer(broker.bootstrap_servers) as producer:
        await producer.send_and_wait("orders", b'{"amount": 3}', key=b"42")
    async with app.router.lifespan_context(app), asyncio.timeout(30):
        while not processor.metrics()["records-handled-total"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        shown = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", FIGURES))
        assert set(processor.metrics()) <= shown
        assert processor.in_flight_by_key() == {}
    assert capsys.readouterr().out == "b'42' 3 1\n"
    assert broker.group("billing").members == {}


def test_headers() -> None:
    defined = {
        value for name, value in vars(headers).items() if name.isupper() and name != "PREFIX"
    }
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `aioprod.")]
    shown = set()
    for row in rows:
        first, *rest = re.findall(r"`([^`]+)`", row)
        stem = first.rpartition("-")[0]
        shown |= {first, *(name if name.startswith("aioprod.") else stem + name for name in rest)}
    assert shown == {name for name in defined if isinstance(name, str)}


def test_defaults() -> None:
    page = " ".join(PAGE.split())
    defaults = {field.name: field.default for field in dataclasses.fields(ProcessorConfig)}
    defaults |= {field.name: field.default for field in dataclasses.fields(RetryPolicy)}
    for name, written in {
        "concurrency": "`concurrency` (16)",
        "max_pending_records": "`max_pending_records` (1,000)",
        "attempts": "`attempts` calls (3,",
        "backoff_ms": "`backoff_ms` (200,",
        "drain_timeout_ms": "`drain_timeout_ms` (30 s)",
        "unhealthy_after_ms": "`unhealthy_after_ms` (60 s)",
    }.items():
        assert written in page
        number = int(re.findall(r"\((\d[\d,]*)", written)[0].replace(",", ""))
        assert defaults[name] == number * (1_000 if written.endswith(" s)") else 1), name
    exactly_once = ProcessorConfig(group_id="g", guarantee="exactly_once")
    assert f"`commit_interval_ms` ({exactly_once.commit_interval_ms})" in page
