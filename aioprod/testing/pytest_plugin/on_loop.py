"""The fixtures of asyncio tests. Each way to run such tests needs its own fixtures, because a
fixture must run on its test's event loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import fields
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from aioprod.testing.pytest_plugin.modes import ANYIO, ASYNCIO_SCOPES, asyncio_mode, fixture_name

if TYPE_CHECKING:
    from aioprod import Producer
    from aioprod.testing import EmbeddedCluster
    from aioprod.testing.pytest_plugin.topic_consumer import TopicConsumer
    from aioprod.testing.registry import EmbeddedSchemaRegistry


async def kafka_broker(kafka_settings: dict[str, Any]) -> AsyncIterator[EmbeddedCluster]:
    """One node."""
    from aioprod.testing import EmbeddedCluster

    async with EmbeddedCluster(**{"nodes": 1, **kafka_settings}) as cluster:
        yield cluster


async def kafka_cluster(kafka_settings: dict[str, Any]) -> AsyncIterator[EmbeddedCluster]:
    """Three nodes."""
    from aioprod.testing import EmbeddedCluster

    async with EmbeddedCluster(**{"nodes": 3, **kafka_settings}) as cluster:
        yield cluster


async def kafka_topic(
    _kafka_in_use: Any, _kafka_topic_name: str, kafka_topic_settings: dict[str, Any]
) -> str:
    """A new topic."""
    _kafka_in_use.create_topic(_kafka_topic_name, **kafka_topic_settings)
    return _kafka_topic_name


async def producer(
    _kafka_in_use: Any,
    kafka_client_settings: dict[str, Any],
    kafka_producer_settings: dict[str, Any],
) -> AsyncIterator[Producer]:
    """A started producer."""
    from aioprod import Producer

    async with Producer(
        _kafka_in_use.bootstrap_servers, **{**kafka_client_settings, **kafka_producer_settings}
    ) as started:
        yield started


async def consumer(
    _kafka_in_use: Any,
    kafka_topic: str,
    kafka_client_settings: dict[str, Any],
    kafka_consumer_settings: dict[str, Any],
) -> AsyncIterator[TopicConsumer]:
    """A consumer of the test's topic."""
    from aioprod.testing.pytest_plugin.topic_consumer import TopicConsumer

    settings = {**for_any_client(kafka_client_settings), **kafka_consumer_settings}
    async with TopicConsumer(_kafka_in_use.bootstrap_servers, kafka_topic, **settings) as opened:
        yield opened


async def schema_registry(
    schema_registry_settings: dict[str, Any],
) -> AsyncIterator[EmbeddedSchemaRegistry]:
    """A registry."""
    from aioprod.testing.registry import EmbeddedSchemaRegistry

    async with EmbeddedSchemaRegistry(**schema_registry_settings) as registry:
        yield registry


_THINGS: tuple[Callable[..., Any], ...] = (
    kafka_broker,
    kafka_cluster,
    kafka_topic,
    producer,
    consumer,
    schema_registry,
)


def for_any_client(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that are not only for producers."""
    from aioprod.config.client import ClientConfig

    known = {field.name for field in fields(ClientConfig)}
    return {name: value for name, value in settings.items() if name in known}


def loop_fixtures(config: pytest.Config) -> ModuleType:
    """Make a plugin with the fixtures for anyio and, if it is installed, for pytest-asyncio."""
    plugin = ModuleType("aioprod_loop_fixtures")
    for thing in _THINGS:
        _add(plugin, thing, ANYIO, pytest.fixture)
    if config.pluginmanager.hasplugin("asyncio"):
        import pytest_asyncio

        for thing in _THINGS:
            for scope in ASYNCIO_SCOPES:
                _add(plugin, thing, asyncio_mode(scope), pytest_asyncio.fixture(loop_scope=scope))  # type: ignore[call-overload]
    return plugin


def _add(
    plugin: ModuleType, thing: Callable[..., Any], mode: str, decorate: Callable[..., Any]
) -> None:
    # A copy, because pytest-asyncio stores the loop's scope in the function.
    assert isinstance(thing, FunctionType)
    copy = FunctionType(
        thing.__code__, thing.__globals__, thing.__name__, thing.__defaults__, thing.__closure__
    )
    copy.__doc__ = thing.__doc__
    name = fixture_name(thing.__name__, mode)
    setattr(plugin, name, decorate(copy))
