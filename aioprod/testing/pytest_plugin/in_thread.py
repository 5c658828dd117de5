"""The fixtures of synchronous tests. Everything runs on an event loop in another thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from aioprod.testing.pytest_plugin.on_loop import for_any_client

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from aioprod.testing import ThreadedCluster
    from aioprod.testing.pytest_plugin.blocking import BlockingConsumer, BlockingProducer
    from aioprod.testing.registry import EmbeddedSchemaRegistry


@pytest.fixture
def _kafka_portal() -> Iterator[BlockingPortal]:
    """The thread with the event loop."""
    from anyio.from_thread import start_blocking_portal

    with start_blocking_portal() as portal:
        yield portal


@contextmanager
def _threaded(portal: BlockingPortal, settings: dict[str, Any]) -> Iterator[ThreadedCluster]:
    from aioprod.testing import EmbeddedCluster, ThreadedCluster

    cluster = portal.call(lambda: EmbeddedCluster(**settings))
    with portal.wrap_async_context_manager(cluster):
        yield ThreadedCluster(cluster, portal)


@pytest.fixture
def _kafka_broker_blocking(
    _kafka_portal: BlockingPortal, kafka_settings: dict[str, Any]
) -> Iterator[ThreadedCluster]:
    """One node."""
    with _threaded(_kafka_portal, {"nodes": 1, **kafka_settings}) as cluster:
        yield cluster


@pytest.fixture
def _kafka_cluster_blocking(
    _kafka_portal: BlockingPortal, kafka_settings: dict[str, Any]
) -> Iterator[ThreadedCluster]:
    """Three nodes."""
    with _threaded(_kafka_portal, {"nodes": 3, **kafka_settings}) as cluster:
        yield cluster


@pytest.fixture
def _kafka_topic_blocking(
    _kafka_in_use: Any, _kafka_topic_name: str, kafka_topic_settings: dict[str, Any]
) -> str:
    """A new topic."""
    _kafka_in_use.create_topic(_kafka_topic_name, **kafka_topic_settings)
    return _kafka_topic_name


@pytest.fixture
def _producer_blocking(
    _kafka_portal: BlockingPortal,
    _kafka_in_use: Any,
    kafka_client_settings: dict[str, Any],
    kafka_producer_settings: dict[str, Any],
) -> Iterator[BlockingProducer]:
    """A started producer."""
    from aioprod import Producer
    from aioprod.testing.pytest_plugin.blocking import BlockingProducer

    producer = Producer(
        _kafka_in_use.bootstrap_servers, **{**kafka_client_settings, **kafka_producer_settings}
    )
    with _kafka_portal.wrap_async_context_manager(producer):
        yield BlockingProducer(producer, _kafka_portal)


@pytest.fixture
def _consumer_blocking(
    _kafka_portal: BlockingPortal,
    _kafka_in_use: Any,
    kafka_topic: str,
    kafka_client_settings: dict[str, Any],
    kafka_consumer_settings: dict[str, Any],
) -> Iterator[BlockingConsumer]:
    """A consumer of the test's topic."""
    from aioprod.testing.pytest_plugin.blocking import BlockingConsumer
    from aioprod.testing.pytest_plugin.topic_consumer import TopicConsumer

    settings = {**for_any_client(kafka_client_settings), **kafka_consumer_settings}
    servers = _kafka_in_use.bootstrap_servers
    consumer = _kafka_portal.call(lambda: TopicConsumer(servers, kafka_topic, **settings))
    with _kafka_portal.wrap_async_context_manager(consumer):
        yield BlockingConsumer(consumer, _kafka_portal)


@pytest.fixture
def _schema_registry_blocking(
    _kafka_portal: BlockingPortal, schema_registry_settings: dict[str, Any]
) -> Iterator[EmbeddedSchemaRegistry]:
    """A registry."""
    from aioprod.testing.registry import EmbeddedSchemaRegistry

    registry = EmbeddedSchemaRegistry(**schema_registry_settings)
    with _kafka_portal.wrap_async_context_manager(registry):
        yield registry
