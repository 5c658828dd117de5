"""Brokers that fail, hang, vanish and forget: every delivery has one outcome, nothing is lost,
doubled or reordered.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from aioprod import (
    BrokerError,
    DeliveryTimeoutError,
    ErrorCode,
    InvalidTopicError,
    KafkaError,
    MetadataTimeoutError,
    Producer,
    ProducerClosedError,
    ProducerInterceptor,
    RecordMetadata,
    RecordTooLargeError,
)
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.produce import BatchIndexAndErrorMessage, ProduceResponse
from aioprod.testing import (
    Action,
    EmbeddedCluster,
    change_answer,
    close,
    delay,
    drop_after,
    drop_before,
    fail,
    hold,
    hold_answer,
)
from tests.waiting import stored

FAST = {
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 20,
}


def quick(broker: EmbeddedCluster, **settings: Any) -> Producer:
    """A producer that does not pause long between its tries, with batches of about ten records."""
    return Producer(
        broker.bootstrap_servers,
        **{"batch_size": 200, "linger_ms": 0, **FAST, **settings},
    )


async def send_numbers(producer: Producer, count: int) -> None:
    deliveries = [await producer.send("t", b"%06d" % number) for number in range(count)]
    for delivery in deliveries:
        await delivery


@pytest.mark.parametrize(
    "action",
    [
        fail(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        fail(ErrorCode.NOT_ENOUGH_REPLICAS),
        fail(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        fail(ErrorCode.UNKNOWN_PRODUCER_ID),
        fail(ErrorCode.REQUEST_TIMED_OUT),
        drop_before(),
        drop_after(),
        close(),
    ],
    ids=lambda action: (
        type(action).__name__ + str(getattr(getattr(action, "failure", None), "code", ""))
    ),
)
@pytest.mark.parametrize("failing", [1, 2, 4])
async def test_trouble_loses_doubles_and_reorders_nothing(
    broker: EmbeddedCluster, action: Action, failing: int
) -> None:
    async with quick(broker) as producer:
        await producer.send_and_wait("t", b"first")
        broker.on(ApiKey.PRODUCE, action, times=failing)
        await send_numbers(producer, 300)
    assert stored(broker) == [b"first"] + [b"%06d" % number for number in range(300)]


@pytest.mark.parametrize("in_flight", [1, 5])
async def test_one_request_in_flight_keeps_order_without_idempotence(
    broker: EmbeddedCluster, in_flight: int
) -> None:
    async with quick(
        broker, enable_idempotence=False, max_in_flight_requests_per_connection=in_flight
    ) as producer:
        await producer.send_and_wait("t", b"first")
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=1)
        await send_numbers(producer, 300)
    expected = [b"first"] + [b"%06d" % number for number in range(300)]
    assert sorted(value or b"" for value in stored(broker)) == sorted(expected)
    if in_flight == 1:
        assert stored(broker) == expected


async def test_a_refused_batch_takes_no_sequence_with_it(broker: EmbeddedCluster) -> None:
    """aiokafka keeps the range: OUT_OF_ORDER_SEQUENCE_NUMBER until restart."""
    async with quick(broker) as producer:
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.MESSAGE_TOO_LARGE), times=1)
        with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes"):
            await producer.send_and_wait("t", b"refused")
        for number in range(3):
            await producer.send_and_wait("t", b"%d" % number)
    assert stored(broker) == [b"0", b"1", b"2"]


async def test_a_refused_batch_with_others_behind_it(broker: EmbeddedCluster) -> None:
    async with quick(broker) as producer:
        await producer.send_and_wait("t", b"first")
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.INVALID_RECORD), times=1)
        deliveries = [await producer.send("t", b"%06d" % number) for number in range(200)]
        results = await asyncio.gather(*(outcome(delivery) for delivery in deliveries))
    failed = [number for number, result in enumerate(results) if isinstance(result, KafkaError)]
    assert failed and failed == list(range(failed[0], failed[0] + len(failed)))
    assert stored(broker) == [b"first"] + [
        b"%06d" % number for number in range(200) if number not in failed
    ]


async def outcome(delivery: object) -> object:
    try:
        return await delivery  # type: ignore[misc]
    except KafkaError as error:
        return error


async def test_one_hole_bumps_the_epoch_once(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", num_partitions=3)
    async with quick(broker) as producer:
        for partition in range(3):
            await producer.send_and_wait("t", b"a", partition=partition)
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), times=1)
        for _ in range(5):
            for partition in range(3):
                await producer.send_and_wait("t", b"b", partition=partition)
        assert producer._core.producer_state.bumps == 1
    assert [len(broker.records("t", partition)) for partition in range(3)] == [6, 6, 6]


@pytest.mark.virtual_time
async def test_a_batch_that_expires_in_flight_is_reported_and_the_rest_goes_on(
    broker: EmbeddedCluster,
) -> None:
    async with quick(broker, delivery_timeout_ms=400, request_timeout_ms=300) as producer:
        await producer.send_and_wait("t", b"first")
        released = asyncio.Event()
        broker.on(ApiKey.PRODUCE, hold(released), times=2)
        lost = await producer.send("t", b"stuck")
        begun = time.monotonic()
        with pytest.raises(DeliveryTimeoutError, match=r"delivery_timeout_ms=400.*attempt"):
            await lost
        assert 0.3 < time.monotonic() - begun < 3
        released.set()
        for number in range(20):
            await producer.send_and_wait("t", b"%d" % number)
        assert producer._pool.available == producer.config.buffer_memory
    assert [value for value in stored(broker) if value != b"stuck"] == [b"first"] + [
        b"%d" % number for number in range(20)
    ]
    assert stored(broker).count(b"stuck") <= 1


@pytest.mark.virtual_time
async def test_a_leaderless_batch_expires_without_using_a_sequence(broker: EmbeddedCluster) -> None:
    async with quick(broker, delivery_timeout_ms=300, request_timeout_ms=200) as producer:
        await producer.partitions_for("t")
        queue = producer._accumulator.topics["t"].queues[0]
        rule = broker.on(ApiKey.METADATA, fail(ErrorCode.LEADER_NOT_AVAILABLE), times=None)
        queue.leader = -1
        with pytest.raises(DeliveryTimeoutError):
            await producer.send_and_wait("t", b"no leader")
        assert queue._sequence.next_sequence == 0 and producer._core.producer_state.bumps == 0
        broker.clear_rules()
        del rule
        await producer.send_and_wait("t", b"again")
    assert stored(broker) == [b"again"]


async def test_an_error_that_no_retry_helps_fails_the_records_by_name(
    broker: EmbeddedCluster,
) -> None:
    async with quick(broker) as producer:
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=1)
        with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED") as caught:
            await producer.send_and_wait("t", b"x")
        assert caught.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        await producer.send_and_wait("t", b"y")


async def test_a_broker_that_dies_and_comes_back(broker: EmbeddedCluster) -> None:
    async with quick(broker) as producer:
        await producer.send_and_wait("t", b"first")
        await broker.stop()
        deliveries = [await producer.send("t", b"%d" % number) for number in range(50)]
        await asyncio.sleep(0.05)
        assert not any(delivery.done() for delivery in deliveries)
        await broker.start()
        async with asyncio.timeout(10):
            for delivery in deliveries:
                await delivery
    assert stored(broker)[-50:] == [b"%d" % number for number in range(50)]


@pytest.mark.virtual_time
async def test_a_dead_broker_delays_no_caller_beyond_the_limit(broker: EmbeddedCluster) -> None:
    producer = quick(broker, delivery_timeout_ms=500, request_timeout_ms=300, max_block_ms=300)
    await producer.start()
    await producer.send_and_wait("t", b"first")
    await broker.stop()
    begun = time.monotonic()
    with pytest.raises(DeliveryTimeoutError, match=r"127\.0\.0\.1"):
        await producer.send_and_wait("t", b"x")
    with pytest.raises(MetadataTimeoutError, match="max_block_ms=300"):
        await producer.send_and_wait("unknown", b"x")
    pending = await producer.send("t", b"y")
    await producer.close(timeout_ms=100)
    assert time.monotonic() - begun < 5
    with pytest.raises(ProducerClosedError, match="close timeout 100 ms"):
        await pending


async def test_a_full_buffer_makes_send_wait_and_cancelling_gives_everything_back(
    broker: EmbeddedCluster,
) -> None:
    async with quick(broker, buffer_memory=2_000, batch_size=500) as producer:
        await producer.send_and_wait("t", b"first")
        released = asyncio.Event()
        rule = broker.on(ApiKey.PRODUCE, hold(released), times=None)
        senders = [asyncio.create_task(producer.send("t", b"x" * 300)) for _ in range(50)]
        await asyncio.sleep(0.02)
        assert producer._pool.waiting
        for sender in senders[::3]:
            sender.cancel()
        broker.clear_rules()
        del rule
        released.set()
        results = await asyncio.gather(*senders, return_exceptions=True)
        taken = [result for result in results if not isinstance(result, BaseException)]
        for delivery in taken:
            await delivery
        assert producer._pool.available == 2_000
    assert len(stored(broker)) == 1 + len(taken)


async def test_cancelling_who_waits_leaves_the_record_alone(broker: EmbeddedCluster) -> None:
    async with quick(broker) as producer:
        await producer.send_and_wait("t", b"first")
        released = asyncio.Event()
        broker.on(ApiKey.PRODUCE, hold_answer(released), times=1)
        delivery = await producer.send("t", b"x")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await delivery
        assert not delivery.done()
        released.set()
        assert (await delivery).offset == 1


async def test_callbacks_run_once_and_their_faults_stop_no_other(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []
    async with quick(broker, linger_ms=20, batch_size=5_000) as producer:
        deliveries = [await producer.send("t", b"x") for _ in range(3)]
        deliveries[0].add_done_callback(lambda _: 1 / 0)
        for delivery in deliveries:
            delivery.add_done_callback(lambda done: seen.append(done.result().offset))
        await deliveries[2]
        deliveries[1].add_done_callback(lambda done: seen.append(done.result().offset))
        await asyncio.sleep(0)
    assert seen == [0, 1, 2, 1]
    assert "ZeroDivisionError" in caplog.text


async def test_a_failure_that_is_never_retrieved_is_logged(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with quick(broker) as producer:
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.INVALID_RECORD), times=1)
        delivery = await producer.send("t", b"x")
        await producer.flush()
        del delivery
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.INVALID_RECORD), times=1)
        await outcome(await producer.send("t", b"x"))
    assert caplog.text.count("no task awaited it") == 1


async def test_tasks_cancelled_from_outside_make_sends_raise(broker: EmbeddedCluster) -> None:
    producer = quick(broker)
    mine = asyncio.all_tasks()
    await producer.start()
    await producer.send_and_wait("t", b"x")
    pending = await producer.send("t", b"y")
    for task in asyncio.all_tasks() - mine:
        if task.get_name().startswith("aioprod-sender"):
            task.cancel()
    async with asyncio.timeout(1):
        with pytest.raises(KafkaError, match="cancelled from outside"):
            await pending
        with pytest.raises(KafkaError, match="cancelled from outside"):
            await producer.send("t", b"z")
    await producer.close()


async def test_close_while_the_broker_is_slow_delivers_what_it_can(broker: EmbeddedCluster) -> None:
    producer = quick(broker)
    await producer.start()
    await producer.send_and_wait("t", b"first")
    broker.on(ApiKey.PRODUCE, delay(0.1), times=2)
    delivery = await producer.send("t", b"x")
    await producer.close(timeout_ms=5_000)
    assert (await delivery).offset == 1


async def test_a_cancelled_close_still_closes(broker: EmbeddedCluster) -> None:
    producer = quick(broker)
    await producer.start()
    await producer.send_and_wait("t", b"first")
    broker.on(ApiKey.PRODUCE, hold(asyncio.Event()), times=None)
    pending = await producer.send("t", b"x")
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(0.02)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    with pytest.raises(ProducerClosedError):
        await pending
    assert not [
        task
        for task in asyncio.all_tasks()
        if task.get_name().startswith("aioprod-")
        and not task.done()
        and "sender" in task.get_name()
    ]


async def test_the_records_that_a_broker_finds_fault_with_are_named(
    broker: EmbeddedCluster,
) -> None:
    def complain(answer: ProduceResponse) -> None:
        part = answer.responses[0].partition_responses[0]
        part.error_code, part.error_message = (
            int(ErrorCode.INVALID_RECORD),
            "one or more records are invalid",
        )
        part.record_errors = [
            BatchIndexAndErrorMessage(index, f"no key in {index}") for index in (1, 4, 5, 8, 9)
        ]

    async with quick(broker) as producer:
        broker.on(ApiKey.PRODUCE, change_answer(complain))
        with pytest.raises(
            BrokerError,
            match=(
                r"one or more records are invalid; record 1: no key in 1; record 4: no key in 4; "
                r".*2 more records"
            ),
        ):
            await producer.send_and_wait("t", b"x")


async def test_a_code_that_this_version_does_not_know_is_named(broker: EmbeddedCluster) -> None:
    def change(answer: ProduceResponse) -> None:
        answer.responses[0].partition_responses[0].error_code = 999

    async with quick(broker) as producer:
        broker.on(ApiKey.PRODUCE, change_answer(change))
        with pytest.raises(BrokerError, match="error code 999, unknown to this version of aioprod"):
            await producer.send_and_wait("t", b"x")


@pytest.mark.parametrize("errors", [False, True], ids=["without errors", "with an error"])
async def test_a_reply_that_leaves_out_a_partition_counts_for_the_others(
    broker: EmbeddedCluster, errors: bool
) -> None:
    def leave_out_1(answer: ProduceResponse) -> None:
        parts = {part.index: part for part in answer.responses[0].partition_responses}
        assert parts.pop(1).error_code == 0 and parts.keys() == {0, 2}
        parts[2].error_code = ErrorCode.INVALID_RECORD if errors else ErrorCode.NONE
        answer.responses[0].partition_responses = list(parts.values())

    broker.create_topic("three", 3)
    async with quick(broker, retries=0, enable_idempotence=False) as producer:
        await producer.partitions_for("three")
        rule = broker.on(ApiKey.PRODUCE, change_answer(leave_out_1))
        sent = [await producer.send("three", b"x", partition=number) for number in range(3)]
        assert (await sent[0]).offset == 0
        with pytest.raises(KafkaError, match=r"the broker's reply lacks three-1"):
            await sent[1]
        if errors:
            with pytest.raises(BrokerError, match="INVALID_RECORD"):
                await sent[2]
        else:
            assert (await sent[2]).offset == 0
        assert rule.used == 1


async def test_a_topic_that_is_not_a_string_is_named(broker: EmbeddedCluster) -> None:
    async with quick(broker) as producer:
        await producer.send_and_wait("t", b"x")
        with pytest.raises(InvalidTopicError, match="topic=<list>"):
            await producer.send_and_wait(["t"], b"x")  # type: ignore[arg-type]


@pytest.mark.virtual_time
async def test_metadata_without_brokers_is_a_failure(broker: EmbeddedCluster) -> None:
    async with quick(broker, max_block_ms=200) as producer:
        await producer.send_and_wait("t", b"x")
        broker.on(ApiKey.METADATA, change_answer(lambda answer: answer.brokers.clear()), times=None)
        with pytest.raises(MetadataTimeoutError, match="metadata contains no broker"):
            await producer.send_and_wait("new", b"x")


@pytest.mark.parametrize("method", ["succeed", "unanswered"])
async def test_a_bug_in_the_handling_of_a_request_makes_sends_raise(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    producer = quick(broker)
    await producer.start()
    await producer.send_and_wait("t", b"x")

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(producer._sender._handler, method, broken)
    if method == "unanswered":
        broker.on(ApiKey.PRODUCE, drop_before(), times=1)
    async with asyncio.timeout(1):
        with pytest.raises(KafkaError, match="ZeroDivisionError"):
            await producer.send_and_wait("t", b"y")
        with pytest.raises(KafkaError, match="ZeroDivisionError"):
            await producer.send("t", b"z")
    await producer.close()


async def test_interceptors_see_an_outcome_before_callbacks_as_in_java() -> None:
    seen: list[str] = []

    class Sees(ProducerInterceptor):
        def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
            seen.append("interceptor")

    async def sent(producer: Producer) -> None:
        delivery = await producer.send("t", b"x")
        delivery.add_done_callback(lambda done: seen.append("callback"))
        await asyncio.wait_for(asyncio.gather(delivery, return_exceptions=True), 10)

    async with (
        EmbeddedCluster() as broker,
        Producer(broker.bootstrap_servers, interceptors=[Sees()]) as producer,
    ):
        await sent(producer)
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.INVALID_RECORD))
        await sent(producer)
    assert seen == ["interceptor", "callback"] * 2
