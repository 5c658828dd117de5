"""docs/processing.md: its code works, and its names and defaults are those of the code."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from aioprod import Admin, Producer
from aioprod.admin import ConfigResource
from aioprod.processing import (
    Processor,
    ProcessorConfig,
    RetryPolicy,
    ShareProcessor,
    ShareProcessorConfig,
)
from aioprod.processing import failure_headers as headers
from aioprod.testing import EmbeddedCluster
from tests.testing.doc_blocks import python_blocks
from tests.waiting import until

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "processing.md").read_text(encoding="utf-8")
METRICS = (DOCS / "metrics.md").read_text(encoding="utf-8")


async def test_the_code_of_the_page_works(broker: EmbeddedCluster, capsys: Any) -> None:
    broker.create_topic("orders", 1)
    first, _, probes = python_blocks(PAGE)
    names: dict[str, Any] = {"__name__": "page"}
    exec(first.replace("localhost:9092", broker.bootstrap_servers), names)
    exec(probes, names)
    processor: Processor[Any, Any] = names["processor"]
    app: FastAPI = names["app"]
    async with Producer(broker.bootstrap_servers) as producer:
        await producer.send_and_wait("orders", b'{"amount": 3}', key=b"42")
    async with app.router.lifespan_context(app), asyncio.timeout(30):
        await until(lambda: processor.metrics()["records-handled-total"])
        shown = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", METRICS))
        assert set(processor.metrics()) <= shown
        assert processor.in_flight_by_key() == {}
    assert capsys.readouterr().out == "b'42' 3 1\n"
    assert broker.group("billing").members == {}


async def test_the_code_of_share_groups_works(broker: EmbeddedCluster, capsys: Any) -> None:
    for topic in ("mails", "mails.dead"):
        broker.create_topic(topic, 1)
    code = python_blocks(PAGE)[1].replace("localhost:9092", broker.bootstrap_servers)
    names: dict[str, Any] = {"__name__": "page"}
    exec(code, names)
    mailer: ShareProcessor[Any, Any] = names["mailer"]
    configs = {"share.auto.offset.reset": "earliest"}
    async with Admin(broker.bootstrap_servers) as admin:
        await admin.incremental_alter_configs({ConfigResource.group("mailers"): configs})
    async with Producer(broker.bootstrap_servers) as producer:
        await producer.send_and_wait("mails", b'{"to": "me"}')
    async with mailer, asyncio.timeout(30):
        await until(lambda: mailer.metrics()["records-accepted-total"])
        shown = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", METRICS))
        assert set(mailer.metrics()) <= shown
        own = METRICS.partition("metrics of a share processor |")[2].partition("\n\n")[0]
        assert set(re.findall(r"`([a-z-]+)`", own)) <= set(mailer.metrics())
    assert capsys.readouterr().out == "me 1 1\n"


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
    share = ShareProcessorConfig(group_id="g", reject_failed=True)
    assert f"`max_deliveries` times ({share.max_deliveries})" in page
    assert share.max_pending_records == 2 * share.concurrency
    assert "`max_pending_records` records, by default twice `concurrency`" in page
    exactly_once = ProcessorConfig(group_id="g", guarantee="exactly_once")
    assert f"`commit_interval_ms` ({exactly_once.commit_interval_ms})" in page
