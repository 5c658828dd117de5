"""Each metric of a producer changes in the situation that it is for, and observers are called."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aioprod import BufferExhaustedError, ErrorCode, KafkaError, Producer, RecordTooLargeError
from aioprod.metrics import BatchDone, BatchSent, ObservedProducer, ProducerObserver, RequestDone
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, delay, drop_before, fail, hold, throttle
from tests.loops import has_coarse_clock
from tests.waiting import until

FAST = {
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 20,
}


def quick(broker: EmbeddedCluster, **settings: object) -> Producer:
    return Producer(broker.bootstrap_servers, **{"linger_ms": 0, **FAST, **settings})  # type: ignore[call-overload, no-any-return]


async def send_all(producer: Producer, values: list[bytes], topic: str = "t") -> None:
    for delivery in [await producer.send(topic, value) for value in values]:
        await delivery


# -- numbers ---------------------------------------------------------------------------------------


async def test_records_batches_and_requests(broker: EmbeddedCluster) -> None:
    broker.on(ApiKey.PRODUCE, delay(0.005), times=None)  # uvloop's clock moves by milliseconds
    async with quick(broker, linger_ms=5) as producer:
        await producer.send_and_wait("t", b"first")
        await send_all(producer, [b"x" * 100] * 50)
        seen, of_topic, of_node = (
            producer.metrics(),
            producer.metrics_by_topic()["t"],
            producer.metrics_by_node()[1],
        )
    assert (
        seen["record-send-total"]
        == seen["record-acknowledged-total"]
        == of_topic["record-send-total"]
        == 51
    )
    assert seen["record-send-rate"] > 0 and of_topic["record-acknowledged-rate"] > 0
    assert (
        seen["record-error-total"] == seen["record-retry-total"] == seen["batch-split-total"] == 0
    )
    assert seen["batch-size-max"] > 5_000 > seen["batch-size-avg"] > 70
    assert seen["compression-rate-avg"] == pytest.approx(1.0)
    assert 100 < seen["record-size-avg"] < 115
    assert seen["record-queue-time-max"] >= seen["record-queue-time-avg"] > 0
    assert seen["request-total"] == seen["response-total"] == of_node["request-total"] >= 2
    assert seen["records-per-request-avg"] == 51 / seen["request-total"]
    assert seen["request-size-max"] > seen["batch-size-max"]
    assert seen["outgoing-byte-total"] > of_topic["byte-total"] > 5_000
    assert seen["request-latency-max"] >= of_node["request-latency-avg"] > 0


async def test_compression(broker: EmbeddedCluster) -> None:
    async with quick(broker, compression_type="gzip") as producer:
        await producer.send_and_wait("t", b"x" * 2_000)
        assert 0 < producer.metrics()["compression-rate-avg"] < 0.2
        assert 0 < producer.metrics_by_topic()["t"]["compression-rate"] < 0.2


@pytest.mark.parametrize(
    ("trouble", "answers"),
    [(fail(ErrorCode.NOT_ENOUGH_REPLICAS), 3), (drop_before(), 1)],
    ids=["answer", "connection"],
)
async def test_retries(broker: EmbeddedCluster, trouble: object, answers: int) -> None:
    async with quick(broker) as producer:
        broker.on(ApiKey.PRODUCE, trouble, times=2)  # type: ignore[arg-type]
        await producer.send_and_wait("t", b"x")
        seen, of_topic = producer.metrics(), producer.metrics_by_topic()["t"]
    assert [
        seen[f"record-{name}-total"] for name in ("send", "retry", "acknowledged", "error")
    ] == [3, 2, 1, 0]
    assert seen["record-retry-rate"] > 0
    assert of_topic["record-retry-total"] == 2
    assert (seen["request-total"], seen["response-total"]) == (3, answers), (
        "a request that breaks has no answer and no latency"
    )


async def test_errors(broker: EmbeddedCluster) -> None:
    async with quick(broker, max_request_size=1_000) as producer:
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.INVALID_RECORD), times=1)
        with pytest.raises(KafkaError):
            await producer.send_and_wait("t", b"x")
        assert producer.metrics()["record-error-total"] == 1
        with pytest.raises(RecordTooLargeError):
            await producer.send_and_wait("t", b"x" * 1_000)
        seen, of_topic = producer.metrics(), producer.metrics_by_topic()["t"]
    assert seen["record-error-total"] == of_topic["record-error-total"] == 2
    assert seen["record-error-rate"] > 0
    assert seen["record-acknowledged-total"] == 0


async def test_splits(broker: EmbeddedCluster) -> None:
    async with quick(broker, linger_ms=20) as producer:
        await producer.send_and_wait("t", b"first")
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.MESSAGE_TOO_LARGE), times=1)
        await send_all(producer, [b"x"] * 10)
        seen = producer.metrics()
    assert seen["batch-split-total"] == 1
    assert seen["batch-split-rate"] > 0
    assert seen["record-acknowledged-total"] == 11


async def test_throttling(broker: EmbeddedCluster) -> None:
    async with quick(broker) as producer:
        await producer.send_and_wait("t", b"first")
        broker.on(ApiKey.PRODUCE, throttle(40), times=1)
        await producer.send_and_wait("t", b"x")
        seen = producer.metrics()
        assert (
            seen["produce-throttle-time-max"],
            producer.metrics_by_node()[1]["produce-throttle-time-max"],
        ) == (40, 40)
        assert seen["produce-throttle-time-avg"] == 20


async def test_requests_in_flight_and_memory_in_use(broker: EmbeddedCluster) -> None:
    async with quick(broker) as producer:
        await producer.send_and_wait("t", b"first")
        idle = producer.metrics()
        assert (idle["requests-in-flight"], idle["buffer-available-bytes"]) == (
            0,
            idle["buffer-total-bytes"],
        )
        answer = asyncio.Event()
        broker.on(ApiKey.PRODUCE, hold(answer), times=1)
        delivery = await producer.send("t", b"x")
        await until(lambda: producer.metrics()["requests-in-flight"] == 1)
        assert producer.metrics()["buffer-available-bytes"] < idle["buffer-total-bytes"]
        answer.set()
        await delivery
        assert producer.metrics()["requests-in-flight"] == 0


async def test_waiting_for_memory(broker: EmbeddedCluster) -> None:
    async with quick(broker, buffer_memory=2_200, batch_size=1_000, max_block_ms=5_000) as producer:
        await producer.send_and_wait("t", b"first")
        answer = asyncio.Event()
        broker.on(ApiKey.PRODUCE, hold(answer))
        sends = [asyncio.create_task(producer.send("t", b"x" * 800)) for _ in range(4)]
        await until(lambda: producer.metrics()["waiting-threads"] == 2)
        before = producer.metrics()["bufferpool-wait-time-ns-total"]
        await asyncio.sleep(0.005)  # the clock of uvloop moves in whole milliseconds
        answer.set()
        for sent in sends:
            await (await sent)
        seen = producer.metrics()
    assert before == 0
    assert seen["bufferpool-wait-time-ns-total"] > 0
    assert seen["bufferpool-wait-ratio"] > 0
    assert seen["waiting-threads"] == seen["buffer-exhausted-total"] == 0


@pytest.mark.virtual_time
async def test_no_memory_in_time(broker: EmbeddedCluster) -> None:
    async with quick(broker, buffer_memory=1_100, batch_size=1_000, max_block_ms=50) as producer:
        await producer.send_and_wait("t", b"first")
        answer = asyncio.Event()
        broker.on(ApiKey.PRODUCE, hold(answer))
        kept = await producer.send("t", b"x" * 800)
        with pytest.raises(BufferExhaustedError):
            await producer.send("t", b"x" * 800)
        seen = producer.metrics()
        answer.set()
        await kept
    assert (seen["buffer-exhausted-total"], seen["waiting-threads"]) == (1, 0)
    assert seen["buffer-exhausted-rate"] > 0
    assert seen["bufferpool-wait-time-ns-total"] > 40e6, "a wait that fails counts, too"


async def test_connections(broker: EmbeddedCluster) -> None:
    async with quick(broker) as producer:
        await producer.send_and_wait("t", b"x")
        seen = producer.metrics()
        assert (
            seen["connection-count"]
            == seen["connection-creation-total"] - seen["connection-close-total"]
            >= 1
        )
        made = seen["connection-creation-total"]
        broker.on(ApiKey.PRODUCE, drop_before(), times=1)
        await producer.send_and_wait("t", b"x")
        assert producer.metrics()["connection-creation-total"] > made
        assert producer.metrics()["connection-close-rate"] > 0
    closed = producer.metrics()
    assert closed["connection-count"] == 0
    assert closed["connection-creation-total"] == closed["connection-close-total"]


async def test_waiting_for_metadata_and_flushing(broker: EmbeddedCluster) -> None:
    async with quick(broker, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        await producer.send("t", b"x")
        seen = producer.metrics()
        assert (seen["metadata-wait-time-ns-total"] > 0, seen["flush-time-ns-total"]) == (True, 0)
        assert 0 <= seen["metadata-age"] < 10
        await producer.flush()
        assert producer.metrics()["flush-time-ns-total"] > 0


async def test_transactions(broker: EmbeddedCluster) -> None:
    async with quick(broker, transactional_id="tx") as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send("t", b"x")
            await producer.send_offsets_to_transaction({}, "group")
        await producer.begin_transaction()
        await producer.send("t", b"y")
        await producer.abort_transaction()
        seen = producer.metrics()
    for step in ("init", "begin", "send-offsets", "commit", "abort"):
        assert seen[f"txn-{step}-time-ns-total"] > 0 or has_coarse_clock(), step


async def test_numbers_before_the_start_and_after_the_end(broker: EmbeddedCluster) -> None:
    producer = quick(broker)
    names = set(producer.metrics())
    assert not producer.metrics_by_topic() and not producer.metrics_by_node()
    await producer.start()
    await producer.send_and_wait("t", b"x")
    await producer.close()
    assert set(producer.metrics()) == names
    assert producer.metrics()["record-send-total"] == 1


# -- observers -------------------------------------------------------------------------------------


class Recorder(ProducerObserver):
    def __init__(self) -> None:
        self.received: list[object] = []

    def of(self, kind: type) -> list[object]:
        return [event for event in self.received if isinstance(event, kind)]

    def on_start(self, producer: ObservedProducer) -> None:
        self.received.append(producer)

    def on_batch_sent(self, event: BatchSent) -> None:
        self.received.append(event)

    def on_batch_done(self, event: BatchDone) -> None:
        self.received.append(event)

    def on_request(self, event: RequestDone) -> None:
        self.received.append(event)

    def on_connection(
        self, node_id: int, address: str, opened: bool, error: Exception | None
    ) -> None:
        self.received.append((node_id, address, opened, error))

    def close(self) -> None:
        self.received.append("closed")


async def test_an_observer_sees_a_batchs_way(broker: EmbeddedCluster) -> None:
    broker.on(ApiKey.PRODUCE, delay(0.005), times=None)  # uvloop's clock moves by milliseconds
    received = Recorder()
    async with quick(broker, observers=[received], client_id="me") as producer:
        await producer.send_and_wait("t", b"x" * 100)
        started = received.received[0]
        assert isinstance(started, ObservedProducer) and started.client_id == "me"
        assert started.metrics()["record-send-total"] == 1
        assert (1, broker.bootstrap_servers, True, None) in received.received
    (sent,), (request,), (done,) = (
        received.of(BatchSent),
        received.of(RequestDone),
        received.of(BatchDone),
    )
    assert (
        isinstance(sent, BatchSent)
        and isinstance(request, RequestDone)
        and isinstance(done, BatchDone)
    )
    assert (sent.topic, sent.partition, sent.node_id, sent.records, sent.attempt) == (
        "t",
        0,
        1,
        1,
        1,
    )
    assert (
        done.topic,
        done.partition,
        done.records,
        done.batch_bytes,
        done.attempts,
        done.error,
    ) == ("t", 0, 1, sent.batch_bytes, 1, None)
    assert done.latency_s >= done.queue_time_s == sent.queue_time_s
    assert done.latency_s >= request.latency_s > 0
    assert (request.node_id, request.api, request.error) == (1, "Produce", None)
    assert received.received[-1] == "closed"
    opened = [
        event
        for event in received.received
        if isinstance(event, tuple) and len(event) == 4 and event[2] is True
    ]
    ended = [
        event
        for event in received.received
        if isinstance(event, tuple) and len(event) == 4 and event[2] is False
    ]
    assert len(opened) == len(ended)


async def test_an_observer_learns_of_trouble(broker: EmbeddedCluster) -> None:
    received = Recorder()
    async with quick(broker, observers=[received]) as producer:
        broker.on(ApiKey.PRODUCE, drop_before(), times=1)
        await producer.send_and_wait("t", b"x")
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.INVALID_RECORD), times=1)
        with pytest.raises(KafkaError) as refused:
            await producer.send_and_wait("t", b"x")
    requests = [event for event in received.of(RequestDone) if isinstance(event, RequestDone)]
    batches = [event for event in received.of(BatchDone) if isinstance(event, BatchDone)]
    assert [event.error is None for event in requests] == [False, True, True]
    assert [(event.attempts, event.error is None) for event in batches] == [(2, True), (1, False)]
    assert str(batches[1].error) == str(refused.value)


async def test_an_observer_learns_of_what_a_closing_producer_gives_up(
    broker: EmbeddedCluster,
) -> None:
    received = Recorder()
    answer = asyncio.Event()
    async with quick(broker, observers=[received]) as producer:
        await producer.send_and_wait("t", b"first")
        broker.on(ApiKey.PRODUCE, hold(answer))
        delivery = await producer.send("t", b"x")
        await producer.close(timeout_ms=0)
        assert delivery.exception() is not None
    given_up = [event for event in received.of(BatchDone) if isinstance(event, BatchDone)][-1]
    assert given_up.records == 1 and given_up.error is not None
    assert received.received[-1] == "closed"


async def test_the_bootstrap_connection_is_informed_of_too(broker: EmbeddedCluster) -> None:
    """Else more connections end than were made."""
    received = Recorder()
    async with quick(broker, observers=[received]):
        pass
    assert isinstance(received.received[0], ObservedProducer), "on_start comes first"
    assert received.received[1] == (-1, broker.bootstrap_servers, True, None)


class Broken(ProducerObserver):
    def on_batch_sent(self, event: BatchSent) -> None:
        raise RuntimeError("a fault of the observer's")

    on_batch_done = on_request = on_start = on_batch_sent  # type: ignore[assignment]


async def test_a_broken_observer_disturbs_nothing(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with quick(broker, observers=[Broken()], batch_size=200) as producer:
        await send_all(producer, [b"%06d" % number for number in range(200)])
    assert len(broker.records("t")) == 200
    assert len([record for record in caplog.records if "Broken" in record.message]) == 4, (
        "once for each method"
    )


async def start_then_fail(producer: Producer) -> None:
    with pytest.raises(KafkaError):
        await producer.start()


@pytest.mark.parametrize(
    "use", [start_then_fail, Producer.close], ids=["start fails", "never started"]
)
async def test_an_observer_is_closed_in_any_case(
    use: Callable[[Producer], Awaitable[None]],
) -> None:
    received = Recorder()
    producer = Producer("127.0.0.1:1", observers=[received])
    await use(producer)
    await producer.close()
    assert received.received[-1] == "closed"
    assert len(received.of(ObservedProducer)) <= 1
