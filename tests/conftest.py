"""Fixtures for the tests of several rooms: brokers, Spark, and the check that no task is left."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from aioprod.testing import EmbeddedCluster, ThreadedCluster
from aioprod.testing.cache import SetupError
from aioprod.testing.jars import (
    KAFKA_VERSIONS,
    kafka_jars,
    kafka_tools_jars,
    spark_kafka_connector_jars,
)
from aioprod.testing.kafka_process import kafka_class_archive
from aioprod.testing.real_kafka import RealKafka
from tests import loops
from tests.testing.java_compiler import java_compiler

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How long an example takes says nothing about the code: the machine may be loaded, or the build
# slow, as that of .ci/sanitize.
settings.register_profile("any-speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-speed")

_MARKERS_OF_FIXTURES = {
    "kafka": "kafka",
    "kafka_3_9": "kafka",
    "kafka_4_1": "kafka",
    "spark": "spark",
}
_ON_DEMAND = ("benchmarks", "faults", "interop", "strangers", "wheels")
_TASK_END_TIMEOUT_S = 1.0
# Kafka deletes segments of old records half a minute after its start: tests write such records.
_KEEP_OLD_RECORDS = {"log.initial.task.delay.ms": "86400000"}
# Members of a KIP-848 group, and of a share group (KIP-932), learn of a change with their next
# heartbeat; a test would wait for most of Kafka's default interval of five seconds. These are the
# embedded broker's settings, but its shortest lock is 1 ms.
_QUICK_GROUPS = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "1",
    "group.consumer.min.session.timeout.ms": "1",
    "group.share.assignment.interval.ms": "0",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.min.heartbeat.interval.ms": "1",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.session.timeout.ms": "1",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test that uses a slow fixture, so that `-m "not kafka and not spark"` deselects all
    of them. Tests that take minutes run only if `-m` names their marker.
    """
    for item in items:
        for name, marker in _MARKERS_OF_FIXTURES.items():
            if name in getattr(item, "fixturenames", ()):
                item.add_marker(marker)
        # One process runs all tests that share the Spark session, and one those that share the
        # broker, also if they start their own Spark.
        markers = (
            ("spark", "kafka")
            if "spark" in getattr(item, "fixturenames", ())
            else ("kafka", "spark")
        )
        group = next((marker for marker in markers if item.get_closest_marker(marker)), None)
        if group:
            item.add_marker(pytest.mark.xdist_group(group))
    unasked = [marker for marker in _ON_DEMAND if marker not in config.option.markexpr]
    left_out = [
        item
        for item in items
        if any(item.get_closest_marker(marker) for marker in unasked)
        or (config.option.loop == "uvloop" and _needs_asyncio(item))
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        unwanted = set(left_out)
        items[:] = [item for item in items if item not in unwanted]


def _virtual_time(item: pytest.Item) -> pytest.Mark | None:
    return None if item.get_closest_marker("real_time") else item.get_closest_marker("virtual_time")


def _needs_asyncio(item: pytest.Item) -> bool:
    """Whether a test needs the simulated loop, or changes asyncio's own."""
    if item.get_closest_marker("asyncio_loop"):
        return True
    mark = _virtual_time(item)
    return mark is not None and mark.kwargs.get("needed", True)


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run tests marked ``virtual_time``, and their fixtures, in a simulated loop: a limit of
    milliseconds is over when all that the test waits for took that long, however slow the machine.

    A single parameter of a test may have the marker, which is known when the test begins. The
    marker ``real_time`` of a test has precedence: threads and processes know no other time. With
    ``--loop=uvloop`` such tests are left out, except those that also run against a real broker
    (``virtual_time(needed=False)``): they take real time.
    """
    return {"loop": lambda: _new_loop()}


_new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    global _new_loop
    _new_loop = loops.factory(item.config.option.loop, virtual=_virtual_time(item) is not None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--loop",
        choices=loops.KINDS,
        default=loops.KINDS[0],
        help="the event loop of all tests: asyncio's own; uvloop's; asyncio's with "
        "asyncio.eager_task_factory (Python 3.12); or asyncio's in debug mode",
    )


def pytest_configure() -> None:
    # A full collection takes 0.2 s with all modules loaded, and by default there is one every few
    # seconds: a tenth of a run's CPU time.
    gc.set_threshold(700, 10, 100)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Download jars and make the archive of Kafka's classes before the first test, whose time limit
    is too short for that.

    If jars cannot be downloaded, the fixtures fail with the reason.
    """
    if session.config.option.collectonly:
        return
    _freeze()
    # A process of pytest-xdist with --dist loadgroup.
    if getattr(session.config.option, "loadgroup", False):
        alone = [
            item.nodeid
            for item in session.items
            if item.get_closest_marker("xdist_group") and "@" not in item.nodeid
        ]
        assert not alone, (
            "pytest-xdist would start brokers and Spark in each process: it has not marked "
            f"the group of {alone[0]}"
        )
    wanted: dict[str, list[Callable[[], object]]] = {
        "kafka": [
            *(partial(kafka_jars, version) for version in KAFKA_VERSIONS),
            kafka_tools_jars,
            java_compiler,
            _make_class_archive,
        ],
        "spark": [spark_kafka_connector_jars],
    }
    for marker, fetches in wanted.items():
        if any(item.get_closest_marker(marker) for item in session.items):
            for fetch in fetches:
                try:
                    fetch()
                except SetupError:
                    pass


def _freeze() -> None:
    """Keep the garbage collector from visiting the tests and modules again: tests that look for
    leaks collect hundreds of times, each time for 0.2 s.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def quick_collections() -> None:
    """The same for what was loaded since then, such as PySpark."""
    _freeze()


def _make_class_archive() -> None:
    kafka_class_archive(KAFKA_VERSIONS[0], kafka_jars())


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedCluster]:
    """An embedded broker on the test's event loop."""
    async with EmbeddedCluster() as running:
        yield running


@pytest.fixture
def threaded_broker() -> Iterator[ThreadedCluster]:
    """An embedded broker on an event loop in a separate thread, for clients that block."""
    with EmbeddedCluster.in_thread() as running:
        yield running


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """Bootstrap servers of a real Apache Kafka broker, shared by the whole run: use unique topic
    names.
    """
    with RealKafka(settings=_QUICK_GROUPS | _KEEP_OLD_RECORDS) as running:
        yield running.bootstrap_servers


@pytest.fixture(scope="session")
def kafka_3_9() -> Iterator[str]:
    """Bootstrap servers of a real Apache Kafka 3.9 broker, shared by the whole run: use unique
    topic names.
    """
    with RealKafka(version="3.9.2", settings=_KEEP_OLD_RECORDS) as running:
        yield running.bootstrap_servers


@pytest.fixture(scope="session")
def kafka_4_1() -> Iterator[str]:
    """The same of Apache Kafka 4.1."""
    with RealKafka(version="4.1.0", settings=_KEEP_OLD_RECORDS) as running:
        yield running.bootstrap_servers


@pytest.fixture(
    params=[
        pytest.param("embedded", marks=pytest.mark.virtual_time(needed=False)),
        pytest.param("real", marks=pytest.mark.kafka),
    ]
)
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Bootstrap servers of an embedded broker in virtual time, then of a real one."""
    if request.param == "real":
        servers: str = request.getfixturevalue("kafka")
        return servers
    running: EmbeddedCluster = request.getfixturevalue("broker")
    return running.bootstrap_servers


@pytest.fixture(scope="session")
def spark_home_without_zip() -> Path:
    """A home for Spark whose Python processes start in half the CPU time."""
    from aioprod.spark.spark_home import quick_spark_home

    home = quick_spark_home()
    assert home is not None
    return home


@pytest.fixture
def quick_python(spark_home_without_zip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test that starts its own Spark."""
    monkeypatch.setenv("SPARK_HOME", str(spark_home_without_zip))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark session of two cores with Spark's own Kafka connector, shared by the whole run, since
    its start takes seconds.
    """
    # Imported late, since runs without Spark do not need it.
    from aioprod.spark import spark_session_builder

    directory = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.jars": ",".join(str(jar) for jar in spark_kafka_connector_jars()),
        "spark.driver.memory": "1g",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.adaptive.enabled": "false",
        # With few rows, compiling code for each query takes longer than running it without.
        "spark.sql.codegen.wholeStage": "false",
    }
    with pytest.MonkeyPatch.context() as patch:
        # The builder sets these; restore them afterwards.
        for name in (
            "JAVA_HOME",
            "PYSPARK_PYTHON",
            "PYSPARK_DRIVER_PYTHON",
            "PYTHONPATH",
            "SPARK_HOME",
        ):
            patch.setenv(name, os.environ.get(name, ""))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        builder = spark_session_builder("local[2]", app_name="aioprod-tests")
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()


@pytest.fixture(autouse=True)
def no_task_left(request: pytest.FixtureRequest) -> None:
    """Fail an async test if a task that it or its fixtures started outlives it."""
    if inspect.iscoroutinefunction(getattr(request.node, "obj", None)):
        request.getfixturevalue("_task_leak_check")


@pytest.fixture
async def _task_leak_check() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    if left:
        # Cancelled tasks and those about to end get time to end.
        _, left = await asyncio.wait(left, timeout=_TASK_END_TIMEOUT_S)
    assert not left, (
        "tasks left after the test: "
        f"{[task.get_name() + ': ' + repr(task.get_coro()) for task in left]}"
    )
