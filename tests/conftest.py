"""Fixtures for the tests of several rooms: brokers, Spark, and the check that no task is left."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from tests import loops, orphans, selection, stalls
from tests.selection import Selection
from tests.testing.java_compiler import java_compiler
from tests.waiting import programs_per_core

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How long an example takes says nothing about the code: the machine may be loaded, or the build
# slow, as that of .ci/sanitize.
settings.register_profile(
    "any-speed",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=int(os.environ.get("AIOPROD_EXAMPLES", 50)),
)
settings.load_profile("any-speed")

_MARKERS_OF_FIXTURES = {
    "kafka": "kafka",
    "kafka_3_9": "kafka",
    "kafka_4_1": "kafka",
    "spark": "spark",
}
_SHARED_BROKERS = {"bootstrap", "kafka", "kafka_3_9", "kafka_4_1"}
_OWN_BROKERS = {"RealCluster", "RealKafka", "java_clients"}
_SELECTION = pytest.StashKey[Selection]()
_TASK_END_TIMEOUT_S = 1.0
# Objects that the garbage collector visits in 10 ms.
_MANY = 20_000
_CLOCKS = {name: getattr(time, name) for name in ("time", "time_ns", "monotonic", "monotonic_ns")}
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
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test that uses a slow fixture, and the process that runs it."""
    for item in items:
        for name, marker in _MARKERS_OF_FIXTURES.items():
            if name in getattr(item, "fixturenames", ()):
                item.add_marker(marker)
        if group := _group_of(item):
            item.add_marker(pytest.mark.xdist_group(group))


def _group_of(item: pytest.Item) -> str | None:
    """One process runs all tests that share the Spark session, and one those that share a broker,
    even if they start their own Spark. Modules that start brokers of their own are a third group.
    """
    fixtures = getattr(item, "fixturenames", ())
    if "spark" in fixtures:
        return "spark"
    marks = {mark.name for mark in item.iter_markers()}
    if "kafka" in marks:
        own = _OWN_BROKERS.intersection(vars(getattr(item, "module", None) or object))
        return "brokers" if own and not _SHARED_BROKERS.intersection(fixtures) else "kafka"
    return "spark" if "spark" in marks else None


class _Chooser:
    """Leaves tests out, including those outside this folder."""

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        return config.stash[_SELECTION].ignores(collection_path) or None

    # When all markers are known, including those that other conftest.py add.
    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        chosen, left_out = config.stash[_SELECTION].split(items)
        if config.option.loop == "uvloop":
            left_out += [item for item in chosen if _needs_asyncio(item)]
            chosen = [item for item in chosen if not _needs_asyncio(item)]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = chosen


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of pytest-xdist reports to the one that prints the summary."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(session.config.stash[_SELECTION].left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    left_out = getattr(node, "workeroutput", {}).get("left_out", {})
    node.config.stash[_SELECTION].left_out |= Counter(left_out)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for line in selection.summary(config.stash[_SELECTION].left_out):
        terminalreporter.write_line(line)


def _virtual_time(item: pytest.Item) -> pytest.Mark | None:
    return None if item.get_closest_marker("real_time") else item.get_closest_marker("virtual_time")


def _needs_asyncio(item: pytest.Item) -> bool:
    """Return whether a test needs the simulated loop, or changes asyncio's own."""
    if item.get_closest_marker("asyncio_loop"):
        return True
    mark = _virtual_time(item)
    return mark is not None and mark.kwargs.get("needed", True)


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run tests marked ``virtual_time``, and their fixtures, in a simulated loop: a limit of
    milliseconds has passed when all that the test waits for took that long, on any machine.

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


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Give a test the more time, the more programs share the machine. Freeze after a file of tests
    that has loaded much, such as kio's messages.
    """
    shared_by = programs_per_core()
    if shared_by > 1:
        marker = item.get_closest_marker("timeout")
        of_run = item.config.getoption("timeout") or item.config.getini("timeout")
        if limit_s := float((marker.args[0] if marker else of_run) or 0):
            item.add_marker(pytest.mark.timeout(limit_s * shared_by), append=False)
    result = yield
    if nextitem is not None and nextitem.path != item.path and len(gc.get_objects()) > _MANY:
        _freeze()
    return result


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    """Fail a test that leaves a clock patched, as later tests would run in the time of another, or
    a connection open whose event loop has ended.
    """
    yield
    left = [name for name, clock in _CLOCKS.items() if getattr(time, name) is not clock]
    for name in left:
        setattr(time, name, _CLOCKS[name])
    forgotten = loops.close_forgotten_connections()
    assert not left, (
        f"the test leaves these functions of time patched: {', '.join(left)}; undo a patch that is "
        "made in virtual time before the test ends, with pytest.MonkeyPatch.context()"
    )
    assert not forgotten, f"the test leaves connections open: {'; '.join(forgotten)}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all",
        action="store_true",
        help="also run tests with a real Kafka, Spark and large packages: needs the extra "
        f"{selection.EXTRA}",
    )
    parser.addoption(
        "--loop",
        choices=loops.KINDS,
        default=loops.KINDS[0],
        help="the event loop of all tests: asyncio's own; uvloop's; asyncio's with "
        "asyncio.eager_task_factory (Python 3.12); or asyncio's in debug mode",
    )
    parser.addoption(
        "--stalls",
        type=float,
        metavar="MS",
        help="each process stops again and again for up to MS, as on a busy machine",
    )


def pytest_configure(config: pytest.Config) -> None:
    # A full collection takes 0.2 s with all modules loaded, and by default there is one every few
    # seconds: a tenth of a run's CPU time.
    gc.set_threshold(700, 10, 100)
    loops.watch_connections()
    # Tests start hundreds of Python processes: each would compile the package again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    chosen = config.stash[_SELECTION] = Selection(config.option.all, config.option.markexpr)
    if chosen.needs_all_packages and (missing := selection.missing_packages()):
        raise pytest.UsageError(
            f"not installed: {', '.join(missing)}; run `{selection.INSTALL}` for --all and the "
            "markers spark and all_packages"
        )
    if config.option.loop == "eager" and sys.version_info < (3, 12):
        raise pytest.UsageError("--loop=eager needs Python 3.12, for asyncio.eager_task_factory")
    config.pluginmanager.register(_Chooser())
    if config.option.stalls:
        stalls.start(config.option.stalls)
    if not config.option.collectonly:
        orphans.start_guard()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector: what is made then stays, and visiting it again and
    again takes a quarter of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Download jars and make the archive of Kafka's classes before the first test, whose time limit
    is too short for that.

    If jars cannot be downloaded, the fixtures fail with the reason.
    """
    # Each process of pytest-xdist would have other names, and the run ends before it begins.
    changing = [item.nodeid for item in session.items if " at 0x" in item.nodeid]
    assert not changing, f"a parameter's address is part of the test's name: {changing[0]}"
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
