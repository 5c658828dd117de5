"""The programs of docs/observability.md run unchanged, and the page names each metric."""

from __future__ import annotations

import inspect
import re
from contextlib import AsyncExitStack
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from prometheus_client import REGISTRY

from aioprod import Consumer, Producer
from aioprod.metrics import (
    AdminObserver,
    ConsumerObserver,
    ProducerObserver,
    ShareConsumerObserver,
)
from aioprod.processing import Processor, ProcessorObserver
from aioprod.testing import EmbeddedCluster
from tests.integrations.test_grafana import emitted

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "observability.md").read_text()
METRICS = (DOCS / "metrics.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
_TOP_LEVEL_AWAIT = 0x2000
OTHERS = ("topic", "partition", "node")


def compiled(number: int, bootstrap_servers: str) -> CodeType:
    code = compile(
        BLOCKS[number].replace("localhost:9092", bootstrap_servers).replace("9464", "0"),
        f"block {number}",
        "exec",
        flags=_TOP_LEVEL_AWAIT,
    )
    assert isinstance(code, CodeType)
    return code


@pytest.mark.parametrize("number", range(len(BLOCKS)))
async def test_the_code_works(number: int, broker: EmbeddedCluster) -> None:
    names: dict[str, Any] = {}
    broker.create_topic("orders", 1)
    coroutine = eval(compiled(number, broker.bootstrap_servers), names)
    if inspect.isawaitable(coroutine):
        await coroutine
        assert names["metrics"]["record-send-total"] == 1
        return
    kinds = Producer, Consumer, Processor
    clients = [each for each in names.values() if isinstance(each, kinds)]
    assert clients
    async with AsyncExitStack() as stack:
        for client in clients:
            await stack.enter_async_context(client)
        if "producer" in names:
            await names["producer"].send_and_wait("orders", b"x")
        if "read" in names:
            await names["read"]()
        scraped = {family.name for family in REGISTRY.collect()}
        for kind in ("producer", "consumer", "processor"):
            found = any(name.startswith(f"kafka_{kind}_") for name in scraped)
            assert found == ("PrometheusObserver" in BLOCKS[number])


@pytest.mark.virtual_time
@pytest.mark.parametrize("kind", ["consumer", "share consumer", "processor"])
async def test_the_page_names_each_metric_and_no_other(kind: str, broker: EmbeddedCluster) -> None:
    table = METRICS.partition(f"| name | meaning of {kind} metrics |")[2].partition("\n\n")[0]
    described = {name for row in table.splitlines() for name in names_of(row)}
    prefix = f"kafka_{kind.replace(' ', '_')}_"
    measured = {
        name.removeprefix(prefix).replace("_", "-")
        for name in await emitted(broker)
        if name.startswith(prefix)
        and not name.startswith(tuple(f"{prefix}{other}_" for other in OTHERS))
        and not re.search(r"_seconds_(bucket|count|sum|created)$", name)
    }
    # Kafka's name begins as those by partition do.
    measured |= {"partitions-lost-total"} if kind == "consumer" else set()
    assert described == measured


def names_of(row: str) -> list[str]:
    return re.findall(r"`([a-z-]+)`", row.split("|")[1]) if row.startswith("| `") else []


async def test_alerts_are_about_metrics_that_exist(broker: EmbeddedCluster) -> None:
    known = await emitted(broker)
    alerts = TEXT.partition("Useful alerts:")[2].partition("\n## ")[0]
    named = re.findall(r"\bkafka_\w+", alerts)
    assert len(named) == 10 and set(named) <= set(known)


@pytest.mark.parametrize(
    "base",
    [ProducerObserver, ConsumerObserver, ShareConsumerObserver, ProcessorObserver, AdminObserver],
)
def test_the_methods_of_observers_are_named(base: type) -> None:
    (row,) = [line for line in TEXT.splitlines() if f".{base.__name__}`" in line]
    named = set(re.findall(r"`(\w+)`", row))
    methods = {name for name in vars(base) if not name.startswith("_")}
    assert named == methods - {"on_start", "close"}
