"""The Grafana dashboard shows what the exporters emit: each expression names metrics and labels
that a scrape of clients at work has.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import defaultdict
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from aioprod.integrations.prometheus import PrometheusOutboxRelay
from aioprod.outbox import OutboxRelay, ddl
from aioprod.testing import EmbeddedCluster
from tests.integrations.metrics_of_clients import at_work
from tests.waiting import until

DASHBOARD: dict[str, Any] = json.loads(
    files("aioprod.integrations.prometheus").joinpath("grafana.json").read_text(encoding="utf-8")
)
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]
OUTBOX = "kafka_outbox_"
# A metric with its selector, which may be followed by ranges and braces.
METRIC = re.compile(r"\b(kafka_\w+)(?:\{([^}]*)\})?")


def labels_of(selector: str | None) -> set[str]:
    return set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector or ""))


async def emitted(broker: EmbeddedCluster) -> dict[str, set[str]]:
    """The labels of each metric that a scrape of clients has."""
    registry = CollectorRegistry(auto_describe=True)
    async with at_work(broker, registry):
        return labels_by_metric(registry)


def labels_by_metric(registry: CollectorRegistry) -> dict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for family in registry.collect():
        for sample in family.samples:
            found[sample.name].update(sample.labels)
    return found


@pytest.mark.virtual_time
async def test_each_expression_names_metrics_and_labels_that_exist(broker: EmbeddedCluster) -> None:
    expressions = [each for each in EXPRESSIONS if OUTBOX not in each]
    assert len(expressions) > 30
    check_expressions(expressions, await emitted(broker))


async def test_expressions_about_the_outbox_name_metrics_that_exist(
    broker: EmbeddedCluster, tmp_path: Path
) -> None:
    path, registry = str(tmp_path / "shop.db"), CollectorRegistry()
    with closing(sqlite3.connect(path)) as database:
        database.executescript(ddl("sqlite"))
    async with OutboxRelay(path, broker.bootstrap_servers) as relay:
        exported = PrometheusOutboxRelay(relay, registry)
        await until(relay.metrics_by_shard)
        known = labels_by_metric(registry)
        exported.close()
    expressions = [each for each in EXPRESSIONS if OUTBOX in each]
    assert len(expressions) > 5
    check_expressions(expressions, known)


def check_expressions(expressions: list[str], known: dict[str, set[str]]) -> None:
    for expression in expressions:
        used = METRIC.findall(expression)
        assert used, expression
        grouped = {
            label.strip()
            for names in re.findall(r"\bby \(([^)]*)\)", expression)
            for label in names.split(",")
        }
        for name, selector in used:
            assert name in known, expression
            assert labels_of(selector) | grouped <= known[name], expression
            is_counter = name.endswith(("_total", "_bucket", "_count", "_sum"))
            of_rate = re.search(rf"\b(?:rate|increase)\({name}\b", expression)
            assert bool(of_rate) == is_counter, f"{expression}: rates are of counters, and of all"


def test_each_panel_has_an_expression_a_legend_and_a_unit() -> None:
    assert len(PANELS) >= 20
    for panel in PANELS:
        assert panel["title"] and panel["fieldConfig"]["defaults"]["unit"], panel
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            assert METRIC.search(target["expr"]), panel["title"]
            shown = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
            assert shown, "each series differs from the others"
            kept = re.findall(r"\bby \(([^)]*)\)", target["expr"])
            assert not kept or set(shown) <= set(re.findall(r"\w+", kept[-1])), panel["title"]


def test_parentheses_and_variables_are_those_that_there_are() -> None:
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]} | {"__rate_interval"}
    for expression in EXPRESSIONS:
        for first, last in ("()", "{}", "[]"):
            assert expression.count(first) == expression.count(last), expression
        assert set(re.findall(r"\$(\w+)", expression)) <= variables, expression


def test_panels_have_their_own_ids_and_places() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells


def test_there_is_a_row_for_each_kind_of_client() -> None:
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == ["Producers", "Consumers", "Processors", "Share consumers", "Outbox relays"]
    for kind in ("producer", "consumer", "processor", "share_consumer", "outbox_relay"):
        assert any(f"kafka_{kind}_" in expression for expression in EXPRESSIONS)
