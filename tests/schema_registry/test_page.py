"""docs/schema-registry.md: its code works."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioprod import DecodingLimits
from aioprod.schema_registry import Schema, SchemaRegistry
from aioprod.schema_registry.options import SerializerOptions
from aioprod.testing import EmbeddedCluster, ThreadedCluster
from aioprod.testing.registry import EmbeddedSchemaRegistry
from tests.testing.doc_blocks import python_blocks

PAGE = (Path(__file__).parents[2] / "docs" / "schema-registry.md").read_text(encoding="utf-8")
FIRST, REFERENCES, LIMITS, ARROW, CALLS, FIXTURE = python_blocks(PAGE)


def test_the_first_program(
    threaded_broker: ThreadedCluster, schema_registry: Any, capsys: Any
) -> None:
    source = FIRST.replace("http://localhost:8081", schema_registry.url)
    source = source.replace("localhost:9092", threaded_broker.bootstrap_servers)
    # Classes need a module that they can be found in.
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(source, "page", "exec"), names)
    assert capsys.readouterr().out == "Order(item='tea', count=1)\n"


async def test_references(registry: SchemaRegistry) -> None:
    user = Schema('{"type":"record","name":"User","namespace":"shop","fields":[]}')
    await registry.register("user-value", user)
    names: dict[str, Any] = {"registry": registry}
    exec(REFERENCES, names)
    data, _ = await names["serializer"].serialize("users", [{}, {}])
    assert data is not None and data[5:] == b"\4\0"


def test_limits(registry: SchemaRegistry) -> None:
    names: dict[str, Any] = {"registry": registry}
    exec(LIMITS, names)
    deep = b"[" * 500 + b"]" * 500
    assert names["deserializers"][1]("t", (), deep)
    with pytest.raises(ValueError, match="max_depth=500"):
        names["deserializers"][1]("t", (), b"[" + deep + b"]")
    for limit in dataclasses.fields(DecodingLimits):
        default = f"{limit.default:,}" if type(limit.default) is int else str(limit.default)
        assert f"| `{limit.name}` | {default} |" in PAGE


@dataclass
class Order:
    item: str
    count: int = 1


async def test_tables(registry: SchemaRegistry, kafka_broker: EmbeddedCluster) -> None:
    names: dict[str, Any] = {"Order": Order}
    exec(ARROW, names)
    table = pa.table({"item": ["tea", "milk"], "count": [2, 1]})
    assert await names["copy"](registry, kafka_broker.bootstrap_servers, table) == table


async def test_calls(capsys: Any) -> None:
    async with EmbeddedSchemaRegistry(basic_auth=("user", "password")) as server:
        async with SchemaRegistry(
            server.url, basic_auth=("user", "password"), context=".staging"
        ) as registry:
            await registry.register("orders-value", Schema('"int"'))
        source = CALLS.replace("https://registry-1:8081", server.url)
        names: dict[str, Any] = {}
        exec("async def run():\n" + textwrap.indent(source, "    "), names)
        await asyncio.wait_for(names["run"](), 30)
    assert capsys.readouterr().out == "2 2\n"


async def test_with_the_fixture(
    kafka_broker: EmbeddedCluster, schema_registry: EmbeddedSchemaRegistry
) -> None:
    names: dict[str, Any] = {}
    exec(FIXTURE, names)
    await names["test_orders_have_a_schema"](kafka_broker, schema_registry)


@pytest.mark.parametrize("name", [*SerializerOptions.__annotations__])
def test_the_page_names_each_option(name: str) -> None:
    assert re.search(rf"`{name}\b", PAGE)


def test_the_page_names_each_setting_of_the_client() -> None:
    parameters = inspect.signature(SchemaRegistry).parameters
    left_out = {"url", "rng", "max_connections", "retry_backoff_max_ms", "context"}
    assert [name for name in parameters if name not in left_out and f"`{name}" not in PAGE] == []
