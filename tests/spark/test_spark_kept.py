"""Processes of Spark keep clients between tasks, but not after a failure."""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import Iterator
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioprod.errors import KafkaError
from aioprod.spark import kept, reading, worker_process, writing
from aioprod.spark.kept import KeptClient
from aioprod.spark.offsets import OffsetRange
from aioprod.spark.readers import KafkaReader, KafkaStreamReader
from aioprod.spark.reading import read_ranges
from aioprod.spark.sink import KafkaStreamWriter, KafkaWriter
from aioprod.spark.sink_options import parse_sink_options
from aioprod.spark.source import source_columns
from aioprod.spark.source_options import parse_source_options
from aioprod.testing import ApiKey, ThreadedCluster

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


class Client:
    """A client that counts how often it is closed, in the event loop of its start."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.closed = 0

    async def close(self) -> None:
        assert asyncio.get_running_loop() is self.loop
        self.closed += 1


async def start() -> Client:
    return Client()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def reused(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is one that Spark reuses."""
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    monkeypatch.setattr(worker_process, "_MOST_OBJECTS", 0)  # nothing is frozen


@pytest.fixture
def clients() -> Iterator[KeptClient[Client]]:
    clients: KeptClient[Client] = KeptClient(Clock())
    yield clients
    if clients._kept is not None:
        clients._kept.close()


def test_each_use_has_its_own_client_in_other_processes(clients: KeptClient[Client]) -> None:
    with clients.use("a", start) as (_, first):
        assert not first.closed
    with clients.use("a", start) as (runner, second):
        pass
    assert first is not second and first.closed == second.closed == 1
    with pytest.raises(RuntimeError, match="closed"):
        runner.get_loop()


@pytest.mark.usefixtures("reused")
def test_the_next_use_has_the_same_client_and_event_loop(clients: KeptClient[Client]) -> None:
    with clients.use("a", start) as (_, first):
        pass
    with clients.use("a", start) as (runner, second):
        assert runner.get_loop() is second.loop
    assert first is second and not first.closed


@pytest.mark.usefixtures("reused")
def test_a_client_with_other_settings_is_replaced(clients: KeptClient[Client]) -> None:
    with clients.use("a", start) as (_, first):
        pass
    with clients.use("b", start) as (_, second):
        assert first.closed == 1 and second is not first


@pytest.mark.usefixtures("reused")
def test_a_client_that_was_unused_for_too_long_is_replaced(
    clients: KeptClient[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    with clients.use("a", start) as (_, first):
        pass
    monkeypatch.setattr(Clock, "now", kept.IDLE_LIMIT_S - 0.1)
    with clients.use("a", start) as (_, second):
        assert second is first
    monkeypatch.setattr(Clock, "now", 2 * kept.IDLE_LIMIT_S)
    with clients.use("a", start) as (_, third):
        assert first.closed == 1 and third is not first


@pytest.mark.usefixtures("reused")
def test_a_client_whose_use_has_failed_is_not_used_again(clients: KeptClient[Client]) -> None:
    with pytest.raises(KafkaError, match="lost"), clients.use("a", start) as (_, first):
        raise KafkaError("lost")
    with clients.use("a", start) as (_, second):
        assert first.closed == 1 and second is not first


@pytest.mark.usefixtures("reused")
def test_a_client_that_does_not_start_leaves_nothing(clients: KeptClient[Client]) -> None:
    async def fail() -> Client:
        raise KafkaError("no broker")

    with pytest.raises(KafkaError, match="no broker"), clients.use("a", fail):
        pass
    with clients.use("a", start) as (_, client):
        assert not client.closed


@pytest.mark.usefixtures("reused")
def test_two_uses_at_the_same_time_have_two_clients(clients: KeptClient[Client]) -> None:
    with clients.use("a", start) as (_, outer):
        with clients.use("a", start) as (_, inner):
            assert inner is not outer
    assert (outer.closed, inner.closed) == (1, 0)


@pytest.mark.usefixtures("reused")
def test_tasks_of_one_process_connect_once(
    threaded_broker: ThreadedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    producers: KeptClient[Any] = KeptClient()
    readers: KeptClient[Any] = KeptClient()
    monkeypatch.setattr(writing, "_producers", producers)
    monkeypatch.setattr(reading, "_clients", readers)
    threaded_broker.create_topic("t", 1)
    servers = {"kafka.bootstrap.servers": threaded_broker.bootstrap_servers}
    sink = parse_sink_options({**servers, "topic": "t", "delivery": "at-least-once"})
    source = parse_source_options({**servers, "subscribe": "t"}, streaming=False)

    def work() -> list[int]:
        before = len(threaded_broker.requests)
        writing.write_batches(sink, iter([pa.record_batch({"value": ["1", "2"]})]))
        (batch,) = read_ranges(source, [OffsetRange("t", 0, 1, 2)])
        assert batch.column("value").to_pylist() == [b"2"]
        return [each.api_key for each in threaded_broker.requests][before:]

    try:
        assert work().count(ApiKey.API_VERSIONS) >= 2
        again = work()
        assert ApiKey.API_VERSIONS not in again and ApiKey.INIT_PRODUCER_ID not in again
        assert {ApiKey.PRODUCE, ApiKey.FETCH} <= set(again)
        assert len(threaded_broker.records("t")) == 4
        monkeypatch.delenv("SPARK_REUSE_WORKER")
        work()  # closes what was kept
    finally:
        assert producers._kept is readers._kept is None


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="Linux only")
@pytest.mark.usefixtures("reused")
def test_a_task_asks_for_its_rest_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "_sockets", None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        spark = socket.create_connection(server.getsockname(), timeout=10)
        worker, _ = server.accept()
    with spark, worker:
        worker.settimeout(10)

        def quick() -> bool:
            for _ in range(4):  # from then on the kernel waits for data to acknowledge with
                spark.send(b"task")
                worker.recv(4)
                worker.send(b"done")
                spark.recv(4)
            return bool(worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))

        assert not quick()
        for part in (
            KafkaReader(parse_source_options({**SERVERS, "subscribe": "t"}, streaming=False)),
            KafkaStreamReader(parse_source_options({**SERVERS, "subscribe": "t"}, streaming=True)),
            KafkaWriter(parse_sink_options({**SERVERS, "topic": "t"})),
            KafkaStreamWriter(
                parse_sink_options({**SERVERS, "topic": "t"}),
                source_columns(include_headers=False),
            ),
        ):
            data = pickle.dumps(part)
            assert not quick()
            assert vars(pickle.loads(data)).keys() == vars(part).keys()
            assert worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
        worker.close()
        assert spark.recv(1) == b"", "a copy of the socket keeps its connection open"
        worker_process.acknowledge_at_once()
