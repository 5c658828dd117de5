"""A write task sends the rows of Spark's Arrow batches."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod import Producer
from aioprod.producer.deliveries import Deliveries
from aioprod.protocol.api_keys import ApiKey
from aioprod.spark import sending
from aioprod.testing import EmbeddedCluster, hold_answer


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([b"%d" % value for value in values], pa.binary())})


async def taken(batches: Iterator[pa.RecordBatch]) -> list[list[bytes]]:
    return [portion.column("value").to_pylist() async for portion in sending.portions(batches)]


@given(st.lists(st.lists(st.integers(0, 99), max_size=3), max_size=12))
async def test_all_rows_come_in_their_order_and_no_batch_is_empty(rows: list[list[int]]) -> None:
    found = await taken(iter([batch(*each) for each in rows]))
    assert [value for portion in found for value in portion] == [
        b"%d" % value for each in rows for value in each
    ]
    assert all(found)


async def test_the_first_rows_come_at_once_and_others_together() -> None:
    assert await taken(iter([batch(), batch(1), batch(2), batch(), batch(3, 4)])) == [
        [b"1"],
        [b"2", b"3", b"4"],
    ]


async def test_a_portion_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_PORTION_BYTES", 2 * batch(1).nbytes)
    assert await taken(batch(value) for value in range(6)) == [
        [b"0"],
        [b"1", b"2"],
        [b"3", b"4"],
        [b"5"],
    ]


async def test_rows_that_come_slowly_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("aioprod.spark.sending.time.monotonic", lambda: clock[0])

    def slowly() -> Iterator[pa.RecordBatch]:
        for value in range(4):
            clock[0] += 0.03
            yield batch(value)

    assert await taken(slowly()) == [[b"0"], [b"1", b"2"], [b"3"]]


async def test_rows_are_joined_while_brokers_are_busy() -> None:
    """A batch of few records for each of a thousand partitions costs a broker as much as one of
    many.
    """
    rows: list[int] = []

    class Watched(Producer):
        async def send_arrow(self, topic: str, data: pa.RecordBatch) -> Deliveries:
            rows.append(data.num_rows)
            return await super().send_arrow(topic, data)

    released = asyncio.Event()
    async with EmbeddedCluster() as broker:
        broker.create_topic("many", num_partitions=50)
        broker.on(ApiKey.PRODUCE, hold_answer(released))
        async with Watched(broker.bootstrap_servers, linger_ms=0) as producer:
            sender = sending.RowSender(producer, "many")
            for value in range(12):
                await sender.send(batch(*range(100 * value, 100 * value + 100)))
            assert rows == [100, 100]
            released.set()
            await sender.finish()
        assert rows == [100, 100, 1000]
        assert sender.rows == 1200
        found = [r.value for p in range(50) for r in broker.records("many", p)]
    assert sorted(map(int, filter(None, found))) == list(range(1200))


async def test_the_rows_that_wait_for_brokers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_MOST_KEPT_BYTES", 3 * batch(*range(100)).nbytes)
    released = asyncio.Event()
    async with EmbeddedCluster() as broker:
        broker.create_topic("many", num_partitions=5)
        broker.on(ApiKey.PRODUCE, hold_answer(released))
        async with Producer(broker.bootstrap_servers) as producer:
            sender = sending.RowSender(producer, "many")
            for _ in range(4):
                await sender.send(batch(*range(100)))
            fifth = asyncio.ensure_future(sender.send(batch(*range(100))))
            await broker.wait_for_request(ApiKey.PRODUCE)
            done, _ = await asyncio.wait({fifth}, timeout=0.2)
            assert not done
            released.set()
            await fifth
            await sender.finish()
        assert sender.rows == 500
