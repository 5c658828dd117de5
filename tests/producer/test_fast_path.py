"""The short way of a record through ``send``: whatever follows whatever in one batch, what is
stored is what was sent.
"""

from __future__ import annotations

import asyncio
import random
import time
import tracemalloc
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aioprod import (
    Delivery,
    InvalidPartitionError,
    Producer,
    ProducerRecord,
    SerializationError,
)
from aioprod.producer.batch import ENCODE_EVERY
from aioprod.protocol.record_buffer import KEYLESS_OVERHEAD
from aioprod.testing import EmbeddedCluster

Sent = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]

data = st.binary(max_size=40)
runs = st.lists(
    st.tuples(
        st.integers(1, 40),
        st.tuples(
            st.none() | data,
            st.none() | data,
            st.lists(st.tuples(st.text(max_size=8), st.none() | data), max_size=2),
        ),
    ),
    min_size=1,
    max_size=12,
)


def stored(broker: EmbeddedCluster) -> list[Sent]:
    return [
        (record.key, record.value, [(name, value) for name, value in record.headers])
        for record in broker.records("t")
    ]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    runs=runs,
    batch_size=st.sampled_from([120, 1_000, 16_384, 100_000]),
    linger_ms=st.sampled_from([0, 5]),
)
async def test_kinds_of_records_may_follow_one_another(
    runs: list[tuple[int, Sent]], batch_size: int, linger_ms: int
) -> None:
    sent = [record for count, record in runs for _ in range(count)]
    async with EmbeddedCluster() as broker:
        async with Producer(
            broker.bootstrap_servers, batch_size=batch_size, linger_ms=linger_ms
        ) as producer:
            await producer.partitions_for("t")
            deliveries = [
                await producer.send("t", value, key, headers=headers)
                for key, value, headers in sent
            ]
            assert [(await delivery).offset for delivery in deliveries] == list(range(len(sent)))
        assert stored(broker) == sent


@pytest.mark.parametrize("key", [bytearray(b"key"), memoryview(b"key")])
@pytest.mark.parametrize("headers", [(), [("name", b"value")]])
async def test_a_key_that_is_like_bytes_is_accepted_with_an_open_batch(
    broker: EmbeddedCluster, key: Any, headers: Any
) -> None:
    async with Producer(broker.bootstrap_servers, linger_ms=50) as producer:
        await producer.send("t", b"before")
        await producer.send_and_wait("t", b"value", key, headers=headers)
    assert stored(broker)[1] == (b"key", b"value", list(headers))


@pytest.mark.parametrize("key", ["key", 5])
@pytest.mark.parametrize("headers", [(), [("name", b"value")]])
async def test_an_invalid_key_is_refused_with_an_open_batch(
    broker: EmbeddedCluster, key: Any, headers: Any
) -> None:
    async with Producer(broker.bootstrap_servers, linger_ms=50) as producer:
        await producer.send("t", b"before")
        with pytest.raises(SerializationError, match="key"):
            await producer.send("t", b"value", key, headers=headers)
        await producer.send_and_wait("t", b"behind")
    assert [value for _, value, _ in stored(broker)] == [b"before", b"behind"]


@pytest.mark.parametrize(
    "headers",
    [[("name", "text")], [("name",)], [(5, b"")], {"ab": "c"}, "ab", b"ab", 7, [("\ud800", b"")]],
)
async def test_an_invalid_header_is_refused_with_an_open_batch(
    broker: EmbeddedCluster, headers: Any
) -> None:
    async with Producer(broker.bootstrap_servers, linger_ms=50) as producer:
        await producer.send("t", b"before")
        with pytest.raises(SerializationError, match="header"):
            await producer.send("t", b"value", headers=headers)
        await producer.send_and_wait("t", b"behind")
    assert [value for _, value, _ in stored(broker)] == [b"before", b"behind"]


async def test_headers_from_an_iterator_are_taken_once(broker: EmbeddedCluster) -> None:
    async with Producer(broker.bootstrap_servers, linger_ms=50) as producer:
        await producer.send("t", b"before")
        await producer.send_and_wait("t", b"value", headers=iter([("a", b"1"), ("b", None)]))  # type: ignore[arg-type]
    assert stored(broker)[1] == (None, b"value", [("a", b"1"), ("b", None)])


async def test_a_large_batch_of_small_records_takes_about_the_memory_that_it_counts(
    broker: EmbeddedCluster,
) -> None:
    """Without the accelerator, what is not encoded yet takes several times the memory that it
    counts, and encoding all at once would delay the loop.
    """
    count, most, counted = 30_000, 0, 0
    async with Producer(
        broker.bootstrap_servers, batch_size=900_000, linger_ms=10_000, max_request_size=2_000_000
    ) as producer:
        delivery = await producer.send("t", b"00000")
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for number in range(1, count):
                delivery = await producer.send("t", b"%05d" % number)
                if number % 100 == 0:
                    taken = tracemalloc.get_traced_memory()[0] - before
                    counted = number * (5 + KEYLESS_OVERHEAD)
                    most = max(most, taken - counted)
        finally:
            tracemalloc.stop()
        assert len(producer._accumulator.incomplete) == 1
        # The accelerator's bytes grow by half of what they have, or more; those that are not
        # encoded take up to thrice what they count.
        assert most < 6 * ENCODE_EVERY < counted
        await producer.flush()
        assert (await delivery).offset == count - 1
    assert [value for _, value, _ in stored(broker)] == [b"%05d" % at for at in range(count)]


async def test_the_clock_may_go_backwards(broker: EmbeddedCluster) -> None:
    rng, now = random.Random(7), 1_700_000_000.0

    def clock() -> float:
        nonlocal now
        now += rng.choice([0.0, 0.0004, 0.003, -0.5])
        return now

    async with Producer(broker.bootstrap_servers, clock=clock, linger_ms=50) as producer:
        places = [
            await delivery for delivery in [await producer.send("t", b"x") for _ in range(200)]
        ]
    records = broker.records("t")
    assert [place.timestamp for place in places] == [record.timestamp for record in records]
    assert all(abs(record.timestamp - 1_700_000_000_000) < 200 * 500 for record in records)


async def test_deliveries_show_their_outcome_and_cannot_be_changed(broker: EmbeddedCluster) -> None:
    async with Producer(broker.bootstrap_servers, linger_ms=60_000) as producer:
        first = await producer.send("t", b"x", partition=0)
        many = await producer.send_many("t", [ProducerRecord("t", b"y", partition=0)] * 2)
        assert repr(first) == "<Delivery to t-0, pending>"
        assert repr(many) == "<Deliveries of 2 records, 2 pending, 0 failed>"
        await producer.flush()
        assert repr(first) == "<Delivery to t-0, stored at offset 0>"
        assert repr(many) == "<Deliveries of 2 records, 0 pending, 0 failed>"
        refused = await producer.send("t", b"z", partition=99)
        assert repr(refused).startswith("<Delivery to t-99, failed: partition=99 of topic 't'")
        assert refused.exception() is not None
        for outcome in (first, many, await first):
            for name in ("position", "offset", "note"):
                with pytest.raises((AttributeError, TypeError)):
                    setattr(outcome, name, None)


async def test_records_with_timestamps_join_an_open_batch(broker: EmbeddedCluster) -> None:
    rng = random.Random(5)
    stamps = [rng.choice([None, 0, 5, 2**40, rng.randrange(2**40)]) for _ in range(300)]
    async with Producer(broker.bootstrap_servers, linger_ms=50, clock=lambda: 1_700.0) as producer:
        await producer.partitions_for("t")
        first = await producer.send("t", b"first", b"key")
        with patch.object(producer._intake, "take", wraps=producer._intake.take) as slow:
            sent = [
                await producer.send(
                    "t", b"x", b"key", timestamp_ms=stamp, headers=[("n", b"v")] * at
                )
                for at in (0, 1)
                for stamp in stamps
            ]
            for refused in (True, 2**62, "5"):
                with pytest.raises(SerializationError, match="timestamp_ms"):
                    await producer.send("t", b"x", b"key", timestamp_ms=refused)  # type: ignore[arg-type]
        places = [await each for each in (first, *sent)]
    expected = [1_700_000, *(1_700_000 if each is None else each for each in stamps * 2)]
    assert [place.timestamp for place in places] == expected
    assert [record.timestamp for record in broker.records("t")] == expected
    assert slow.call_count == 3  # those that are refused


# -- the first record of a batch -------------------------------------------------------------------


def without_slow_path(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def take(*_: object) -> Delivery:
        raise AssertionError("the slow path")

    monkeypatch.setattr(producer._intake, "take", take)


@pytest.mark.parametrize("key", [None, b"key"])
@pytest.mark.parametrize("headers", [(), [("name", b"value")]])
async def test_a_lone_record_opens_its_batch(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, key: bytes | None, headers: Any
) -> None:
    async with Producer(broker.bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"before", key)
        without_slow_path(producer, monkeypatch)
        metadata = await producer.send_and_wait("t", b"alone", key, headers=headers)
        assert metadata.offset == 1
        assert metadata.serialized_value_size == len(b"alone")
        assert producer.metrics()["buffer-available-bytes"] == producer.config.buffer_memory
    assert stored(broker)[1] == (key, b"alone", list(headers))


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("key", [None, b"key"])
async def test_full_batches_are_followed_by_the_next_ones(
    broker: EmbeddedCluster, key: bytes | None, partitions: int
) -> None:
    broker.create_topic("t", partitions)
    async with Producer(broker.bootstrap_servers, batch_size=1_000) as producer:
        await producer.partitions_for("t")
        with patch.object(producer._intake, "take", wraps=producer._intake.take) as slow:
            sent = [await producer.send("t", b"%050d" % number, key) for number in range(500)]
        places = [await each for each in sent]
        assert producer._pool.available == producer.config.buffer_memory
    # A batch has 15 records, and the next one may be in a partition that has an open batch.
    assert slow.call_count == 0
    for partition in range(partitions):
        numbers = [n for n, place in enumerate(places) if place.partition == partition]
        found = [int(record.value or b"") for record in broker.records("t", partition)]
        assert found == numbers
    assert len({place.partition for place in places}) == (1 if key else partitions)


async def test_records_of_other_kinds_join_a_batch(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    records: list[tuple[bytes | None, bytes, list[Any]]] = [
        (key, b"%d" % number, headers)
        for number in range(25)
        for key in (None, b"key")
        for headers in ([], [("name", b"value")])
    ]
    async with Producer(broker.bootstrap_servers, linger_ms=50) as producer:
        await producer.partitions_for("t")
        without_slow_path(producer, monkeypatch)
        sent = [
            await producer.send("t", value, key, headers=headers) for key, value, headers in records
        ]
        assert [(await each).offset for each in sent] == list(range(100))
    assert stored(broker) == records


@pytest.mark.virtual_time
async def test_a_full_batch_leaves_though_the_next_record_joins_another(
    broker: EmbeddedCluster,
) -> None:
    broker.create_topic("t", 2)
    loop = asyncio.get_running_loop()
    for seed in range(20):
        async with Producer(
            broker.bootstrap_servers, batch_size=500, linger_ms=60_000, rng=random.Random(seed)
        ) as producer:
            await producer.partitions_for("t")
            for partition in range(2):
                await producer.send("t", b"joined", b"key", partition)
            await asyncio.sleep(0.1)  # the sender has run
            sent = [await producer.send("t", b"x" * 50) for _ in range(12)]
            full = {batch for batch, _ in (each.position for each in sent) if batch.closed}
            before = loop.time()
            for batch in full:
                await batch.wait()
            assert full and loop.time() - before < 1
            await producer.flush()


async def test_a_large_record_does_not_open_its_batch_there(broker: EmbeddedCluster) -> None:
    async with Producer(broker.bootstrap_servers, batch_size=200) as producer:
        for size in (90, 100, 110, 120, 121, 122, 123, 124, 140, 200, 5_000):
            await producer.send_and_wait("t", bytes(size))
        assert producer._pool.available == producer.config.buffer_memory
    assert [len(value or b"") for _, value, _ in stored(broker)][-1] == 5_000


async def test_without_memory_a_lone_record_waits(broker: EmbeddedCluster) -> None:
    settings: Any = {"batch_size": 1_000, "buffer_memory": 1_500, "linger_ms": 10_000}
    async with Producer(broker.bootstrap_servers, **settings) as producer:
        await producer.partitions_for("t")
        first = await producer.send("t", b"x", partition=0)
        await producer.send("two", b"y")  # it waits for the memory of the first, which leaves now
        assert (await first).offset == 0
        await producer.flush()
        assert producer._pool.available == 1_500


async def test_a_clock_that_fails_leaves_no_batch_and_no_memory(broker: EmbeddedCluster) -> None:
    failing = False

    def clock() -> float:
        if failing:
            raise ZeroDivisionError
        return time.time()

    async with Producer(broker.bootstrap_servers, clock=clock) as producer:
        await producer.send_and_wait("t", b"before")
        failing = True
        with pytest.raises(ZeroDivisionError):
            await producer.send("t", b"fails")
        assert producer._pool.available == producer.config.buffer_memory
        assert not producer._accumulator.incomplete
        failing = False
        assert (await producer.send_and_wait("t", b"after")).offset == 1


async def test_a_record_with_a_partition_goes_there(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", 3)
    async with Producer(broker.bootstrap_servers, linger_ms=50) as producer:
        assert producer.known_partitions("t") is None
        await producer.partitions_for("t")
        known = producer.known_partitions("t")
        assert known == 3 and [*known.available] == [0, 1, 2] and len(known.leaders) == 3
        with patch.object(producer._intake, "take", wraps=producer._intake.take) as slow:
            sent = [
                await producer.send("t", b"%d" % number, b"key", number % 3)
                for number in range(300)
            ]
            for refused in (3, -1):
                with pytest.raises(InvalidPartitionError):
                    await producer.send_and_wait("t", b"refused", partition=refused)
        places = [await each for each in sent]
    assert [(each.partition, each.offset) for each in places] == [
        (number % 3, number // 3) for number in range(300)
    ]
    assert [call.args[0].partition for call in slow.call_args_list] == [3, -1]
    values = [record.value for record in broker.records("t", 1)]
    assert values == [b"%d" % number for number in range(1, 300, 3)]


async def test_known_partitions_follow_the_metadata() -> None:
    async with EmbeddedCluster(nodes=2, replication_factor=1) as broker:
        broker.create_topic("t", 2)
        async with Producer(broker.bootstrap_servers, metadata_max_age_ms=20) as producer:
            await producer.partitions_for("t")
            await broker.stop_node(1)
            async with asyncio.timeout(10):
                while (known := producer.known_partitions("t")) and len(known.available) != 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            assert known is not None and known.leaders[1 - known.available[0]] == -1
