"""Known bugs of other clients, which aioprod must not have. The numbers are those of the project's
list of such bugs.
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from aioprod import (
    BrokerError,
    BufferExhaustedError,
    ErrorCode,
    KafkaError,
    Producer,
    ProducerClosedError,
    ProducerRecord,
    RecordTooLargeError,
    SerializationError,
)
from aioprod.producer.sequences import MAX_SEQUENCE
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.record_batch import BatchHeader
from aioprod.testing import EmbeddedCluster, drop_after, fail, hold
from tests.waiting import stored, until

FAST: dict[str, Any] = {
    "linger_ms": 0,
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 20,
}
LIMIT_SECONDS = 10.0


def headers_of(broker: EmbeddedCluster, partition: int = 0) -> list[BatchHeader]:
    """The headers of a partition's batches."""
    return [header for header, _ in broker.topics["t"].partitions[partition].log.batches()]


# -- 3: sequences wrap -----------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["none", "refused", "answers lost", "too large"])
async def test_sequences_wrap_to_zero_on_the_way(broker: EmbeddedCluster, trouble: str) -> None:
    """aiokafka wraps to -2147483647, which a broker refuses."""
    broker.create_topic(
        "t", configs={"max.message.bytes": "150"} if trouble == "too large" else None
    )
    async with (
        asyncio.timeout(LIMIT_SECONDS),
        Producer(broker.bootstrap_servers, batch_size=400, **FAST) as producer,
    ):
        await until(lambda: producer._core.producer_state.identity is not None)
        await producer.partitions_for("t")
        sequence = producer._accumulator.topics["t"].queues[0]._sequence
        sequence.identity = producer._core.producer_state.identity
        sequence.next_sequence = MAX_SEQUENCE - 20
        await producer.send_and_wait("t", b"first")
        if trouble == "refused":
            broker.on(ApiKey.PRODUCE, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=2)
        elif trouble == "answers lost":
            broker.on(ApiKey.PRODUCE, drop_after(), times=2)
        for delivery in [await producer.send("t", b"%02d" % number) for number in range(90)]:
            await delivery
    assert stored(broker, partition=0) == [b"first", *[b"%02d" % number for number in range(90)]]
    expected = MAX_SEQUENCE - 20
    for header in headers_of(broker):
        assert header.base_sequence == expected and header.producer_epoch == 0
        expected = (expected + header.record_count) % (MAX_SEQUENCE + 1)
    assert expected == 91 - 21


# -- 4: one hole, one bump -------------------------------------------------------------------------


async def test_one_refused_sequence_bumps_once_and_all_partitions_go_on_from_zero(
    broker: EmbeddedCluster,
) -> None:
    """KAFKA-12152: if only one partition starts again, all others are refused next, and bump
    again.
    """
    broker.create_topic("t", num_partitions=3)
    async with (
        asyncio.timeout(LIMIT_SECONDS),
        Producer(broker.bootstrap_servers, batch_size=120, **FAST) as producer,
    ):
        for partition in range(3):
            await producer.send_and_wait("t", b"first", partition=partition)
        broker.on(
            ApiKey.PRODUCE,
            fail(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, topic="t", partition=1),
            times=1,
        )
        for delivery in [
            await producer.send("t", b"%03d" % number, partition=number % 3)
            for number in range(180)
        ]:
            await delivery
        assert producer._core.producer_state.bumps == 1
    for partition in range(3):
        assert stored(broker, partition=partition) == [
            b"first",
            *[b"%03d" % number for number in range(partition, 180, 3)],
        ]
        epochs = [header.producer_epoch for header in headers_of(broker, partition)]
        assert epochs == sorted(epochs) and set(epochs) == {0, 1}
        assert headers_of(broker, partition)[epochs.index(1)].base_sequence == 0


# -- 8: tasks that are cancelled from outside ------------------------------------------------------


async def test_a_metadata_task_that_is_gone_makes_sends_raise(broker: EmbeddedCluster) -> None:
    """No caller waits forever, whichever task is killed."""
    async with asyncio.timeout(LIMIT_SECONDS):
        producer = Producer(broker.bootstrap_servers, **FAST)
        await producer.start()
        await producer.send_and_wait("t", b"x")
        rule = broker.on(
            ApiKey.METADATA, fail(ErrorCode.LEADER_NOT_AVAILABLE, topic="new"), times=None
        )
        waiting = asyncio.ensure_future(producer.send("new", b"x"))
        await until(lambda: rule.used > 0)
        (metadata,) = [
            task for task in asyncio.all_tasks() if task.get_name() == "aioprod-metadata"
        ]
        metadata.cancel()
        async with asyncio.timeout(1):
            for sending in (waiting, producer.send("t", b"y"), producer.send("new", b"z")):
                with pytest.raises(KafkaError, match="metadata task was cancelled from outside"):
                    await sending
            await producer.close()


# -- 13: timestamps --------------------------------------------------------------------------------


async def test_each_record_of_a_batch_has_its_own_timestamp(broker: EmbeddedCluster) -> None:
    """aiokafka gives all of them the first one's."""
    async with Producer(broker.bootstrap_servers, linger_ms=20) as producer:
        await producer.partitions_for("t")
        deliveries = [
            await producer.send("t", b"x", timestamp_ms=timestamp)
            for timestamp in (1_000, 2_000, 1_500)
        ]
        assert len({id(delivery.position[0]) for delivery in deliveries}) == 1
        assert [(await delivery).timestamp for delivery in deliveries] == [1_000, 2_000, 1_500]
    assert [record.timestamp for record in broker.records("t")] == [1_000, 2_000, 1_500]


# -- 17 and 21: no clock, no polling ---------------------------------------------------------------


@contextmanager
def time_is_stopped() -> Iterator[None]:
    """No timer of the event loop comes due any more, and its clock shows the same forever. A test
    that hangs then is cancelled.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    limit = threading.Timer(LIMIT_SECONDS, loop.call_soon_threadsafe, [task.cancel])
    limit.start()
    frozen = loop.time()
    loop.time = lambda: frozen  # type: ignore[method-assign]
    try:
        yield
    finally:
        limit.cancel()
        del loop.time


async def test_everything_ends_though_all_clocks_are_stopped(broker: EmbeddedCluster) -> None:
    """aiokafka's stop() never ended under freezegun: it compared times in a loop."""
    producer = Producer(
        broker.bootstrap_servers,
        clock=lambda: 1_700_000_000.0,
        linger_ms=60_000,
        delivery_timeout_ms=120_000,
    )
    await producer.start()
    with time_is_stopped():
        first = await producer.send("t", b"1")
        await producer.flush()
        second = await producer.send("t", b"2")
        await producer.close()
    assert [first.result().offset, second.result().offset] == [0, 1]
    assert first.result().timestamp == 1_700_000_000_000


async def test_a_single_record_waits_for_no_timer(broker: EmbeddedCluster) -> None:
    """confluent-kafka's futures wait for the next poll: here only the reply wakes the
    waiting task.
    """
    async with Producer(broker.bootstrap_servers, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"first")
        with time_is_stopped():
            for number in range(20):
                await producer.send_and_wait("t", b"%d" % number)
    assert len(stored(broker, partition=0)) == 21


# -- 18: headers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
async def test_headers_survive_the_borders_of_batches(broker: EmbeddedCluster, seed: int) -> None:
    """aiokafka called itself again without them where a batch was full."""
    rng = random.Random(seed)
    many = [
        [
            (rng.choice("abc"), rng.choice([None, b"", rng.randbytes(rng.randrange(40))]))
            for _ in range(rng.randrange(5))
        ]
        for _ in range(200)
    ]
    async with Producer(
        broker.bootstrap_servers,
        batch_size=rng.choice([100, 300]),
        buffer_memory=2_000,
        linger_ms=0,
    ) as producer:
        for number, headers in enumerate(many):
            await producer.send("t", b"%d" % number, rng.choice([None, b"key"]), headers=headers)
    assert [list(record.headers) for record in broker.records("t")] == many, f"seed {seed}"
    assert len(headers_of(broker)) > 10


# -- 20: a poisoned record -------------------------------------------------------------------------


async def test_a_poisoned_record_in_many_leaves_the_others_exactly_once(
    broker: EmbeddedCluster,
) -> None:
    """confluent's AIOProducer wrote the others again with each flush, and its monitor died."""
    poison: list[Any] = [
        object(),
        ProducerRecord("t", b"x", headers=[("\ud800", b"")]),
        ProducerRecord("t", b"x", timestamp_ms=2**62),
        "text",
    ]
    records: list[Any] = [b"%02d" % number for number in range(40)]
    for place, bad in zip((0, 13, 27, 43), poison, strict=True):
        records.insert(place, bad)
    async with (
        asyncio.timeout(LIMIT_SECONDS),
        Producer(broker.bootstrap_servers, batch_size=100) as producer,
    ):
        deliveries = await producer.send_many("t", records)
        for _ in range(3):
            await producer.flush()
        outcomes = [delivery.exception() for delivery in deliveries]
        assert [place for place, error in enumerate(outcomes) if error is not None] == [
            0,
            13,
            27,
            43,
        ]
        assert all(isinstance(outcomes[place], SerializationError) for place in (0, 13, 27, 43))
        await producer.send_and_wait("t", b"later")
    assert stored(broker, partition=0) == [b"%02d" % number for number in range(40)] + [b"later"]


# -- 24: rejected sends ----------------------------------------------------------------------------


REJECTED: list[tuple[type[KafkaError], dict[str, Any]]] = [
    (RecordTooLargeError, {"value": b"x" * 2_000, "headers": [("name", b"value")]}),
    (SerializationError, {"value": b"x", "headers": [("name", 5)]}),
    (BufferExhaustedError, {"value": b"x" * 800, "headers": [("name", b"value" * 10)]}),
]


@pytest.mark.parametrize(
    ("expected", "arguments"),
    REJECTED,
    ids=lambda part: part.__name__ if isinstance(part, type) else "",
)
async def test_rejected_sends_leave_no_memory_behind(
    broker: EmbeddedCluster, expected: type[KafkaError], arguments: dict[str, Any]
) -> None:
    """confluent-kafka lost the headers of each record that found no room."""
    async with Producer(
        broker.bootstrap_servers,
        max_request_size=1_500,
        buffer_memory=1_600,
        batch_size=500,
        max_block_ms=0,
        # The broker is silent for as long as the test takes on a busy machine.
        request_timeout_ms=300_000,
        delivery_timeout_ms=600_000,
        **FAST,
    ) as producer:
        # max_block_ms=0 gives metadata no time: it is known before the record needs it.
        await until(lambda: producer._core.producer_state.identity is not None)
        producer._metadata.touch("t")
        await until(lambda: "t" in producer._accumulator.topics)
        answer = asyncio.Event()
        broker.on(ApiKey.PRODUCE, hold(answer), times=None)
        kept = [await producer.send("t", b"x" * 700)]

        async def reject(times: int) -> None:
            for _ in range(times):
                with pytest.raises(expected):
                    await producer.send_and_wait("t", **arguments)

        await reject(200)
        gc.collect()
        tracemalloc.start()
        growths = []
        try:
            for _ in range(3):
                before = tracemalloc.get_traced_memory()[0]
                await reject(2_000)
                gc.collect()
                growths.append(tracemalloc.get_traced_memory()[0] - before)
        finally:
            tracemalloc.stop()
            answer.set()
        # In one of the rounds the producer may open one more connection, as the broker is silent,
        # with buffers at both ends in this process; an earlier one may still warm up.
        assert min(growths) < 16_000, "less than 8 bytes a record: its header alone has more"
        for delivery in kept:
            await delivery
        assert (
            producer._pool.available == producer.config.buffer_memory
            and producer._pool.waiting == 0
        )


# -- 26: nothing runs idle, nothing outlives -------------------------------------------------------


@pytest.mark.parametrize(
    "state", ["idle", "no broker", "silent broker", "no answer", "no room", "no leader"]
)
async def test_no_task_spins_while_there_is_nothing_to_do(state: str) -> None:
    """kafka-python's new loop was busy with two brokers, and went on after close."""
    async with EmbeddedCluster(nodes=2) as broker:
        broker.create_topic("t", 2)
        producer = Producer(broker.bootstrap_servers, buffer_memory=40_000, linger_ms=0)
        await producer.start()
        for partition in range(2):
            await producer.send_and_wait("t", b"x", partition=partition)
        if state == "no broker":
            await broker.stop_all()
        elif state == "no leader":
            broker.on(ApiKey.METADATA, fail(ErrorCode.LEADER_NOT_AVAILABLE), times=None)
            await broker.stop_node(1)
        elif state == "silent broker":
            await broker.stop_node(1)
            await broker.start_node(1)
            broker.move_leader("t", 0, 1)
            broker.freeze_node(1)
        else:
            broker.on(ApiKey.PRODUCE, hold(asyncio.Event()), times=None)
        count = {"idle": 0, "no room": 10}.get(state, 1)
        sends = [
            asyncio.ensure_future(producer.send("t", b"x" * 10_000, partition=0))
            for _ in range(count)
        ]
        await asyncio.sleep(0.02)
        runs = 0
        run_once = producer._sender._run_once

        def counted(now: float) -> float:
            nonlocal runs
            runs += 1
            return run_once(now)

        producer._sender._run_once = counted  # type: ignore[method-assign]
        before = len(broker.requests)
        await asyncio.sleep(0.3)
        asked = len(broker.requests) - before
        await producer.close(timeout_ms=0)
        await asyncio.wait(sends) if sends else None
        for sent in sends:
            assert isinstance(sent.exception() or sent.result().exception(), ProducerClosedError)
    assert runs <= 50 and asked <= 20, (
        "a few for each pause of 50 ms or more; a loop that spins makes thousands"
    )


@pytest.mark.asyncio_loop
async def test_no_timer_outlives_the_producer(broker: EmbeddedCluster) -> None:
    def timers() -> int:
        return sum(not handle.cancelled() for handle in asyncio.get_running_loop()._scheduled)  # type: ignore[attr-defined]

    before = timers()
    async with Producer(broker.bootstrap_servers, linger_ms=5) as producer:
        for _ in range(3):
            await producer.send_and_wait("t", b"x")
        await producer.send("t", b"x")
        assert timers() > before
    assert timers() == before


# -- 10 and aiokafka#943: cost per record ----------------------------------------------------------


@contextmanager
def calls_counted() -> Iterator[list[int]]:
    """Count the calls of aioprod's functions; a busy machine does not change that number."""
    counter = [0]

    def note(frame: FrameType, event: str, argument: object) -> None:
        if (
            event == "call"
            and "/aioprod/" in frame.f_code.co_filename
            and "/testing/" not in frame.f_code.co_filename
        ):
            counter[0] += 1

    sys.setprofile(note)
    try:
        yield counter
    finally:
        sys.setprofile(None)


async def calls_a_record(
    broker: EmbeddedCluster, known: list[str], topic: str, records: int = 2_000
) -> float:
    async with Producer(broker.bootstrap_servers, rng=random.Random(1)) as producer:
        await asyncio.gather(*(producer.partitions_for(name) for name in {*known, topic}))
        await producer.send_and_wait(topic, b"first")
        with calls_counted() as counter:
            for _ in range(records):
                await producer.send(topic, b"x" * 50)
            await producer.flush()
    return counter[0] / records


async def test_the_size_of_the_cluster_does_not_change_the_work_of_a_record() -> None:
    """aiokafka makes a set of all topics with each record: a tenth of the speed with 5,000."""
    async with EmbeddedCluster() as broker:
        broker.create_topic("one", 1)
        small = await calls_a_record(broker, [], "one")
        broker.create_topic("wide", 1_000)
        for number in range(1_000):
            broker.create_topic(f"idle-{number}", 5)
        large = await calls_a_record(broker, [f"idle-{number}" for number in range(1_000)], "wide")
    assert large < small * 1.2, f"{large} calls a record, {small} in a small cluster"


async def test_the_number_of_tasks_does_not_change_the_work_of_a_record() -> None:
    """aiokafka's waiters share one future: 20 times the cost with 8,000 tasks."""

    async def calls(tasks: int) -> float:
        async with (
            EmbeddedCluster() as broker,
            Producer(broker.bootstrap_servers, buffer_memory=32_768, batch_size=4_096) as producer,
        ):
            await producer.send_and_wait("t", b"first")
            with calls_counted() as counter:
                await asyncio.gather(
                    *(producer.send_and_wait("t", b"x" * 100) for _ in range(tasks))
                )
            assert len(stored(broker, partition=0)) == tasks + 1
        return counter[0] / tasks

    # With fewer tasks, no call would wait for memory.
    few, many = await calls(600), await calls(6_000)
    assert many < few * 2, f"{many} calls a record with 6,000 tasks, {few} with 600"


# -- 29: closing and flushing while all goes wrong -------------------------------------------------


async def test_flush_and_close_end_though_every_produce_fails(broker: EmbeddedCluster) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        producer = Producer(broker.bootstrap_servers, batch_size=100, **FAST)
        await producer.start()
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.INVALID_RECORD), times=None)
        deliveries = [await producer.send("t", b"%03d" % number) for number in range(100)]
        await producer.flush()
        deliveries += [await producer.send("t", b"%03d" % number) for number in range(100)]
        await producer.close()
        assert all(isinstance(delivery.exception(), BrokerError) for delivery in deliveries)
        await producer.flush()
    assert producer._pool.available == producer.config.buffer_memory


async def test_a_send_during_close_is_refused_and_hangs_no_later_flush(
    broker: EmbeddedCluster,
) -> None:
    """franz-go 1.21.4: produce during Close hung a later Flush."""
    async with asyncio.timeout(LIMIT_SECONDS):
        producer = Producer(broker.bootstrap_servers, **FAST)
        await producer.start()
        await producer.send_and_wait("t", b"first")
        answer = asyncio.Event()
        broker.on(ApiKey.PRODUCE, hold(answer))
        pending = await producer.send("t", b"second")
        closing = asyncio.ensure_future(producer.close())
        await asyncio.sleep(0)
        for late in (
            producer.send("t", b"late"),
            producer.send("new", b"late"),
            producer.send_many("t", [b"late"]),
        ):
            with pytest.raises(ProducerClosedError):
                await late
        answer.set()
        await closing
        await producer.flush()
        assert (await pending).offset == 1
    assert stored(broker, partition=0) == [b"first", b"second"]
