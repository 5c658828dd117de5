"""Outputs that are not acknowledged yet do not keep the next records of their key from being
handled, and nothing is committed before they are.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

import pytest

from aioprod import Admin, ErrorCode, Producer, ProducerRecord, TopicPartition
from aioprod.admin import ConfigResource
from aioprod.processing import (
    BatchProcessor,
    ProcessingError,
    Processor,
    ProcessorSettings,
    Record,
    RetryPolicy,
    ShareProcessor,
)
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.produce import ProduceRequest
from aioprod.testing import EmbeddedCluster, delay, fail, hold
from tests.waiting import until

pytestmark = pytest.mark.virtual_time

Raw = Record[bytes | None, bytes | None]
INPUT = TopicPartition("orders", 0)
ORDERS = ["key", "partition"]
# Records whose output goes to another topic than that of the others.
SLOW = b"slow"


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedCluster]:
    """Two nodes: a request that is kept does not keep those to the other one."""
    async with EmbeddedCluster(nodes=2, replication_factor=1) as running:
        yield running


async def fill(broker: EmbeddedCluster, *values: bytes) -> None:
    for topic in ("orders", "out", "dead"):
        broker.create_topic(topic, 1)
    broker.create_topic("slow", 2)
    async with Producer(broker.bootstrap_servers) as producer:
        for value in values:
            await producer.send("orders", value, key=b"k")


def settings(broker: EmbeddedCluster, **changes: Any) -> ProcessorSettings:
    made: Any = {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": "g",
        "commit_interval_ms": 20,
        "producer": {"linger_ms": 0},
        **changes,
    }
    result: ProcessorSettings = made
    return result


def requests_to(broker: EmbeddedCluster, topic: str) -> Callable[[Any], bool]:
    """Return whether a Produce is for a topic."""

    def is_for(request: ProduceRequest) -> bool:
        wanted = broker.topics[topic].topic_id
        return any(each.topic_id == wanted or each.name == topic for each in request.topic_data)

    return is_for


def position(broker: EmbeddedCluster) -> int:
    return broker.committed_offsets("g").get(INPUT, 0)


def is_committed(broker: EmbeddedCluster, partition: int) -> bool:
    committed = broker.committed_offsets("g").get(TopicPartition("orders", partition))
    return committed == len(broker.records("orders", partition))


def values(broker: EmbeddedCluster, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


class Handler:
    """Returns an output for each record, and notes the calls."""

    def __init__(self) -> None:
        self.calls: list[bytes | None] = []

    async def __call__(self, record: Raw) -> ProducerRecord:
        self.calls.append(record.value)
        if record.value == SLOW:
            return ProducerRecord("slow", record.value, record.key, partition=1)
        return ProducerRecord("out", record.value, record.key)

    async def batch(self, records: Sequence[Raw]) -> list[ProducerRecord]:
        return [await self(record) for record in records]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once"])
async def test_slow_acknowledgements_do_not_slow_a_key_down(
    broker: EmbeddedCluster, guarantee: str, order: str
) -> None:
    """300 outputs, acknowledged after 100 ms each: one after the other they took 30 s."""
    await fill(broker, *(b"%d" % number for number in range(300)))
    broker.on_every(ApiKey.PRODUCE, delay(0.1))
    handle, loop = Handler(), asyncio.get_running_loop()
    async with Processor(handle, "orders", **settings(broker, guarantee=guarantee, order=order)):
        began = loop.time()
        await until(lambda: position(broker) == 300 and len(values(broker, "out")) == 300)
        assert loop.time() - began < 3
    assert values(broker, "out") == [b"%d" % number for number in range(300)]
    assert handle.calls == values(broker, "out")


async def test_a_share_processor_does_not_wait_either(broker: EmbeddedCluster) -> None:
    await fill(broker, *(b"%d" % number for number in range(300)))
    async with Admin(broker.bootstrap_servers) as admin:
        await admin.incremental_alter_configs(
            {ConfigResource.group("g"): {"share.auto.offset.reset": "earliest"}}
        )
    broker.on_every(ApiKey.PRODUCE, delay(0.1))
    handle, loop = Handler(), asyncio.get_running_loop()
    async with ShareProcessor(
        handle,
        "orders",
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        reject_failed=True,
        max_pending_records=1_000,
        producer={"linger_ms": 0},
    ) as processor:
        began = loop.time()
        await until(lambda: processor.metrics()["records-accepted-total"] == 300)
        assert loop.time() - began < 5
    assert values(broker, "out") == [b"%d" % number for number in range(300)]


async def test_no_position_is_committed_before_the_outputs_are_acknowledged(
    broker: EmbeddedCluster,
) -> None:
    await fill(broker, b"a", SLOW, b"b", b"c")
    rule = broker.on(ApiKey.PRODUCE, hold(), where=requests_to(broker, "slow"))
    handle = Handler()
    async with Processor(handle, "orders", **settings(broker)) as processor:
        await until(lambda: values(broker, "out") == [b"a", b"b", b"c"])
        await asyncio.sleep(1)
        assert position(broker) == 1
        assert processor.metrics()["records-handled-total"] == 3
        rule.release()
        await until(lambda: position(broker) == 4)
    assert handle.calls == [b"a", SLOW, b"b", b"c"]


@pytest.mark.parametrize("most", [10, 100])
async def test_unacknowledged_records_are_limited(broker: EmbeddedCluster, most: int) -> None:
    await fill(broker, *(b"%d" % number for number in range(500)))
    rule = broker.on_every(ApiKey.PRODUCE, hold())
    handle = Handler()
    async with Processor(
        handle, "orders", **settings(broker, max_pending_records=most)
    ) as processor:
        await until(lambda: handle.calls)
        await asyncio.sleep(5)
        assert len(handle.calls) <= most
        assert processor.metrics()["records-queued"] <= most
        rule.cancel()
        rule.release()
        await until(lambda: position(broker) == 500)


async def test_an_output_that_fails_later_is_retried_and_so_are_the_records_after_it(
    broker: EmbeddedCluster,
) -> None:
    await fill(broker, b"a", SLOW, b"b", b"c")
    rule = broker.on(
        ApiKey.PRODUCE,
        hold(),
        fail(ErrorCode.INVALID_RECORD),
        where=requests_to(broker, "slow"),
    )
    handle = Handler()
    retry = RetryPolicy(attempts=2, backoff_ms=100)
    async with Processor(handle, "orders", **settings(broker, retry=retry)) as processor:
        await until(lambda: values(broker, "out") == [b"a", b"b", b"c"])
        rule.release()
        await until(lambda: position(broker) == 4)
        measured = processor.metrics()
    assert handle.calls == [b"a", SLOW, b"b", b"c", SLOW, b"b", b"c"]
    assert values(broker, "slow") == [SLOW]
    assert values(broker, "out") == [b"a", b"b", b"c", b"b", b"c"]
    assert measured["handler-errors-total"] == measured["records-retried-total"] == 1


async def test_records_that_wait_are_handled_after_the_one_whose_output_failed(
    broker: EmbeddedCluster,
) -> None:
    await fill(broker, b"a", SLOW, b"b", b"c")
    rule = broker.on(
        ApiKey.PRODUCE, hold(), fail(ErrorCode.INVALID_RECORD), where=requests_to(broker, "slow")
    )
    going_on = asyncio.Event()
    handle = Handler()

    async def wait_at_b(record: Raw) -> ProducerRecord:
        if record.value == b"b" and handle.calls == [b"a", SLOW]:
            handle.calls.append(b"b begins")
            await going_on.wait()
        return await handle(record)

    retry = RetryPolicy(attempts=2, backoff_ms=100)
    async with Processor(wait_at_b, "orders", **settings(broker, retry=retry)):
        await until(lambda: handle.calls[-1:] == [b"b begins"])
        rule.release()
        await asyncio.sleep(1)
        going_on.set()
        await until(lambda: position(broker) == 4)
    assert handle.calls == [b"a", SLOW, b"b begins", b"b", SLOW, b"b", b"c"]


@pytest.mark.parametrize(
    "seed",
    [
        *range(3),
        *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 5)),
        *(pytest.param(seed, marks=pytest.mark.faults) for seed in range(5, 12)),
    ],
)
@pytest.mark.parametrize("batches", [False, True])
async def test_the_last_outputs_of_each_key_are_in_order(
    broker: EmbeddedCluster, batches: bool, seed: int
) -> None:
    """Requests are slow or refused at random; a refused batch has outputs of many keys."""
    rng = random.Random(seed)
    broker.create_topic("orders", 2)
    broker.create_topic("out", 2)
    count = 200
    async with Producer(broker.bootstrap_servers) as producer:
        for number in range(count):
            key = b"%d" % rng.randrange(6)
            await producer.send("orders", b"%d" % number, key=key, partition=int(key) % 2)

    async def handle(record: Raw) -> ProducerRecord:
        if rng.random() < 0.3:
            await asyncio.sleep(rng.uniform(0, 0.02))
        assert record.key is not None
        if rng.random() < 0.1:
            raise ValueError("not now")
        return ProducerRecord("out", record.value, record.key, partition=int(record.key) % 2)

    async def handle_batch(records: Sequence[Raw]) -> list[ProducerRecord]:
        return [await handle(record) for record in records]

    broker.on_every(ApiKey.PRODUCE, fail(ErrorCode.INVALID_RECORD), nth=rng.randrange(3, 9))
    broker.on_every(ApiKey.PRODUCE, delay(0.05), nth=2)
    retry = RetryPolicy(attempts=1_000, backoff_ms=rng.choice([0, 30]))
    made = settings(broker, retry=retry, order=rng.choice(ORDERS), concurrency=rng.choice([1, 8]))
    made["max_pending_records"] = rng.choice([5, 1_000])
    kind: Any = BatchProcessor if batches else Processor
    async with kind(handle_batch if batches else handle, "orders", **made):
        for number in range(2):
            await until(partial(is_committed, broker, number))
    wanted: defaultdict[Any, list[Any]] = defaultdict(list)
    last: defaultdict[Any, list[Any]] = defaultdict(list)
    for record in broker.records("orders"):
        wanted[record.key].append(record.value)
    for record in broker.records("out"):
        if record.value in last[record.key]:
            last[record.key].remove(record.value)
        last[record.key].append(record.value)
    assert last == wanted


async def test_a_dead_letter_does_not_repeat_the_records_after_it(
    broker: EmbeddedCluster,
) -> None:
    await fill(broker, b"a", SLOW, b"b", b"c")
    rule = broker.on(
        ApiKey.PRODUCE, hold(), fail(ErrorCode.INVALID_RECORD), where=requests_to(broker, "slow")
    )
    handle = Handler()
    retry = RetryPolicy(attempts=1)
    async with Processor(
        handle, "orders", **settings(broker, retry=retry, dead_letter_topic="dead")
    ):
        await until(lambda: values(broker, "out") == [b"a", b"b", b"c"])
        await until(lambda: position(broker) == 1)
        rule.release()
        await until(lambda: position(broker) == 4)
    assert handle.calls == [b"a", SLOW, b"b", b"c"]
    (letter,) = broker.records("dead")
    assert letter.value == SLOW
    assert b"BrokerError" in (dict(letter.headers)["aioprod.error-class"] or b"")


async def test_a_processor_that_may_not_skip_stops_before_the_record(
    broker: EmbeddedCluster,
) -> None:
    await fill(broker, b"a", SLOW, b"b", b"c")
    broker.on_every(
        ApiKey.PRODUCE, fail(ErrorCode.INVALID_RECORD), where=requests_to(broker, "slow")
    )
    handle = Handler()
    with pytest.raises(ProcessingError, match="the record at offset 1 of orders-0 was not"):
        await Processor(handle, "orders", **settings(broker, retry=RetryPolicy(attempts=1))).run(
            handle_signals=False
        )
    assert position(broker) == 1


async def test_a_batch_whose_output_fails_is_handled_one_by_one(broker: EmbeddedCluster) -> None:
    await fill(broker, b"a", SLOW, b"b", b"c")
    broker.on(ApiKey.PRODUCE, fail(ErrorCode.INVALID_RECORD), where=requests_to(broker, "slow"))
    handle = Handler()
    async with BatchProcessor(
        handle.batch, "orders", **settings(broker, retry=RetryPolicy(attempts=2))
    ):
        await until(lambda: position(broker) == 4)
    every = [b"a", SLOW, b"b", b"c"]
    assert handle.calls == every * 2
    assert values(broker, "out")[-3:] == [b"a", b"b", b"c"]


async def test_a_record_of_a_share_group_is_accepted_when_its_outputs_are_acknowledged(
    broker: EmbeddedCluster,
) -> None:
    await fill(broker, b"a", SLOW, b"b")
    async with Admin(broker.bootstrap_servers) as admin:
        await admin.incremental_alter_configs(
            {ConfigResource.group("g"): {"share.auto.offset.reset": "earliest"}}
        )
    rule = broker.on(
        ApiKey.PRODUCE, hold(), fail(ErrorCode.INVALID_RECORD), where=requests_to(broker, "slow")
    )
    handle = Handler()
    async with ShareProcessor(
        handle,
        "orders",
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        reject_failed=True,
        producer={"linger_ms": 0},
    ) as processor:
        await until(lambda: processor.metrics()["records-accepted-total"] == 2)
        await asyncio.sleep(1)
        assert processor.metrics()["records-accepted-total"] == 2
        rule.release()
        await until(lambda: values(broker, "slow") == [SLOW])
        await until(lambda: processor.metrics()["records-accepted-total"] == 3)
    assert handle.calls.count(SLOW) == 2


async def test_stopping_waits_for_outputs(broker: EmbeddedCluster) -> None:
    await fill(broker, b"a", SLOW, b"b")
    broker.on(ApiKey.PRODUCE, delay(2), where=requests_to(broker, "slow"))
    handle = Handler()
    async with Processor(handle, "orders", **settings(broker, drain_timeout_ms=5_000)):
        await until(lambda: len(handle.calls) == 3)
    assert position(broker) == 3
    assert values(broker, "slow") == [SLOW]


@pytest.mark.parametrize("drain_ms", [100, 5_000])
async def test_a_revocation_waits_for_outputs(broker: EmbeddedCluster, drain_ms: int) -> None:
    await fill(broker, b"a", SLOW, b"b")
    broker.on(ApiKey.PRODUCE, delay(2), where=requests_to(broker, "slow"))
    first, second = Handler(), Handler()
    made = settings(
        broker,
        drain_timeout_ms=drain_ms,
        consumer={"heartbeat_interval_ms": 100, "partition_assignment_strategy": ("range",)},
    )
    async with Processor(first, "orders", **made):
        await until(lambda: len(first.calls) == 3)
        async with Processor(second, "orders", **made):
            await until(lambda: position(broker) == 3)
    again = first.calls[3:] + second.calls
    if drain_ms == 5_000:
        assert again == []
    else:
        assert again[-2:] == [SLOW, b"b"]


async def test_a_cancellation_commits_nothing_that_is_not_acknowledged(
    broker: EmbeddedCluster,
) -> None:
    await fill(broker, b"a", SLOW, b"b")
    broker.on_every(ApiKey.PRODUCE, hold(), where=requests_to(broker, "slow"))
    handle = Handler()
    processor = Processor(handle, "orders", **settings(broker))
    task = asyncio.create_task(processor.run(handle_signals=False))
    await until(lambda: len(handle.calls) == 3 and position(broker) == 1)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0.1)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 60)
    assert position(broker) == 1
    again = Handler()
    broker.clear_rules()
    async with Processor(again, "orders", **settings(broker)):
        await until(lambda: position(broker) == 3)
    assert again.calls == [SLOW, b"b"]
