"""Processors against the embedded broker: retries, dead letters, batches, guarantees, the end."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from aioprod import (
    BrokerConnectionError,
    ConfigError,
    ErrorCode,
    JsonDeserializer,
    KafkaError,
    Producer,
    ProducerRecord,
    StringDeserializer,
    TopicPartition,
)
from aioprod.processing import (
    BatchProcessor,
    DeadLettered,
    Handled,
    HandlerFailed,
    OffsetsCommitted,
    ProcessingError,
    Processor,
    ProcessorObserver,
    ProcessorSettings,
    ProcessorStatus,
    Record,
    RetryPolicy,
    RetryTopic,
)
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, drop_after, drop_before, fail
from aioprod.testing.simulation import SimulatedLoop
from tests.waiting import until

pytestmark = pytest.mark.virtual_time

Raw = Record[bytes | None, bytes | None]
GUARANTEES = ["at_most_once", "at_least_once", "exactly_once"]
ORDERS = TopicPartition("orders", 0)


async def fill(broker: EmbeddedCluster, *values: bytes, key: bytes | None = b"k") -> None:
    if "orders" not in broker.topics:
        for topic in ("orders", "out", "dead", "retry.1", "retry.2"):
            broker.create_topic(topic, 1)
    async with Producer(broker.bootstrap_servers) as producer:
        for value in values:
            await producer.send("orders", value, key=key)


def settings(broker: EmbeddedCluster, **changes: Any) -> ProcessorSettings:
    made: Any = {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": "g",
        "commit_interval_ms": 20,
        "retry": RetryPolicy(attempts=2, backoff_ms=100),
        **changes,
    }
    if made.get("guarantee") == "at_most_once":
        del made["retry"]
    result: ProcessorSettings = made
    return result


def committed(broker: EmbeddedCluster, position: int) -> Callable[[], bool]:
    return lambda: broker.committed_offsets("g").get(ORDERS) == position


# -- retries and dead letters ----------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_outputs_of_a_handler_are_sent(broker: EmbeddedCluster, guarantee: str) -> None:
    async def handle(record: Raw) -> list[ProducerRecord]:
        return [ProducerRecord("out", (record.value or b"") * 2, record.key)]

    await fill(broker, b"a", b"b", b"c")
    async with Processor(handle, "orders", **settings(broker, guarantee=guarantee)):
        await until(lambda: len(broker.records("out", committed_only=True)) == 3)
        await until(committed(broker, 3))
    assert [record.value for record in broker.records("out", committed_only=True)] == [
        b"aa",
        b"bb",
        b"cc",
    ]
    assert broker.group("g").members == {}


async def test_a_retry_in_place_keeps_the_order_of_the_key(broker: EmbeddedCluster) -> None:
    seen: list[tuple[bytes | None, int]] = []

    async def handle(record: Raw) -> None:
        seen.append((record.value, record.attempt))
        if record.value == b"a" and record.attempt == 1:
            raise ValueError("not yet")

    await fill(broker, b"a", b"b")
    await fill(broker, b"other", key=b"other")
    async with Processor(handle, "orders", **settings(broker)):
        await until(committed(broker, 3))
    assert seen == [(b"a", 1), (b"other", 1), (b"a", 2), (b"b", 1)]


async def test_a_retry_is_in_time_with_all_handlers_in_use(broker: EmbeddedCluster) -> None:
    called: list[float] = []

    async def handle(record: Raw) -> None:
        called.append(asyncio.get_running_loop().time())
        if record.attempt == 1:
            raise ValueError

    await fill(broker, b"a")
    given = settings(broker, concurrency=1, commit_interval_ms=60_000)
    async with Processor(handle, "orders", **given):
        await until(lambda: len(called) == 2)
    assert called[1] - called[0] < 0.2  # backoff_ms=100


async def test_others_pass_a_retried_record_if_they_may(broker: EmbeddedCluster) -> None:
    seen: list[tuple[bytes | None, int]] = []

    async def handle(record: Raw) -> None:
        seen.append((record.value, record.attempt))
        if record.value == b"a" and record.attempt == 1:
            raise ValueError("not yet")

    await fill(broker, b"a", b"b")
    policy = RetryPolicy(attempts=2, backoff_ms=100, keep_order=False)
    async with Processor(handle, "orders", **settings(broker, retry=policy)):
        await until(committed(broker, 2))
    assert seen == [(b"a", 1), (b"b", 1), (b"a", 2)]


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
async def test_retry_topics_then_the_dead_letter_topic(
    broker: EmbeddedCluster, guarantee: str
) -> None:
    seen: list[tuple[Raw, float]] = []
    loop = asyncio.get_running_loop()

    async def handle(record: Raw) -> None:
        if record.value == b"bad":
            seen.append((record, loop.time()))
            raise ValueError("no stock")

    await fill(broker, b"bad", b"good")
    policy = RetryPolicy(
        attempts=1,
        keep_order=False,
        retry_topics=[RetryTopic("retry.1", 5_000), RetryTopic("retry.2", 60_000)],
    )
    given = settings(broker, retry=policy, dead_letter_topic="dead", guarantee=guarantee)
    async with Processor(handle, "orders", **given) as processor:
        await until(lambda: processor.metrics()["records-dead-lettered-total"], 600)
        measured = processor.metrics()
    assert [record.attempt for record, _ in seen] == [1, 2, 3]
    # The handler sees the same record each time.
    assert {record._replace(attempt=0) for record, _ in seen} == {seen[0][0]._replace(attempt=0)}
    first, second, third = (moment for _, moment in seen)
    assert 4.9 <= second - first <= 7 and 59.9 <= third - second <= 62
    (letter,) = broker.records("dead", committed_only=True)
    headers = dict(letter.headers)
    assert letter.value == b"bad" and letter.key == b"k"
    assert headers["aioprod.original-topic"] == b"orders"
    assert headers["aioprod.original-offset"] == b"0"
    assert headers["aioprod.attempts"] == b"3"
    assert headers["aioprod.error-class"] == b"builtins.ValueError"
    assert headers["aioprod.error-message"] == b"no stock"
    assert measured["records-dead-lettered-total"] == 1
    assert measured["records-retried-total"] == 2


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_a_poison_pill_is_dead_lettered_with_its_bytes(
    broker: EmbeddedCluster, guarantee: str
) -> None:
    seen: list[Any] = []

    async def handle(record: Record[str | None, Any]) -> None:
        seen.append((record.key, record.value))

    await fill(broker, b'{"n": 1}', b"{not json \xff", b'{"n": 2}')
    async with Processor(
        handle,
        "orders",
        key_deserializer=StringDeserializer(),
        value_deserializer=JsonDeserializer(),
        **settings(broker, dead_letter_topic="dead", guarantee=guarantee),
    ):
        await until(lambda: len(seen) == 2 and broker.records("dead", committed_only=True))
        await until(committed(broker, 3))
    assert seen == [("k", {"n": 1}), ("k", {"n": 2})]
    (letter,) = broker.records("dead", committed_only=True)
    assert (letter.key, letter.value) == (b"k", b"{not json \xff")
    headers = dict(letter.headers)
    assert headers["aioprod.error-class"] == b"aioprod.errors.DeserializationError"
    assert headers["aioprod.attempts"] == b"0"


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
async def test_a_record_that_may_not_be_skipped_stops_the_processor(
    broker: EmbeddedCluster, guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(record: Raw) -> None:
        if record.value == b"bad":
            raise ValueError("no stock")

    await fill(broker, b"good", b"bad", b"good")
    processor = Processor(handle, "orders", **settings(broker, guarantee=guarantee))
    with pytest.raises(ProcessingError, match="offset 1 of orders-0 was not processed") as raised:
        await processor.run(handle_signals=False)
    assert isinstance(raised.value.__cause__, ValueError)
    assert (raised.value.topic_partition, raised.value.offset) == (ORDERS, 1)
    assert broker.committed_offsets("g") == {ORDERS: 1}
    assert processor.state.status is ProcessorStatus.STOPPED and not processor.healthy
    assert "the processor of group 'g' stops" in caplog.text


async def test_at_most_once_loses_what_fails_and_says_so(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[bytes | None] = []

    async def handle(record: Raw) -> None:
        seen.append(record.value)
        if record.value == b"bad":
            raise ValueError("no stock")

    await fill(broker, b"bad", b"good")
    async with Processor(handle, "orders", **settings(broker, guarantee="at_most_once")):
        await until(lambda: len(seen) == 2)
    assert seen == [b"bad", b"good"]
    assert "offset 0 of orders-0 is lost" in caplog.text


async def test_an_output_that_cant_be_sent_is_a_failure_of_its_record(
    broker: EmbeddedCluster,
) -> None:
    async def handle(record: Raw) -> ProducerRecord:
        return ProducerRecord("out", b"x" * 2_000_000 if record.value == b"bad" else b"x")

    await fill(broker, b"bad", b"good")
    async with Processor(handle, "orders", **settings(broker, dead_letter_topic="dead")):
        await until(committed(broker, 2))
    (letter,) = broker.records("dead")
    error = dict(letter.headers)["aioprod.error-class"]
    assert error == b"aioprod.errors.RecordTooLargeError"
    assert len(broker.records("out")) == 1


async def test_exactly_once_stops_at_an_output_that_cant_be_sent(broker: EmbeddedCluster) -> None:
    async def handle(record: Raw) -> ProducerRecord:
        return ProducerRecord("out", b"x" * 2_000_000)

    await fill(broker, b"bad")
    given = settings(broker, guarantee="exactly_once", dead_letter_topic="dead")
    with pytest.raises(Exception, match="2000"):
        await Processor(handle, "orders", **given).run(handle_signals=False)
    assert broker.committed_offsets("g") == {}
    assert broker.records("out", committed_only=True) == []


@pytest.mark.parametrize("kind", [ValueError, asyncio.CancelledError, GeneratorExit])
async def test_any_error_of_a_handler_is_a_failure(
    broker: EmbeddedCluster, kind: type[BaseException]
) -> None:
    async def handle(record: Raw) -> None:
        if record.value == b"bad":
            raise kind("x")

    await fill(broker, b"bad", b"good")
    async with Processor(handle, "orders", **settings(broker, dead_letter_topic="dead")):
        await until(committed(broker, 2))
    assert [record.value for record in broker.records("dead")] == [b"bad"]


# -- batches ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guarantee", "order"),
    [("at_least_once", "key"), ("exactly_once", "partition"), ("at_most_once", "none")],
)
async def test_batches(broker: EmbeddedCluster, guarantee: str, order: str) -> None:
    sizes: list[int] = []

    async def handle(records: Sequence[Raw]) -> list[ProducerRecord]:
        sizes.append(len(records))
        return [ProducerRecord("out", record.value, record.key) for record in records]

    values = [b"%d" % n for n in range(100)]
    await fill(broker, *values)
    given = settings(broker, guarantee=guarantee, order=order)
    async with BatchProcessor(handle, "orders", max_batch_records=30, **given):
        await until(lambda: len(broker.records("out", committed_only=True)) == 100)
        await until(committed(broker, 100))
    assert max(sizes) == 30 and sum(sizes) == 100
    if order != "none":
        out = [record.value for record in broker.records("out", committed_only=True)]
        assert out == values


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
async def test_only_the_record_at_fault_of_a_batch_is_dead_lettered(
    broker: EmbeddedCluster, guarantee: str
) -> None:
    good: list[bytes | None] = []
    calls: list[int] = []

    async def handle(records: Sequence[Raw]) -> list[ProducerRecord]:
        calls.append(len(records))
        if any(record.value == b"3" for record in records):
            raise ValueError("no stock")
        good.extend(record.value for record in records)
        return [ProducerRecord("out", record.value, record.key) for record in records]

    await fill(broker, *(b"%d" % n for n in range(6)))
    given = settings(broker, guarantee=guarantee, order="partition", dead_letter_topic="dead")
    async with BatchProcessor(handle, "orders", max_batch_records=6, **given):
        await until(committed(broker, 6))
    assert good == [b"0", b"1", b"2", b"4", b"5"]
    assert calls[:6] == [6, 1, 1, 1, 1, 1]
    assert [record.value for record in broker.records("dead", committed_only=True)] == [b"3"]
    assert [r.value for r in broker.records("out", committed_only=True)] == good


# -- order, buffers --------------------------------------------------------------------------------


async def test_handlers_that_never_wait_leave_time_for_other_tasks(broker: EmbeddedCluster) -> None:
    """Together they keep the event loop for 10 ms, and then for a record of each."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    turns = [loop.time()]

    async def handle(record: Raw) -> None:
        loop.jump(0.002)

    async def other_task() -> None:
        while True:
            await asyncio.sleep(0)
            turns.append(loop.time())

    await fill(broker, *(b"%d" % number for number in range(500)), key=None)
    async with Processor(handle, "orders", **settings(broker, concurrency=16)):
        other = asyncio.create_task(other_task())
        await until(committed(broker, 500))
        other.cancel()
    assert max(after - before for before, after in pairwise(turns)) < 0.01 + 17 * 0.002


async def test_a_slow_key_does_not_delay_others_beyond_the_buffer(
    broker: EmbeddedCluster,
) -> None:
    release = asyncio.Event()
    seen: list[bytes | None] = []

    async def handle(record: Raw) -> None:
        if record.key == b"slow":
            await release.wait()
        seen.append(record.value)

    await fill(broker, b"first", key=b"slow")
    for number in range(50):
        await fill(broker, b"%d" % number, key=b"%d" % number)
    async with Processor(handle, "orders", **settings(broker, max_pending_records=20)) as processor:
        await until(lambda: len(seen) >= 19)
        await asyncio.sleep(600)  # longer than max.poll.interval.ms: paused members poll
        assert len(seen) == 19  # with the slow one the buffer of 20
        assert processor.in_flight_by_key() == {(ORDERS, b"slow"): 1}
        assert processor.lag() == {ORDERS: 51}
        assert broker.committed_offsets("g") == {}
        assert len(broker.group("g").members) == 1
        release.set()
        await until(committed(broker, 51))
        assert processor.lag() == {ORDERS: 0}


@pytest.mark.parametrize("order", ["key", "partition", "none"])
async def test_order(broker: EmbeddedCluster, order: str) -> None:
    running: dict[bytes | None, int] = defaultdict(int)
    most = {"key": 0, "all": 0}

    async def handle(record: Raw) -> None:
        running[record.key] += 1
        most["key"] = max(most["key"], running[record.key])
        most["all"] = max(most["all"], sum(running.values()))
        await asyncio.sleep(0.1)
        running[record.key] -= 1

    await fill(broker, *(b"x" for _ in range(10)), key=b"a")
    await fill(broker, *(b"x" for _ in range(10)), key=b"b")
    async with Processor(handle, "orders", **settings(broker, order=order, concurrency=8)):
        await until(committed(broker, 20))
    assert (
        most
        == {
            "key": {"key": 1, "all": 2},
            "partition": {"key": 1, "all": 1},
            "none": {"key": 8, "all": 8},
        }[order]
    )


# -- the end ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("way", ["stop", "cancel", "error of the block"])
async def test_the_end_waits_for_handlers_and_commits(
    broker: EmbeddedCluster, guarantee: str, way: str
) -> None:
    began = asyncio.Event()
    done: list[bytes | None] = []

    async def handle(record: Raw) -> None:
        began.set()
        await asyncio.sleep(2)
        done.append(record.value)

    await fill(broker, b"a", b"b", b"c")
    given = settings(broker, guarantee=guarantee)
    processor = Processor(handle, "orders", **given)
    if way == "error of the block":
        with pytest.raises(KeyError):
            async with processor:
                await began.wait()
                raise KeyError
    else:
        task = asyncio.create_task(processor.run(handle_signals=False))
        await began.wait()
        if way == "stop":
            await processor.stop()
            await task
        else:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    # With at-most-once the others are committed, so no member would read them again.
    assert done == ([b"a", b"b", b"c"] if guarantee == "at_most_once" else [b"a"])
    assert broker.committed_offsets("g") == {ORDERS: len(done)}
    assert broker.group("g").members == {}
    assert processor.state == (ProcessorStatus.STOPPED, False, False, None)


async def test_handlers_that_take_too_long_are_cancelled(broker: EmbeddedCluster) -> None:
    cancelled: list[bytes | None] = []
    began = asyncio.Event()

    async def handle(record: Raw) -> None:
        began.set()
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            cancelled.append(record.value)
            raise

    await fill(broker, b"a")
    loop = asyncio.get_running_loop()
    async with Processor(handle, "orders", **settings(broker, drain_timeout_ms=5_000)):
        await began.wait()
        start = loop.time()
    assert 4.9 <= loop.time() - start <= 7
    assert cancelled == [b"a"] and broker.committed_offsets("g") == {}


async def test_a_second_cancellation_ends_at_once(broker: EmbeddedCluster) -> None:
    began = asyncio.Event()

    async def handle(record: Raw) -> None:
        began.set()
        await asyncio.sleep(1_000)

    await fill(broker, b"a")
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(
        Processor(handle, "orders", **settings(broker)).run(handle_signals=False)
    )
    await began.wait()
    start = loop.time()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0.01)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert loop.time() - start < 2


async def test_a_failed_start_leaves_nothing_open(broker: EmbeddedCluster) -> None:
    async def handle(record: Raw) -> None: ...

    given = settings(broker)
    await broker.stop_all()
    processor = Processor(handle, "orders", **given)
    with pytest.raises(BrokerConnectionError):
        await processor.run(handle_signals=False)
    assert processor.state.status is ProcessorStatus.STOPPED
    await processor.stop()
    with pytest.raises(ConfigError, match="can be started only once"):
        await processor.start()


async def test_deserializers_are_closed_with_the_processor(broker: EmbeddedCluster) -> None:
    closed: list[str] = []

    class Text(StringDeserializer):
        def close(self) -> None:
            closed.append("text")

    async def handle(record: Record[bytes | None, str | None]) -> None: ...

    await fill(broker, b"a")
    async with Processor(handle, "orders", value_deserializer=Text(), **settings(broker)):
        assert closed == []
    assert closed == ["text"]


# -- observers, state ------------------------------------------------------------------------------


async def test_observers_learn_of_everything_and_break_nothing(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    received: list[Any] = []

    class Spy(ProcessorObserver):
        def on_handled(self, event: Handled) -> None:
            received.append(event)

        def on_handler_failed(self, event: HandlerFailed) -> None:
            received.append(event)

        def on_dead_letter(self, event: DeadLettered) -> None:
            received.append(event)

        def on_offsets_committed(self, event: OffsetsCommitted) -> None:
            received.append(event)

    class Faulty(ProcessorObserver):
        def on_handled(self, event: Handled) -> None:
            raise ValueError("broken observer")

    async def handle(record: Raw) -> None:
        if record.value == b"bad":
            raise ValueError("no stock")

    await fill(broker, b"bad", b"good")
    given = settings(broker, observers=[Faulty(), Spy()], dead_letter_topic="dead")
    async with Processor(handle, "orders", **given) as processor:
        await until(committed(broker, 2))
        measured = processor.metrics()
    kinds = [type(event) for event in received]
    assert kinds[:4] == [HandlerFailed, HandlerFailed, DeadLettered, Handled]
    assert [event.next_step for event in received[:2]] == ["retry", "dead letter"]
    assert [event.attempt for event in received[:2]] == [1, 2]
    assert received[-1] == OffsetsCommitted({ORDERS: 2})
    assert "Faulty.on_handled failed" in caplog.text
    assert measured["records-handled-total"] == 1 and measured["handler-errors-total"] == 2
    assert measured["assigned-partitions"] == 1 and measured["records-queued"] == 0


async def test_ready_and_healthy(broker: EmbeddedCluster) -> None:
    async def handle(record: Raw) -> None: ...

    await fill(broker, b"a")
    processor = Processor(handle, "orders", **settings(broker, unhealthy_after_ms=20_000))
    assert (processor.ready, processor.healthy) == (False, True)

    async def probe(path: str) -> tuple[int, Any]:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            raise AssertionError

        await processor.health_app({"type": "http", "path": path}, receive, send)
        return sent[0]["status"], json.loads(sent[1]["body"])

    async with processor:
        await until(lambda: processor.ready)
        assert processor.healthy
        expected = {"status": "running", "ready": True, "healthy": True}
        assert await probe("/kafka/ready") == (200, expected)
        await broker.stop_all()
        await until(lambda: not processor.ready)
        assert processor.state.status is ProcessorStatus.FAILING and processor.healthy
        assert (await probe("/ready/"))[0] == 503 and (await probe("/healthy"))[0] == 200
        await until(lambda: not processor.healthy)
        assert (await probe("/healthy"))[0] == 503
        await broker.start()
        await until(lambda: processor.ready and processor.healthy)
    assert await probe("/healthy") == (
        503,
        {"status": "stopped", "ready": False, "healthy": False},
    )


# -- commits ---------------------------------------------------------------------------------------


async def test_a_commit_that_is_refused_is_repeated(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(record: Raw) -> None: ...

    await fill(broker, b"a")
    broker.on(ApiKey.OFFSET_COMMIT, fail(ErrorCode.GROUP_AUTHORIZATION_FAILED), times=2)
    async with Processor(handle, "orders", **settings(broker)):
        await until(committed(broker, 1))
    assert caplog.text.count("positions not committed; retrying") == 2


async def test_at_most_once_reads_again_what_could_not_be_committed(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[bytes | None] = []

    async def handle(record: Raw) -> None:
        seen.append(record.value)

    await fill(broker, b"a", b"b")
    broker.on(ApiKey.OFFSET_COMMIT, fail(ErrorCode.GROUP_AUTHORIZATION_FAILED), times=2)
    async with Processor(handle, "orders", **settings(broker, guarantee="at_most_once")):
        await until(lambda: len(seen) == 2)
    assert seen == [b"a", b"b"]


async def test_an_aborted_transaction_is_repeated_without_the_handler(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[bytes | None] = []

    async def handle(record: Raw) -> ProducerRecord:
        calls.append(record.value)
        return ProducerRecord("out", record.value)

    await fill(broker, b"a", b"b")
    broker.on(ApiKey.TXN_OFFSET_COMMIT, fail(ErrorCode.ILLEGAL_GENERATION), times=2)
    async with Processor(handle, "orders", **settings(broker, guarantee="exactly_once")):
        await until(committed(broker, 2))
    assert calls == [b"a", b"b"]
    assert [r.value for r in broker.records("out", committed_only=True)] == [b"a", b"b"]
    assert caplog.text.count("a transaction was aborted; retrying") == 1


async def test_a_transaction_without_an_outcome_stops_the_processor(
    broker: EmbeddedCluster,
) -> None:
    async def handle(record: Raw) -> ProducerRecord:
        return ProducerRecord("out", record.value)

    await fill(broker, b"a")
    rule = broker.on(ApiKey.END_TXN, drop_before(), times=None)
    given = settings(broker, guarantee="exactly_once")
    with pytest.raises(KafkaError, match="not known whether a transaction was committed"):
        async with asyncio.timeout(600):
            await Processor(handle, "orders", **given).run(handle_signals=False)
    rule.cancel()
    async with Processor(handle, "orders", **given):
        await until(committed(broker, 1))
    assert [r.value for r in broker.records("out", committed_only=True)] == [b"a"]


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_a_response_to_a_commit_that_is_lost_changes_nothing(
    broker: EmbeddedCluster, guarantee: str
) -> None:
    calls: list[bytes | None] = []

    async def handle(record: Raw) -> ProducerRecord:
        calls.append(record.value)
        return ProducerRecord("out", record.value)

    await fill(broker, b"a", b"b")
    for api in (ApiKey.OFFSET_COMMIT, ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT):
        broker.on(api, drop_after(), times=1)
    async with Processor(handle, "orders", **settings(broker, guarantee=guarantee)):
        await until(lambda: len(broker.records("out", committed_only=True)) == 2)
        await until(committed(broker, 2))
    assert calls == [b"a", b"b"]
    assert [r.value for r in broker.records("out", committed_only=True)] == [b"a", b"b"]


async def test_a_zombie_stops(broker: EmbeddedCluster) -> None:
    async def handle(record: Raw) -> ProducerRecord:
        return ProducerRecord("out", record.value)

    await fill(broker, b"a")
    given = settings(broker, guarantee="exactly_once", transactional_id="copy-1")
    task = asyncio.create_task(Processor(handle, "orders", **given).run(handle_signals=False))
    await until(committed(broker, 1))
    async with Producer(broker.bootstrap_servers, transactional_id="copy-1"):
        await fill(broker, b"b")
        with pytest.raises(Exception, match=r"FENCED|INVALID_PRODUCER_EPOCH"):
            await task
    assert [r.value for r in broker.records("out", committed_only=True)] == [b"a"]


# -- settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"drain_timeout_ms": 300_000}, "must be below max_poll_interval_ms=300000"),
        (
            {"dead_letter_topic": "orders"},
            "topic 'orders' is read, and failed records are sent to it",
        ),
        (
            {"retry": RetryPolicy(keep_order=False, retry_topics=[RetryTopic("orders", 1)])},
            "topic 'orders' is read, and failed records are sent to it",
        ),
        ({"group_id": ""}, "group_id=''"),
        ({"order": "keys"}, "order='keys': must be one of key, partition, none"),
        ({"guarantee": "twice"}, "guarantee='twice': must be one of at_most_once"),
        ({"concurrency": 0}, "concurrency=0: must be from 1"),
        ({"max_pending_records": 1}, "max_pending_records=1: must be from 2"),
        ({"guarantee": "at_most_once", "retry": RetryPolicy()}, "at_most_once' with retries"),
        ({"transactional_id": "t"}, "only 'exactly_once' uses it"),
        ({"concurency": 3}, "unknown setting 'concurency': did you mean 'concurrency'"),
        ({"linger_ms": 3}, "give it as producer={'linger_ms': ...}"),
        ({"session_timeout_ms": 3}, "give it as consumer={'session_timeout_ms': ...}"),
        ({"consumer": {"enable_auto_commit": True}}, "is set by the processor"),
        ({"producer": {"value_serializer": str}}, "is set by the processor"),
        (
            {
                "dead_letter_topic": "r",
                "retry": RetryPolicy(keep_order=False, retry_topics=[RetryTopic("r", 1)]),
            },
            "must not be in retry_topics",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], text: str) -> None:
    async def handle(record: Raw) -> None: ...

    with pytest.raises(ConfigError, match=text.replace("(", r"\(")):
        Processor(handle, "orders", **{"group_id": "g", **changes})


def test_what_is_missing_is_named() -> None:
    async def handle(record: Raw) -> None: ...

    async def handle_batch(records: Sequence[Raw]) -> None: ...

    with pytest.raises(ConfigError, match="group_id is missing"):
        Processor(handle, "orders")
    with pytest.raises(ConfigError, match="no topics"):
        Processor(handle, group_id="g")
    with pytest.raises(ConfigError, match="must be 'partition'"):
        BatchProcessor(handle_batch, "orders", group_id="g", guarantee="exactly_once")
    with pytest.raises(ConfigError, match="max_batch_records=0"):
        BatchProcessor(handle_batch, "orders", group_id="g", max_batch_records=0)
