"""Without an event loop of asyncio, such as under trio, each entry raises one clear error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aioprod import Admin, Consumer, Producer, ShareConsumer, WrongEventLoopError
from aioprod.oauth import ClientCredentials
from aioprod.processing import Processor
from aioprod.schema_registry import SchemaRegistry
from aioprod.testing import EmbeddedCluster
from aioprod.testing.registry import EmbeddedSchemaRegistry


async def handle(record: Any) -> None:
    raise AssertionError("no record arrives")


ENTRIES: dict[str, Callable[[], Awaitable[Any]]] = {
    "Producer.start": lambda: Producer().start(),
    "Producer.close": lambda: Producer().close(),
    "async with Producer": lambda: Producer().__aenter__(),
    "Consumer.start": lambda: Consumer("t").start(),
    "ShareConsumer.start": lambda: ShareConsumer(group_id="g").start(),
    "Admin.start": lambda: Admin().start(),
    "async with Admin": lambda: Admin().__aenter__(),
    "Processor.run": lambda: Processor(handle, "t", group_id="g").run(),
    "Processor.start": lambda: Processor(handle, "t", group_id="g").start(),
    "Processor.run without signals": lambda: Processor(handle, "t", group_id="g").run(
        handle_signals=False
    ),
    "SchemaRegistry.subjects": lambda: SchemaRegistry("http://a").subjects(),
    "SchemaRegistry.get_schema": lambda: SchemaRegistry("http://a").get_schema(1),
    "a token": lambda: ClientCredentials("http://127.0.0.1:1", "i", "s")(),
    "EmbeddedCluster.start": lambda: EmbeddedCluster().start(),
    "async with EmbeddedSchemaRegistry": lambda: EmbeddedSchemaRegistry().__aenter__(),
}


async def attempt(entry: str) -> BaseException | None:
    try:
        await ENTRIES[entry]()
    except Exception as error:
        return error
    return None


def by_hand(entry: str) -> BaseException | None:
    """Run the coroutine as no event loop at all does."""
    coroutine = attempt(entry)
    try:
        coroutine.send(None)
    except StopIteration as ended:
        error: BaseException | None = ended.value
        return error
    coroutine.close()
    raise AssertionError("it waits, although nothing can wake it")


@pytest.mark.parametrize("entry", ENTRIES)
def test_without_an_event_loop(entry: str) -> None:
    error = by_hand(entry)
    assert isinstance(error, WrongEventLoopError), error
    assert "asyncio.run()" in str(error)


@pytest.mark.parametrize("entry", ENTRIES)
def test_under_trio(entry: str) -> None:
    trio = pytest.importorskip("trio", reason="trio is not installed (extra test)")
    error = trio.run(attempt, entry)
    assert isinstance(error, WrongEventLoopError), error
    assert "this code runs on trio" in str(error)


@pytest.mark.parametrize("entry", ENTRIES)
def test_under_anyio_with_trio(entry: str) -> None:
    pytest.importorskip("trio", reason="trio is not installed (extra test)")
    anyio = pytest.importorskip("anyio")
    error = anyio.run(attempt, entry, backend="trio")
    assert isinstance(error, WrongEventLoopError), error
    assert "backend='asyncio'" in str(error)
