"""The order of calls where calls are cancelled, time out, or wait for something that changes."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Coroutine
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioprod import Producer, ProducerInterceptor, ProducerRecord, TransactionStateError
from aioprod.codecs import Codec
from aioprod.producer.partition_queue import PartitionQueue, Schedule, Topic
from aioprod.producer.partitioner import StickyPartition
from aioprod.producer.pending import PendingCall
from aioprod.producer.sequences import ProducerState
from aioprod.producer.topic_gate import TopicGate
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, hold

LIMIT_S = 30


def values(broker: EmbeddedCluster, topic: str, partition: int | None = None) -> list[bytes]:
    return [record.value or b"" for record in broker.records(topic, partition)]


def assert_nothing_is_left(producer: Producer) -> None:
    gate, appender = producer._core.gate, producer._core.appender
    assert not gate._arrivals
    assert not appender._lines._queues and appender._lines._timer.due == float("inf")
    for topic in producer._accumulator.topics.values():
        assert topic.reserved_by is None and not topic.line
        assert not any(queue.line or queue.resting for queue in topic.queues)
    assert producer._pool.available == producer._pool.total and not producer._pool.reserved


def after_update(producer: Producer, action: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do something in the turn in which metadata come, before any waiting task runs."""
    update = TopicGate.update

    def updated(gate: TopicGate) -> None:
        update(gate)
        if producer._accumulator.topics:
            action()

    monkeypatch.setattr(TopicGate, "update", updated)


def one_of_many(number: int) -> ProducerRecord:
    return ProducerRecord("t", b"%d" % number, partition=1)


async def test_many_records_for_a_new_partition_are_stored_once(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", 1)
    async with asyncio.timeout(LIMIT_S), Producer(broker.bootstrap_servers) as producer:
        await producer.partitions_for("t")
        broker.add_partitions("t", 2)
        before = asyncio.create_task(producer.send("t", b"before", partition=1))
        many = asyncio.create_task(producer.send_many("t", map(one_of_many, range(3))))
        after = asyncio.create_task(producer.send("t", b"after", partition=1))
        await asyncio.gather(before, many, after)
        await producer.flush()
        assert_nothing_is_left(producer)
    assert values(broker, "t", 1) == [b"before", b"0", b"1", b"2", b"after"]


async def test_those_in_line_for_a_new_partition_ask_for_it(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", 1)
    async with asyncio.timeout(LIMIT_S), Producer(broker.bootstrap_servers) as producer:
        await producer.partitions_for("t")
        deadline = asyncio.get_running_loop().time() + LIMIT_S
        async with producer._core.gate.reserve("t", deadline):
            calls: list[Coroutine[Any, Any, Any]] = [
                producer.send("t", b"0", partition=1),
                producer.send_many("t", map(one_of_many, range(1, 3))),
                producer.send("t", b"3", partition=1),
            ]
            tasks = [asyncio.create_task(call) for call in calls]
            await asyncio.sleep(0)
            broker.add_partitions("t", 2)
        await asyncio.gather(*tasks)
        await producer.flush()
        assert_nothing_is_left(producer)
    assert values(broker, "t", 1) == [b"0", b"1", b"2", b"3"]


async def test_many_records_ask_once_for_a_partition_that_is_not_there(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer takes retry_backoff_ms, and all other calls for the topic wait meanwhile."""
    broker.create_topic("t", 1)
    asks = 0
    arrive = TopicGate._arrive

    async def counted(gate: TopicGate, call: PendingCall, name: str) -> None:
        nonlocal asks
        asks += 1
        await arrive(gate, call, name)

    monkeypatch.setattr(TopicGate, "_arrive", counted)
    async with asyncio.timeout(LIMIT_S), Producer(broker.bootstrap_servers) as producer:
        await producer.partitions_for("t")
        deliveries = await producer.send_many("t", map(one_of_many, range(10)))
        assert len(deliveries.exceptions()) == 10 and asks == 1
        assert_nothing_is_left(producer)


@pytest.mark.parametrize("many", [False, True], ids=["send", "send_many"])
async def test_one_cancelled_as_metadata_come_has_left_every_line(
    broker: EmbeddedCluster, many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(LIMIT_S), Producer(broker.bootstrap_servers) as producer:
        first = asyncio.create_task(producer.send_many("t", [b"1", b"2"]))
        await asyncio.sleep(0)
        call = producer.send_many("t", [b"never"]) if many else producer.send("t", b"never")
        victim: asyncio.Task[Any] = asyncio.create_task(call)
        after_update(producer, victim.cancel, monkeypatch)
        await asyncio.wait([first, victim])
        assert victim.cancelled()
        await producer.send_and_wait("t", b"3")
        await producer.flush()
        assert_nothing_is_left(producer)
    assert values(broker, "t") == [b"1", b"2", b"3"]


async def test_a_place_given_as_the_time_ends_counts(broker: EmbeddedCluster) -> None:
    """A call whose record was taken must not say that it was not."""
    async with asyncio.timeout(LIMIT_S), Producer(broker.bootstrap_servers) as producer:
        await producer.partitions_for("t")
        loop = asyncio.get_running_loop()
        gate = producer._core.gate
        async with gate.reserve("t", loop.time() + LIMIT_S):
            send = asyncio.create_task(producer.send("t", b"1"))
            many = asyncio.create_task(producer.send_many("t", [b"2"]))
            await asyncio.sleep(0)
            for call in producer._accumulator.topics["t"].line:
                assert call._future is not None
                call.time_out()
        await (await send)
        assert not (await many).exceptions()
        await producer.flush()
        assert_nothing_is_left(producer)
    assert values(broker, "t") == [b"1", b"2"]


class Elsewhere(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(topic="elsewhere")


async def test_an_interceptor_may_send_one_of_many_to_another_topic(
    broker: EmbeddedCluster,
) -> None:
    settings: dict[str, Any] = {"interceptors": [Elsewhere()], "max_block_ms": 2_000}
    async with asyncio.timeout(LIMIT_S), Producer(broker.bootstrap_servers, **settings) as producer:
        await (await producer.send_many("t", [b"1", b"2"])).wait()
        await (await producer.send_many("t", [b"3"])).wait()
    assert values(broker, "elsewhere") == [b"1", b"2", b"3"]


@pytest.mark.parametrize("known", [True, False], ids=["known topic", "new topic"])
@pytest.mark.parametrize("rows", [10, 2_000])
async def test_no_record_passes_a_table_that_came_before(
    broker: EmbeddedCluster, known: bool, rows: int
) -> None:
    broker.create_topic("t", 1)
    table = pa.table({"value": [b"row"] * rows})
    async with asyncio.timeout(LIMIT_S), Producer(broker.bootstrap_servers) as producer:
        if known:
            await producer.partitions_for("t")
        calls: list[Coroutine[Any, Any, Any]] = [
            producer.send_arrow("t", table),
            producer.send("t", b"after"),
        ]
        await asyncio.gather(*calls)
        await producer.flush()
        assert_nothing_is_left(producer)
    assert values(broker, "t") == [b"row"] * rows + [b"after"]


async def test_calls_that_wait_do_not_go_into_the_next_transaction(broker: EmbeddedCluster) -> None:
    """Each call in line takes a turn of the loop to end, and an abort has only a few."""
    broker.create_topic("t", 1)
    settings: dict[str, Any] = {"batch_size": 1_000, "buffer_memory": 1_100}
    async with (
        asyncio.timeout(LIMIT_S),
        Producer(broker.bootstrap_servers, transactional_id="t-1", **settings) as producer,
    ):
        kept_back = broker.on(ApiKey.PRODUCE, hold(), times=1)
        await producer.begin_transaction()
        await producer.send("t", b"x" * 800)
        calls: list[Coroutine[Any, Any, Any]] = [producer.send("t", b"x" * 300) for _ in range(100)]
        calls += [producer.send_many("t", [b"x" * 300] * 10), producer.send("t", b"x")]
        calls += [producer.send_arrow("t", pa.table({"value": [b"x"]}))]
        tasks = [asyncio.create_task(call) for call in calls]
        await kept_back.wait()
        kept_back.release()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait("t", b"of the second")
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(result) for result in results} == {TransactionStateError}
        assert_nothing_is_left(producer)
    assert [record.value for record in broker.records("t", committed_only=True)] == [
        b"of the second"
    ]


async def test_those_in_line_fill_large_batches(broker: EmbeddedCluster) -> None:
    """A batch of which a part has to be encoded still has room: it is not full."""
    broker.create_topic("t", 1)
    settings: dict[str, Any] = {"batch_size": 900_000, "buffer_memory": 4_000_000}
    async with asyncio.timeout(LIMIT_S), Producer(broker.bootstrap_servers, **settings) as producer:
        await producer.partitions_for("t")
        queue = producer._accumulator.topics["t"].queues[0]
        kept_back = broker.on(ApiKey.PRODUCE, hold(), times=1)
        tasks = [asyncio.create_task(producer.send("t", b"x" * 110_000)) for _ in range(40)]
        tasks += [asyncio.create_task(producer.send("t", b"x" * 300)) for _ in range(8_000)]
        await kept_back.wait()
        before = queue.opened
        assert producer.metrics()["waiting-threads"] > 8_000
        kept_back.release()
        await asyncio.gather(*tasks)
        assert queue.opened - before <= 35  # 60 where each part made a batch
        await producer.flush()
        assert_nothing_is_left(producer)


async def test_a_batch_is_not_enlarged_beyond_the_memory_there_is(broker: EmbeddedCluster) -> None:
    """Records that compress well may share a batch, but not for more than buffer_memory."""
    broker.create_topic("t", 1)
    settings: dict[str, Any] = {"compression_type": "gzip", "buffer_memory": 65_536}
    async with asyncio.timeout(LIMIT_S), Producer(broker.bootstrap_servers, **settings) as producer:
        await producer.partitions_for("t")
        producer._accumulator.topics["t"].ratio = 0.03
        for _ in range(3):
            await (await producer.send("t", b"x" * 50_000))
            await asyncio.gather(*[await producer.send("t", b"x" * 50_000) for _ in range(2)])
    assert len(values(broker, "t")) == 9


def seconds_to_empty(calls: int) -> float:
    """Processor time for a line from which the first leaves, and again the first."""
    topic = Topic("t", StickyPartition(16_384, random.Random(0), adaptive=True), Codec.NONE, None)
    queue = PartitionQueue(topic, 0, ProducerState("p"), Schedule(0.0, lambda at: None))
    for _ in range(calls):
        queue.join(PendingCall(0.0))
    begun = time.process_time()
    while queue.first is not None:
        queue.leave(queue.first)
    return time.process_time() - begun


def test_long_lines_cost_linear_work() -> None:
    """The first item of a dict is found only after all removed ones."""
    few, many = (min(seconds_to_empty(calls) for _ in range(3)) for calls in (5_000, 40_000))
    assert many < 8 * 3 * few  # it would be 64 times as much
