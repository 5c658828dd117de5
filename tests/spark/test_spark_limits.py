"""Every coroutine with which Spark's driver waits for brokers ends within the limit that its
docstring names, whatever the servers do.

A coroutine that has no row fails a test.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from dataclasses import replace
from typing import Any

import pytest

import aioprod.spark
from aioprod import Producer, TopicPartition
from aioprod.cluster.client import ClusterClient
from aioprod.cluster.coordinators import CoordinatorType
from aioprod.consumer.partition_reader import (
    FetchSettings,
    PartitionReader,
    list_offsets,
    partitions_of,
)
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerConnectionError
from aioprod.protocol.messages.list_groups import ListGroupsRequest
from aioprod.protocol.messages.metadata import MetadataRequest
from aioprod.spark import checkpoint_positions, planning
from aioprod.spark.coordination import Coordination, CoordinationClient, open_coordination
from aioprod.spark.exactly_once import (
    ages,
    completing,
    decision_log,
    decision_topic,
    driver,
    ending,
    sweeping,
    transactions,
)
from aioprod.spark.exactly_once.decision import Decision
from aioprod.spark.exactly_once.decision_log import DriverPart
from aioprod.spark.exactly_once.ids import Sink
from aioprod.spark.exactly_once.reports import TaskAttempt, TaskReport
from aioprod.spark.filters import Wanted
from aioprod.spark.group_positions import GroupPositions
from aioprod.spark.positions import Position
from aioprod.spark.sink_options import parse_sink_options
from aioprod.spark.source_options import parse_source_options
from aioprod.spark.starting import start_patiently, start_producer
from aioprod.testing import EmbeddedCluster
from aioprod.types import PreparedTransaction
from tests.selection import by_default_each
from tests.testing.bad_servers import GRACE_S, KINDS, ORDERS, Row, time_of

TP = TopicPartition(ORDERS, 0)
BLOCK_MS, REQUEST_MS, DELIVERY_MS, API_MS, CONNECT_MS = 7_000, 3_000, 11_000, 9_000, 5_000
STRAYS_MS, LIST_MS, POSITIONS_MS = 5_000, 3_000, 3_000
COMMIT_MS = 27 * BLOCK_MS + DELIVERY_MS
SINK = Sink("p", "query")
ATTEMPT = TaskAttempt(SINK, "0123abcd", 1, 0, 0)


class Driver:
    """The objects of a driver: a client, a producer, and the report of a task.

    Attributes:
        factor: makes all limits longer.
    """

    factor = 1

    def __init__(self, cluster: EmbeddedCluster) -> None:
        servers = cluster.bootstrap_servers
        times = self.factor
        connecting = {
            f"socket.connection.setup.timeout.{name}": CONNECT_MS * times
            for name in ("ms", "max.ms")
        }
        given = {
            "bootstrap.servers": servers,
            "request.timeout.ms": REQUEST_MS * times,
            **connecting,
        }
        source = {**given, "default.api.timeout.ms": API_MS * times}
        sink = {
            **given,
            "max.block.ms": BLOCK_MS * times,
            "delivery.timeout.ms": DELIVERY_MS * times,
        }
        self.source = parse_source_options(
            {**_options(source), "subscribe": ORDERS}, streaming=False
        )
        self.by_pattern = parse_source_options(
            {**_options(source), "subscribePattern": "ord.*"}, streaming=False
        )
        self.sink = parse_sink_options(
            {**_options(sink), "topic": ORDERS, "delivery": "exactly-once"}
        )
        self.client = self.new_client(servers)
        self.coordination = Coordination(self.client, BLOCK_MS * times / 1000)
        self.unconnected = CoordinationClient(self.sink.producer, "c")
        self.producer = Producer(**{**self.sink.producer, "transactional_id": SINK.driver_id})
        self.part = DriverPart(self.sink, self.coordination, self.producer, SINK)
        self.task = Producer(**{**self.sink.producer, "transactional_id": ATTEMPT.transactional_id})
        self.report = TaskReport(ATTEMPT)
        self.decision = Decision(1, ATTEMPT.run, 0, ())

    def new_client(self, servers: str) -> ClusterClient:
        return ClusterClient(
            servers,
            request_timeout_ms=REQUEST_MS * self.factor,
            socket_connection_setup_timeout_ms=CONNECT_MS * self.factor,
            socket_connection_setup_timeout_max_ms=CONNECT_MS * self.factor,
        )

    async def start(self) -> None:
        await self.client.start()

    async def close(self, *, timeout_ms: float) -> None:
        await self.client.close()
        await self.unconnected.close()
        for producer in (self.producer, self.task):
            await producer.close(timeout_ms=timeout_ms)

    async def wrote(self) -> None:
        """A task has written and prepared its transaction."""
        await self.task.start()
        await self.task.begin_transaction()
        await self.task.send_and_wait(ORDERS, b"x")
        prepared = await self.task.prepare_transaction()
        assert isinstance(prepared, PreparedTransaction)
        self.report = TaskReport(ATTEMPT, prepared, rows=1, topics=frozenset({ORDERS}))
        self.decision = driver.decision_of([self.report], ATTEMPT.run, 1)

    async def began(self) -> None:
        await self.producer.start()
        await self.producer.begin_transaction()


def _options(settings: dict[str, Any]) -> dict[str, str]:
    return {f"kafka.{name}": str(value) for name, value in settings.items()}


async def _ask(it: Driver) -> None:
    def prepare(connection: Any) -> Any:
        return ListGroupsRequest(), connection.pick_version(ListGroupsRequest)

    await it.coordination.ask(
        CoordinatorType.GROUP, "g", prepare, lambda reply: ErrorCode.of(reply.error_code)
    )


async def _read(it: Driver) -> None:
    async for _ in PartitionReader(it.client, TP, 0, 5, FetchSettings(retry_limit_ms=API_MS)):
        pass


async def _open(it: Driver) -> None:
    async with open_coordination(it.sink.producer, "c"):
        pass


async def _retry_until_hopeless(it: Driver) -> None:
    async def attempt() -> None:
        raise BrokerConnectionError("x")

    await it.coordination.retry(attempt, "failing")


async def _decide(it: Driver) -> None:
    await decision_log.decide(it.part, replace(it.decision, topic=ORDERS))


async def _age_test(it: Driver) -> None:
    coordinators = it.client.coordinators
    kind, name = CoordinatorType.TRANSACTION, ATTEMPT.transactional_id
    connection = await it.coordination.retry(
        lambda: coordinators.connection(kind, name), "connecting"
    )
    await ages.age_test(it.coordination, connection, 1, ages.AgeLimit(SINK, 1_000))


async def _enter_and_leave(it: Driver) -> None:
    async with it.client:
        pass


PLANNING = "kafka.default.api.timeout.ms"
STEP = "Coordination.limit_s"
CALLS: dict[str, Row | str] = {
    "cluster.client.ClusterClient.start": Row(
        lambda it: it.client.start(),
        CONNECT_MS,
        ("request_timeout_ms", "socket_connection_setup_timeout_max_ms"),
        ready=False,
    ),
    "cluster.client.ClusterClient.__aenter__": Row(_enter_and_leave, CONNECT_MS, (), ready=False),
    "cluster.client.ClusterClient.__aexit__": Row(lambda it: it.client.__aexit__(), 2_000, ()),
    "cluster.client.ClusterClient.close": Row(lambda it: it.client.close(), 2_000, ("2 seconds",)),
    "cluster.client.ClusterClient.request": Row(
        lambda it: it.client.request(MetadataRequest()),
        2 * CONNECT_MS + 2 * REQUEST_MS,
        ("on top of the timeout",),
    ),
    "cluster.client.ClusterClient.refresh_topics": Row(
        lambda it: it.client.refresh_topics([ORDERS]), REQUEST_MS, ("request_timeout_ms",)
    ),
    "consumer.partition_reader.partitions_of": Row(
        lambda it: partitions_of(it.client, [ORDERS], limit_s=6), 6_000, ("limit_s",)
    ),
    "consumer.partition_reader.list_offsets": Row(
        lambda it: list_offsets(it.client, {TP: -1}, retry_limit_ms=API_MS),
        API_MS,
        ("retry_limit_ms",),
    ),
    "consumer.partition_reader.PartitionReader.__aiter__": Row(
        _read, 2 * API_MS, ("retry_limit_ms",)
    ),
    "spark.coordination.Coordination.ask": Row(_ask, BLOCK_MS, ("limit_s",)),
    "spark.coordination.Coordination.find_coordinators": Row(
        lambda it: it.coordination.find_coordinators(["t"]), BLOCK_MS, ("limit_s",)
    ),
    "spark.coordination.together": "it waits for what it is given, which has limits of its own",
    "spark.coordination.Coordination.retry": Row(_retry_until_hopeless, BLOCK_MS, ("limit_s",)),
    "spark.coordination.open_coordination": Row(_open, BLOCK_MS, ("max_block_ms",)),
    "spark.coordination.CoordinationClient.connected": Row(
        lambda it: it.unconnected.connected(), BLOCK_MS, ("max_block_ms",), ready=False
    ),
    "spark.coordination.CoordinationClient.close": Row(
        lambda it: it.unconnected.close(), 2_000, ("2 seconds",)
    ),
    "spark.kept.Client.close": "a protocol: each client has its own limit",
    "spark.checkpoint_positions.dead_letter_counts": Row(
        lambda it: checkpoint_positions.dead_letter_counts(it.coordination, "p", "query"),
        BLOCK_MS,
        (STEP,),
    ),
    "spark.checkpoint_positions.look_up": Row(
        lambda it: checkpoint_positions.look_up(it.client, [Position({TP: 0}, {})]),
        3 * 60_000,
        ("within a minute",),
    ),
    "spark.exactly_once.decision_log.committed_offsets": Row(
        lambda it: decision_log.committed_offsets(it.coordination, "g", stable=True),
        BLOCK_MS,
        (STEP,),
    ),
    "spark.exactly_once.decision_log.read_decided": Row(
        lambda it: decision_log.read_decided(it.coordination, SINK, stable=True),
        3 * BLOCK_MS,
        (STEP,),
    ),
    "spark.exactly_once.decision_log.decide": Row(
        _decide, 6 * BLOCK_MS, ("max_block_ms",), lambda it: it.producer.start()
    ),
    "spark.exactly_once.decision_topic.write": Row(
        lambda it: decision_topic.write(it.coordination, it.producer, "decisions", SINK, "text"),
        2 * BLOCK_MS + DELIVERY_MS,
        (STEP, "max_block_ms", "delivery_timeout_ms"),
        Driver.began,
    ),
    "spark.exactly_once.decision_topic.read": Row(
        lambda it: decision_topic.read(it.coordination, decision_topic.Place(ORDERS, 0, 0)),
        2 * BLOCK_MS,
        (STEP,),
    ),
    "spark.exactly_once.driver.commit_batch": Row(
        lambda it: driver.commit_batch(it.sink, [it.report], 1),
        COMMIT_MS,
        ("kafka.max.block.ms", "kafka.delivery.timeout.ms"),
        Driver.wrote,
    ),
    "spark.exactly_once.driver.abort_batch": Row(
        lambda it: driver.abort_batch(it.sink, ATTEMPT, strays=True),
        COMMIT_MS + STRAYS_MS,
        ("commit_batch",),
        Driver.wrote,
    ),
    "spark.exactly_once.driver.wait_for_strays": Row(
        lambda it: driver.wait_for_strays(), STRAYS_MS, ("5 seconds",)
    ),
    "spark.exactly_once.driver.fence_older_driver": Row(
        lambda it: driver.fence_older_driver(it.producer),
        BLOCK_MS,
        ("max_block_ms",),
    ),
    "spark.exactly_once.driver.check_transactions": Row(
        lambda it: driver.check_transactions(it.sink, it.coordination, [it.report]),
        2 * BLOCK_MS,
        (f"twice `{STEP}`",),
        Driver.wrote,
    ),
    "spark.exactly_once.ages.age_test": Row(
        _age_test, LIST_MS + 5 * BLOCK_MS, ("3 seconds", STEP), Driver.wrote
    ),
    "spark.exactly_once.completing.look_at": Row(
        lambda it: completing.look_at(it.coordination, SINK, it.decision.prepared(SINK), 900_000),
        2 * BLOCK_MS,
        (STEP,),
        Driver.wrote,
    ),
    "spark.exactly_once.completing.complete": Row(
        lambda it: completing.complete(it.part, it.decision),
        13 * BLOCK_MS,
        (STEP, "decide"),
        Driver.wrote,
    ),
    "spark.exactly_once.completing.commit_or_take_back": Row(
        lambda it: completing.commit_or_take_back(it.part, it.decision),
        10 * BLOCK_MS,
        ("end_decided", "take_back"),
        Driver.wrote,
    ),
    "spark.exactly_once.completing.take_back": Row(
        lambda it: completing.take_back(it.part, it.decision),
        8 * BLOCK_MS,
        (STEP, "decide"),
        Driver.wrote,
    ),
    "spark.exactly_once.ending.end_decided": Row(
        lambda it: ending.end_decided(it.coordination, SINK, it.decision),
        2 * BLOCK_MS,
        (STEP, "64"),
        Driver.wrote,
    ),
    "spark.exactly_once.sweeping.sweep": Row(
        lambda it: sweeping.sweep(it.coordination, SINK, None, ATTEMPT.run),
        LIST_MS + BLOCK_MS,
        (STEP, "3 seconds"),
        Driver.wrote,
    ),
    "spark.exactly_once.sweeping.finish_earlier": Row(
        lambda it: sweeping.finish_earlier(it.coordination, SINK, it.decision, skip_lost=None),
        3 * BLOCK_MS,
        (STEP, "end_decided"),
        Driver.wrote,
    ),
    "spark.exactly_once.transactions.end_transaction": Row(
        lambda it: transactions.end_transaction(
            it.coordination, it.report.transaction, commit=True
        ),
        BLOCK_MS,
        (STEP,),
        Driver.wrote,
    ),
    "spark.exactly_once.transactions.abort_transaction": Row(
        lambda it: transactions.abort_transaction(it.coordination, "t"), BLOCK_MS, (STEP,)
    ),
    "spark.exactly_once.transactions.describe_transactions": Row(
        lambda it: transactions.describe_transactions(
            it.coordination, ["t"], ages.AgeLimit(SINK, 1_000)
        ),
        BLOCK_MS,
        (STEP,),
    ),
    "spark.exactly_once.transactions.list_transactions": Row(
        lambda it: transactions.list_transactions(it.coordination, lambda name: True),
        LIST_MS,
        ("3 seconds",),
    ),
    "spark.group_positions.GroupPositions.commit": Row(
        lambda it: GroupPositions("g").commit(it.client, {TP: 1}), POSITIONS_MS, ("3 seconds",)
    ),
    "spark.planning.select_partitions": Row(
        lambda it: planning.select_partitions(it.client, it.by_pattern),
        API_MS,
        ("one lookup", PLANNING),
    ),
    "spark.planning.plan_batch": Row(
        lambda it: planning.plan_batch(it.client, it.source, Wanted(since_ms=1)),
        6 * API_MS,
        ("six lookups", PLANNING),
    ),
    "spark.planning.initial_offsets": Row(
        lambda it: planning.initial_offsets(it.client, it.source),
        4 * API_MS,
        ("four lookups", PLANNING),
    ),
    "spark.planning.latest_offsets": Row(
        lambda it: planning.latest_offsets(it.client, it.source),
        2 * API_MS,
        ("two lookups", PLANNING),
    ),
    "spark.planning.available_offsets": Row(
        lambda it: planning.available_offsets(it.client, it.source, Position({}, {})),
        3 * API_MS,
        ("three lookups", PLANNING),
    ),
    "spark.planning.plan_stream": Row(
        lambda it: planning.plan_stream(
            it.client, it.source, Position({}, {}), Position({TP: 5}, {})
        ),
        API_MS,
        ("one lookup", PLANNING),
    ),
    "spark.starting.start_producer": Row(
        lambda it: start_producer(it.producer), BLOCK_MS, ("max_block_ms",), ready=False
    ),
    "spark.starting.start_patiently": Row(
        lambda it: start_patiently(it.client.start, it.client.config, 8.0, "kafka.max.block.ms"),
        8_000,
        ("limit_s",),
        ready=False,
    ),
}
# These call the producer, so they have the producer's limits.
IN_TASKS = {
    "spark.dead_letters.DeadLetterWriter.close",
    "spark.dead_letters.DeadLetterWriter.write",
    "spark.exactly_once.task.write_task",
    "spark.exactly_once.task.send_batch",
    "spark.exactly_once.task.prepare",
    "spark.sending.portions",
    "spark.sending.RowSender.send",
    "spark.sending.RowSender.finish",
    "spark.reading.ReadClients.close",
}
# They ask a registry, whose client has the limit: see tests/schema_registry.
OF_A_REGISTRY = {
    "spark.registered.columns.message_of",
    "spark.registered.columns.prepared",
    "spark.registered.rows.RegisteredColumn.decode",
    "spark.registered.rows.RegisteredColumn.open",
    "spark.registered.rows.RegisteredRows.close",
    "spark.registered.rows.RegisteredRows.decode",
    "spark.registered.rows.RegisteredRows.open",
}
ROWS = {name: row for name, row in CALLS.items() if isinstance(row, Row)}


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=by_default_each(2, place)) for place, each in enumerate(ROWS)]
)
def test_a_call_ends_within_its_limit(name: str) -> None:
    row = ROWS[name]
    for kind in KINDS:
        taken = time_of(row, kind, Driver)
        assert taken.seconds <= row.limit_ms / 1000 + GRACE_S, (kind, taken)
        assert taken.connections <= 4 * (taken.seconds + 5), (kind, taken)


@pytest.mark.parametrize("name", ROWS)
def test_a_docstring_names_the_limit(name: str) -> None:
    owner: Any = aioprod
    # The class documents the limit of iterating.
    names = name.removesuffix(".__aiter__").split(".")
    for number, part in enumerate(names):
        owner = getattr(owner, part, None) or importlib.import_module(
            ".".join(["aioprod", *names[: number + 1]])
        )
    text = " ".join((inspect.getdoc(owner) or "").split())
    assert [each for each in ROWS[name].names if each not in text] == []


def test_each_coroutine_of_the_driver_has_a_row() -> None:
    assert public_coroutines() == {*CALLS, *IN_TASKS, *OF_A_REGISTRY}


def public_coroutines() -> set[str]:
    """All that may be awaited in the modules that Spark's driver asks brokers by."""
    spark = [
        module.name for module in pkgutil.walk_packages(aioprod.spark.__path__, "aioprod.spark.")
    ]
    modules = [
        name for name in spark if "registration" not in name and not name.endswith("__main__")
    ]
    found = set()
    for name in ("aioprod.cluster.client", "aioprod.consumer.partition_reader", *modules):
        for local, thing in vars(importlib.import_module(name)).items():
            if getattr(thing, "__module__", None) != name or local.startswith("_"):
                continue
            members = vars(thing) if inspect.isclass(thing) else {"": thing}
            for member, function in members.items():
                if _waits(function) and (
                    not member.startswith("_") or member in ("__aiter__", "__aenter__", "__aexit__")
                ):
                    found.add(
                        ".".join(filter(None, (name.removeprefix("aioprod."), local, member)))
                    )
    return found


def _waits(thing: Any) -> bool:
    plain = (
        inspect.unwrap(getattr(thing, "__func__", thing))
        if callable(getattr(thing, "__func__", thing))
        else None
    )
    return inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain)
