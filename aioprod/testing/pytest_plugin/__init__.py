"""The pytest plugin: fixtures for tests of applications that use Kafka.

| fixture | gives |
|---|---|
| ``kafka_broker`` | a Kafka cluster of one node |
| ``kafka_cluster`` | one of three nodes |
| ``kafka_topic`` | the name of a new topic |
| ``producer`` | a started producer |
| ``consumer`` | a consumer that reads ``kafka_topic`` from its beginning |
| ``schema_registry`` | an embedded Schema Registry; needs the extra ``schema-registry`` |

They last as long as the test. In asyncio tests (pytest-asyncio in either mode, or anyio's plugin)
they run on the test's event loop. Synchronous tests get a ``ThreadedCluster``, and a producer and a
consumer whose calls block. See docs/testing.md.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from aioprod.testing.pytest_plugin import in_thread, on_loop, options
from aioprod.testing.pytest_plugin.modes import BLOCKING, fixture_name, mode_of

_LONGEST_TOPIC_STEM = 100


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    options.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Check the options and register the fixtures."""
    options.chosen_cluster(config)
    config.pluginmanager.register(in_thread, "aioprod_blocking_fixtures")
    config.pluginmanager.register(on_loop.loop_fixtures(config), "aioprod_loop_fixtures")


def pytest_report_header(config: pytest.Config) -> str | None:
    """Name the cluster if it is not the embedded one."""
    kind, version = options.chosen_cluster(config)
    return None if kind == options.EMBEDDED else f"kafka: {kind}{f' {version}' if version else ''}"


# -- fixtures for tests ----------------------------------------------------------------------------
# Fixtures request the settings so that tests can parametrize them; the fixtures of each mode read
# them.


@pytest.fixture
def kafka_broker(request: pytest.FixtureRequest, kafka_settings: dict[str, Any]) -> Any:
    """A Kafka cluster of one node: an ``EmbeddedCluster`` in asyncio tests, a ``ThreadedCluster``
    in other tests, or a cluster chosen by --kafka.
    """
    return _cluster(request, "kafka_broker")


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest, kafka_settings: dict[str, Any]) -> Any:
    """A Kafka cluster of three nodes, which the other fixtures of the test use too."""
    return _cluster(request, "kafka_cluster")


@pytest.fixture
def kafka_topic(
    request: pytest.FixtureRequest, kafka_topic_settings: dict[str, Any]
) -> Iterator[str]:
    """The name of a topic that was created for this test."""
    name: str = request.getfixturevalue(fixture_name("kafka_topic", mode_of(request)))
    yield name
    if options.chosen_cluster(request.config).kind != options.EMBEDDED:
        request.getfixturevalue("_kafka_in_use").delete_topic(name)


@pytest.fixture
def producer(
    request: pytest.FixtureRequest,
    kafka_client_settings: dict[str, Any],
    kafka_producer_settings: dict[str, Any],
) -> Any:
    """A started ``aioprod.Producer``, or a ``BlockingProducer`` in synchronous tests."""
    return request.getfixturevalue(fixture_name("producer", mode_of(request)))


@pytest.fixture
def consumer(
    request: pytest.FixtureRequest,
    kafka_topic: str,
    kafka_client_settings: dict[str, Any],
    kafka_consumer_settings: dict[str, Any],
) -> Any:
    """A consumer that reads ``kafka_topic`` from its beginning with ``getone``, ``getmany`` and
    ``async for``, or ``for`` in synchronous tests.
    """
    return request.getfixturevalue(fixture_name("consumer", mode_of(request)))


@pytest.fixture
def schema_registry(
    request: pytest.FixtureRequest, schema_registry_settings: dict[str, Any]
) -> Any:
    """An ``EmbeddedSchemaRegistry``; clients get its ``url``."""
    return request.getfixturevalue(fixture_name("schema_registry", mode_of(request)))


# -- fixtures to override --------------------------------------------------------------------------


@pytest.fixture
def kafka_settings() -> dict[str, Any]:
    """The arguments of the embedded cluster."""
    return {}


@pytest.fixture
def kafka_topic_settings(pytestconfig: pytest.Config) -> dict[str, Any]:
    """The arguments of ``create_topic`` for ``kafka_topic``."""
    return options.topic_settings(pytestconfig)


@pytest.fixture
def kafka_client_settings(pytestconfig: pytest.Config) -> dict[str, Any]:
    """Settings of the producer and the consumer, such as those for TLS and SASL."""
    return options.client_settings(pytestconfig)


@pytest.fixture
def kafka_producer_settings() -> dict[str, Any]:
    """Settings of the producer only."""
    return {}


@pytest.fixture
def kafka_consumer_settings() -> dict[str, Any]:
    """Settings of the consumer only."""
    return {}


@pytest.fixture
def schema_registry_settings() -> dict[str, Any]:
    """The arguments of the embedded Schema Registry."""
    return {}


# -- fixtures that the ones above use --------------------------------------------------------------


@pytest.fixture
def _kafka_in_use(request: pytest.FixtureRequest) -> Any:
    """The cluster of the test's topic, producer and consumer."""
    return request.getfixturevalue(
        "kafka_cluster" if "kafka_cluster" in request.fixturenames else "kafka_broker"
    )


@pytest.fixture
def _kafka_topic_name(request: pytest.FixtureRequest) -> str:
    stem = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:_LONGEST_TOPIC_STEM]
    return f"{stem}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def _kafka_broker_real(pytestconfig: pytest.Config) -> Iterator[str]:
    """Bootstrap servers of a real broker for all tests."""
    from aioprod.testing.jars import KAFKA_VERSIONS
    from aioprod.testing.real_kafka import RealKafka

    with RealKafka(
        version=options.chosen_cluster(pytestconfig).version or KAFKA_VERSIONS[0]
    ) as kafka:
        yield kafka.bootstrap_servers


@pytest.fixture(scope="session")
def _kafka_cluster_real(pytestconfig: pytest.Config) -> Iterator[str]:
    """Bootstrap servers of three real brokers for all tests."""
    from aioprod.testing.jars import KAFKA_VERSIONS
    from aioprod.testing.real_cluster import RealCluster

    with RealCluster(
        3, version=options.chosen_cluster(pytestconfig).version or KAFKA_VERSIONS[0]
    ) as kafka:
        yield kafka.bootstrap_servers


def _cluster(request: pytest.FixtureRequest, thing: str) -> Any:
    kind = options.chosen_cluster(request.config).kind
    mode = mode_of(request)
    if kind == options.EMBEDDED:
        return request.getfixturevalue(fixture_name(thing, mode))
    from aioprod.testing.pytest_plugin.running import RunningKafka, RunningKafkaOnLoop

    servers = request.getfixturevalue(fixture_name(thing, kind)) if kind == options.REAL else kind
    stand_in = RunningKafka if mode == BLOCKING else RunningKafkaOnLoop
    return stand_in(
        servers, on_loop.for_any_client(request.getfixturevalue("kafka_client_settings"))
    )
