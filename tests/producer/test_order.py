"""Records are stored in the order of the calls of ``send``, whatever the calls had to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aioprod import BufferExhaustedError, Delivery, Producer, ProducerRecord
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, delay, hold

LIMIT_S = 30
KEY = b"same"


def numbers(broker: EmbeddedCluster, topic: str, partition: int | None = None) -> list[int]:
    """The numbers with which the values begin, in the log's order; of one partition, or of the only
    one that has any.
    """
    return [int((record.value or b"").split()[0]) for record in broker.records(topic, partition)]


def value(number: int, size: int = 0) -> bytes:
    return b"%d " % number + b"x" * size


def is_gapless(found: list[int], count: int) -> bool:
    return found == list(range(count))


# -- what calls wait for ---------------------------------------------------------------------------

WAITS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "full batches": {"batch_size": 300},
    "memory for two batches": {"batch_size": 300, "buffer_memory": 700},
    "memory for less than a batch of all": {"buffer_memory": 16_500, "linger_ms": 1},
    "parts of large batches": {"batch_size": 900_000},
    "one request in flight": {"batch_size": 300, "max_in_flight_requests_per_connection": 1},
    "no idempotence": {
        "batch_size": 300,
        "enable_idempotence": False,
        "max_in_flight_requests_per_connection": 1,
    },
    "gzip": {"batch_size": 300, "compression_type": "gzip", "buffer_memory": 3_000},
    "lz4": {"batch_size": 900_000, "compression_type": "lz4"},
    "a transaction": {"batch_size": 300, "buffer_memory": 1_000, "transactional_id": "t-1"},
}


@pytest.fixture(params=WAITS)
def settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    return WAITS[request.param]


async def in_transaction(producer: Producer, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async with asyncio.timeout(LIMIT_S):
        if producer.config.transactional_id is None:
            await work()
        else:
            async with producer.transaction():
                await work()


@pytest.mark.parametrize("known", [True, False], ids=["known topic", "new topic"])
async def test_tasks_with_one_key(
    broker: EmbeddedCluster, settings: dict[str, Any], known: bool
) -> None:
    if known:
        broker.create_topic("t")
    async with Producer(broker.bootstrap_servers, **settings) as producer:

        async def work() -> None:
            if known:
                await producer.send("t", value(0), KEY)
            await asyncio.gather(
                *(producer.send("t", value(number, 100), KEY) for number in range(int(known), 300))
            )

        await in_transaction(producer, work)
    assert is_gapless(numbers(broker, "t"), 300)


async def test_tasks_that_go_on_sending(broker: EmbeddedCluster, settings: dict[str, Any]) -> None:
    """A task calls again as soon as its call has returned. The new call is queued behind those of
    other tasks.
    """
    async with Producer(broker.bootstrap_servers, **settings) as producer:
        calls = 0

        async def one() -> None:
            nonlocal calls
            for _ in range(20):
                number, calls = calls, calls + 1
                await producer.send("t", value(number, number % 7 * 30), KEY)

        async def work() -> None:
            await asyncio.gather(*(one() for _ in range(20)))

        await in_transaction(producer, work)
    assert is_gapless(numbers(broker, "t"), 400)


async def test_lists_and_single_records(broker: EmbeddedCluster, settings: dict[str, Any]) -> None:
    """Up to 4,096 records of a list are one call."""
    async with Producer(broker.bootstrap_servers, **settings) as producer:
        calls = 0

        def next_value() -> bytes:
            nonlocal calls
            calls += 1
            return value(calls - 1, 60)

        async def single() -> None:
            await producer.send("t", next_value(), KEY)

        async def values() -> None:
            await (
                await producer.send_many(
                    "t", [ProducerRecord("t", next_value(), KEY) for _ in range(25)]
                )
            ).wait()

        async def work() -> None:
            await asyncio.gather(
                *((values if number % 5 == 0 else single)() for number in range(60))
            )

        await in_transaction(producer, work)
    assert is_gapless(numbers(broker, "t"), calls)


async def test_lists_of_values_of_one_partition(
    broker: EmbeddedCluster, settings: dict[str, Any]
) -> None:
    broker.create_topic("t", 1)
    async with Producer(broker.bootstrap_servers, **settings) as producer:

        async def work() -> None:
            lists = [
                [value(first + number, 90) for number in range(40)] for first in range(0, 400, 50)
            ]
            singles = [
                [value(first + number, 90) for number in range(40, 50)]
                for first in range(0, 400, 50)
            ]
            calls: list[Coroutine[Any, Any, object]] = []
            for many, few in zip(lists, singles, strict=True):
                calls += [producer.send_many("t", many), *(producer.send("t", one) for one in few)]
            await asyncio.gather(*calls)

        await in_transaction(producer, work)
    assert is_gapless(numbers(broker, "t"), 400)


async def test_cancelled_neighbors_leave_no_gap_and_delay_no_call(
    broker: EmbeddedCluster, settings: dict[str, Any]
) -> None:
    async with Producer(broker.bootstrap_servers, **settings) as producer:

        async def work() -> None:
            await producer.send("t", value(0), KEY)
            broker.on(ApiKey.PRODUCE, delay(0.001), times=5)
            tasks = [
                asyncio.create_task(producer.send("t", value(number, 100), KEY))
                for number in range(1, 300)
            ]
            for turn in range(3):
                await asyncio.sleep(0)
                for task in tasks[turn::7]:
                    task.cancel()
            await asyncio.wait(tasks)
            assert all(task.cancelled() or task.exception() is None for task in tasks)

        await in_transaction(producer, work)
        await producer.flush()
        assert producer._pool.available == producer._pool.total
        assert producer.metrics()["waiting-threads"] == 0
    found = numbers(broker, "t")
    assert found == sorted(set(found)) and len(found) > 100


async def test_a_partition_that_is_new(broker: EmbeddedCluster) -> None:
    """Records that name it wait for metadata; those with keys may go there at once when it is
    known.
    """
    broker.create_topic("t", 1)
    async with asyncio.timeout(LIMIT_S), Producer(broker.bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"0")
        broker.add_partitions("t", 2)
        sends = [
            asyncio.create_task(producer.send_and_wait("t", value(number), partition=1))
            for number in range(50)
        ]
        late = 50
        while not all(task.done() for task in sends):
            await asyncio.sleep(0)
            if await producer.partitions_for("t") == [0, 1] and late < 60:
                sends.append(
                    asyncio.create_task(producer.send_and_wait("t", value(late), partition=1))
                )
                late += 1
        await asyncio.gather(*sends)
    assert is_gapless(numbers(broker, "t", 1), late)


async def test_a_small_record_does_not_pass_a_large_one_that_waits(broker: EmbeddedCluster) -> None:
    async with (
        asyncio.timeout(LIMIT_S),
        Producer(broker.bootstrap_servers, buffer_memory=33_000, linger_ms=50) as producer,
    ):
        await producer.partitions_for("t")
        kept_back = broker.on(ApiKey.PRODUCE, hold(), times=1)
        for number in range(2):
            await producer.send("t", value(number, 15_000), KEY)
        large = asyncio.create_task(producer.send("t", value(2, 15_000), KEY))
        await asyncio.sleep(0)
        small = asyncio.create_task(producer.send("t", value(3), KEY))
        await asyncio.sleep(0)
        assert producer.metrics()["waiting-threads"] == 2
        kept_back.release()
        await asyncio.gather(large, small)
    assert is_gapless(numbers(broker, "t"), 4)


# -- waiting for memory ----------------------------------------------------------------------------


@pytest.mark.virtual_time
async def test_one_that_gives_up_is_refused_alone(broker: EmbeddedCluster) -> None:
    """Each call has its own deadline; the calls after it continue in order."""
    settings: dict[str, Any] = {"buffer_memory": 16_500, "linger_ms": 0, "max_block_ms": 200}
    async with asyncio.timeout(LIMIT_S), Producer(broker.bootstrap_servers, **settings) as producer:
        await producer.send_and_wait("t", value(0), KEY)
        kept_back = broker.on(ApiKey.PRODUCE, hold(), times=1)
        await producer.send("t", value(1, 15_000), KEY)
        await kept_back.wait()  # eager tasks would find the batch open
        early = [asyncio.create_task(producer.send("t", b"never", KEY)) for _ in range(3)]
        await asyncio.sleep(0.15)
        late = [
            asyncio.create_task(producer.send("t", value(number), KEY)) for number in range(2, 12)
        ]
        for task in early:
            with pytest.raises(BufferExhaustedError, match="buffer_memory=16500"):
                await task
        assert not any(task.done() for task in late)
        kept_back.release()
        await asyncio.gather(*late)
        assert producer.metrics()["buffer-exhausted-total"] == 3
    assert is_gapless(numbers(broker, "t"), 12)


@pytest.mark.virtual_time
async def test_a_place_counts_that_comes_in_the_turn_in_which_the_time_ends(
    broker: EmbeddedCluster,
) -> None:
    """The record is in a batch, so the call must not say that it was not taken."""
    async with (
        asyncio.timeout(LIMIT_S),
        Producer(broker.bootstrap_servers, max_block_ms=100) as producer,
    ):
        loop, gate = asyncio.get_running_loop(), producer._core.gate
        await producer.send_and_wait("t", value(0), KEY)
        known = producer._accumulator.topics["t"]
        async with gate.reserve("t", loop.time() + LIMIT_S) as owner:
            waiting = asyncio.create_task(producer.send_and_wait("t", value(1), KEY))
            await asyncio.sleep(0)
            (call,) = known.line
            loop.call_at(call.deadline, gate.release, owner)
            await waiting
    assert is_gapless(numbers(broker, "t"), 2)


@pytest.mark.parametrize("partitions", [1, 3])
async def test_many_tasks_and_little_memory_still_make_full_batches(
    broker: EmbeddedCluster, partitions: int
) -> None:
    """Records join the batch that one of them has opened: 2,000 tasks on 64 KiB made 1.3 records a
    request when each asked for a block.
    """
    broker.create_topic("t", partitions)
    async with (
        asyncio.timeout(LIMIT_S),
        Producer(broker.bootstrap_servers, buffer_memory=65_536) as producer,
    ):
        await producer.partitions_for("t")
        for _ in range(3):
            await asyncio.gather(*(producer.send_and_wait("t", b"x" * 100) for _ in range(2_000)))
        metrics = producer.metrics()
    batch = 16_384 // 120  # records of 100 bytes in a full batch
    assert metrics["record-send-total"] / metrics["request-total"] > 0.4 * batch


async def test_partitions_take_turns_at_memory(broker: EmbeddedCluster) -> None:
    """A thousand calls in line at one partition are one claim to memory, not a thousand."""
    broker.create_topic("t", 2)
    async with (
        asyncio.timeout(LIMIT_S),
        Producer(
            broker.bootstrap_servers, batch_size=1_000, buffer_memory=1_100, linger_ms=0
        ) as producer,
    ):
        await producer.send_and_wait("t", b"x", partition=0)
        crowd = [
            asyncio.create_task(producer.send("t", b"x" * 700, partition=0)) for _ in range(300)
        ]
        await asyncio.sleep(0)
        await producer.send("t", b"alone", partition=1)
        assert sum(task.done() for task in crowd) < 10
        await asyncio.gather(*crowd)


async def test_after_a_wait_the_fast_path_is_open_again(broker: EmbeddedCluster) -> None:
    """All waiting calls get their places at once. One by one, each task would call again before the
    last one got its place, and all would wait forever.
    """
    broker.create_topic("t", 1)
    async with (
        asyncio.timeout(LIMIT_S),
        Producer(broker.bootstrap_servers, buffer_memory=40_000) as producer,
    ):
        await producer.partitions_for("t")
        taken: list[Delivery] = []

        async def one() -> None:
            for _ in range(40):
                taken.append(await producer.send("t", b"x"))

        kept_back = broker.on(ApiKey.PRODUCE, hold(), times=1)
        filling = [asyncio.create_task(producer.send("t", b"x" * 15_000)) for _ in range(3)]
        tasks = [asyncio.create_task(one()) for _ in range(100)]
        await kept_back.wait()
        assert producer.metrics()["waiting-threads"] == 101
        kept_back.release()
        await asyncio.gather(*filling)
        turns = 0
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            turns += 1
        assert len(taken) == 4_000 and turns < 25


# -- a task that sends in a loop -------------------------------------------------------------------


async def test_a_busy_task_lets_others_run_and_keeps_its_place(broker: EmbeddedCluster) -> None:
    async with asyncio.timeout(LIMIT_S), Producer(broker.bootstrap_servers) as producer:
        await producer.partitions_for("t")
        turns = calls = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        async def busy() -> None:
            nonlocal calls
            for _ in range(10_000):
                number, calls = calls, calls + 1
                await producer.send("t", value(number, 100), KEY)

        counting = asyncio.create_task(count_turns())
        await asyncio.gather(*(busy() for _ in range(3)))
        counting.cancel()
        # A task's records of 120 bytes, with 128 for the work, are 9 times 256 KiB.
        assert turns >= 9
        await producer.flush()
    assert is_gapless(numbers(broker, "t"), 30_000)
