"""A processor whose partition makes no progress says so once, with what keeps it up: in the log, in
its state, to probes, and in the numbers of its consumer.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from aioprod import ConsumerObserver, ErrorCode, Producer
from aioprod.metrics import StallChanged
from aioprod.processing import BatchProcessor, Processor, ProcessorStatus, RetryPolicy
from aioprod.processing.processor import ProcessorBase
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, fail, hold
from tests.processing.test_processor import ORDERS, Raw, committed, fill, settings
from tests.waiting import until

pytestmark = pytest.mark.virtual_time

LIMIT_S = 4.0
UNHEALTHY_S = 10.0


class Received(ConsumerObserver):
    def __init__(self) -> None:
        self.stalls: list[StallChanged] = []

    def on_stall(self, event: StallChanged) -> None:
        self.stalls.append(event)


def watched(broker: EmbeddedCluster, received: Received, **changes: Any) -> Any:
    return settings(
        broker,
        max_pending_records=8,
        unhealthy_after_ms=int(UNHEALTHY_S * 1000),
        consumer={"stall_timeout_ms": int(LIMIT_S * 1000), "observers": [received]},
        **changes,
    )


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "aioprod.consumer.stall_watch" and record.levelno == logging.WARNING
    ]


async def healthy_probe(processor: ProcessorBase) -> tuple[int, dict[str, Any]]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError

    await processor.health_app({"type": "http", "path": "/healthy"}, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


async def assert_stalls(
    processor: ProcessorBase, caplog: pytest.LogCaptureFixture, received: Received, reason: str
) -> None:
    """It does, says so once, is healthy at first, and unhealthy later."""
    await until(lambda: processor.state.status is ProcessorStatus.STALLED)
    state = processor.state
    assert reason in str(state.error)
    assert state.healthy and state.ready
    await until(lambda: not processor.healthy)
    assert not processor.ready
    status, body = await healthy_probe(processor)
    assert (status, body["status"]) == (503, "stalled") and reason in body["error"]
    (line,) = warnings(caplog)
    assert reason in line
    (event,) = received.stalls
    assert reason in event.reason and not event.is_over


async def assert_reads_again(
    broker: EmbeddedCluster, processor: ProcessorBase, received: Received, position: int
) -> None:
    await until(committed(broker, position))
    await until(lambda: processor.state.status is ProcessorStatus.RUNNING)
    assert processor.ready and processor.healthy
    assert [event.is_over for event in received.stalls] == [False, True]


async def test_a_handler_that_is_busy(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    free = asyncio.Event()

    async def handle(record: Raw) -> None:
        if record.offset == 2:
            await free.wait()

    await fill(broker, *(b"%d" % number for number in range(40)), key=None)
    received = Received()
    async with Processor(handle, "orders", **watched(broker, received)) as processor:
        reason = "it is paused: the handler of the record at offset 2 is busy"
        await assert_stalls(processor, caplog, received, reason)
        assert received.stalls[0].partition == ORDERS
        free.set()
        await assert_reads_again(broker, processor, received, 40)


async def test_all_handlers_are_busy_with_other_partitions(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    free = asyncio.Event()

    async def handle(record: Raw) -> None:
        if record.topic == "retry.1":
            await free.wait()

    await fill(broker, *(b"%d" % number for number in range(40)))
    received = Received()
    given = watched(broker, received, concurrency=1)
    async with Processor(handle, "retry.1", "orders", **given) as processor:
        await until(committed(broker, 40))
        await fill_topic(broker, "retry.1", 1)
        await until(lambda: processor.in_flight_by_key())
        await fill(broker, *(b"%d" % number for number in range(40)))
        reason = "the record at offset 40 waits, all 1 handlers are busy"
        await assert_stalls(processor, caplog, received, reason)
        free.set()
        await assert_reads_again(broker, processor, received, 80)


async def test_a_retry_that_is_due_with_all_handlers_busy(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The wait for the retry was wanted; that for a handler is not."""
    free = asyncio.Event()

    async def handle(record: Raw) -> None:
        if record.offset == 0 and record.attempt == 1:
            raise ValueError
        if record.offset == 1:
            await free.wait()

    await fill(broker, *(b"%d" % number for number in range(40)), key=None)
    received = Received()
    given = watched(broker, received, concurrency=1)
    async with Processor(handle, "orders", **given) as processor:
        reason = "the record at offset 0 waits, all 1 handlers are busy"
        await assert_stalls(processor, caplog, received, reason)
        free.set()
        await assert_reads_again(broker, processor, received, 40)


async def fill_topic(broker: EmbeddedCluster, topic: str, records: int) -> None:
    async with Producer(broker.bootstrap_servers) as producer:
        for _ in range(records):
            await producer.send(topic, b"x")


async def test_transactions_that_are_not_committed(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(record: Raw) -> None: ...

    await fill(broker, *(b"%d" % number for number in range(40)))
    rule = broker.on_every(ApiKey.TXN_OFFSET_COMMIT, hold())
    received = Received()
    given = watched(
        broker, received, guarantee="exactly_once", producer={"request_timeout_ms": 60_000}
    )
    async with Processor(handle, "orders", **given) as processor:
        await assert_stalls(processor, caplog, received, "processed records are not committed yet")
        rule.cancel()
        rule.release()
        await assert_reads_again(broker, processor, received, 40)


async def test_handlers_that_are_slow_and_end_are_no_stall(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The position of the consumer does not move for longer than the limit, as six records of
    three quarters of it are handled before the next poll.
    """

    async def handle(record: Raw) -> None:
        await asyncio.sleep(LIMIT_S * 0.75)

    await fill(broker, *(b"%d" % number for number in range(20)))
    received = Received()
    async with Processor(handle, "orders", **watched(broker, received)) as processor:
        while not committed(broker, 20)():
            assert processor.state.status in (ProcessorStatus.STARTING, ProcessorStatus.RUNNING)
            await asyncio.sleep(0.1)
    assert received.stalls == [] and warnings(caplog) == []


async def test_a_record_that_waits_for_its_retry_is_not_a_stall(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(record: Raw) -> None:
        if record.attempt == 1:
            raise ValueError

    await fill(broker, *(b"%d" % number for number in range(40)))
    received = Received()
    given = watched(broker, received)
    given["retry"] = RetryPolicy(attempts=2, backoff_ms=50_000, backoff_max_ms=50_000)
    async with Processor(handle, "orders", **given) as processor:
        await until(lambda: processor.metrics()["records-retried-total"])
        for _ in range(300):
            assert processor.state.status is ProcessorStatus.RUNNING and processor.healthy
            await asyncio.sleep(0.1)
    assert received.stalls == [] and warnings(caplog) == []


@pytest.mark.parametrize(
    ("api", "code"),
    [
        (ApiKey.FIND_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ApiKey.SYNC_GROUP, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ApiKey.FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
    ids=lambda value: value.name if isinstance(value, ApiKey) else "",
)
async def test_brokers_that_refuse(broker: EmbeddedCluster, api: ApiKey, code: ErrorCode) -> None:
    async def handle(records: Any) -> None: ...

    await fill(broker, b"a")
    rule = broker.on(api, fail(code), times=None)
    received = Received()
    async with BatchProcessor(handle, "orders", **watched(broker, received)) as processor:
        await until(lambda: processor.state.status is ProcessorStatus.FAILING)
        assert code.name in str(processor.state.error)
        assert processor.healthy and not processor.ready
        await until(lambda: not processor.healthy)
        assert (await healthy_probe(processor))[0] == 503
        rule.cancel()
        await until(committed(broker, 1))
        await until(lambda: processor.ready and processor.healthy)
