"""``getarrow``: the records of ``getmany`` as columns, in their order, with the same positions."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioprod import (
    ConfigError,
    Consumer,
    ConsumerRecord,
    CorruptRecordError,
    Producer,
    TopicPartition,
)
from aioprod.consumer import ready_records
from aioprod.testing import ApiKey, EmbeddedCluster, change_answer

LIMIT_S = 30
FIRST_MS = 1_700_000_000_000


async def fill(broker: EmbeddedCluster, count: int, seed: int, **settings: Any) -> None:
    """Write records of all kinds to both partitions of ``orders``, in several batches."""
    draw = random.Random(seed)
    async with Producer(broker.bootstrap_servers, **settings) as producer:
        for number in range(count):
            await producer.send(
                "orders",
                draw.choice((None, b"", b"v%d" % number, b"x" * draw.randrange(300))),
                draw.choice((None, b"", b"k%d" % number)),
                draw.randrange(2),
                FIRST_MS + draw.randrange(10_000),
                draw.choice(((), [("h", b"1"), ("h", None)], [("é", b"")])),
            )
            if draw.random() < 0.05:
                await producer.flush()


def rows(table: pa.Table) -> list[ConsumerRecord]:
    assert table.schema.names == [
        *("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
    ]
    stamps = table["timestamp"].cast(pa.int64()).to_pylist()
    return [
        ConsumerRecord(
            row["topic"],
            row["partition"],
            row["offset"],
            stamp,
            row["timestamp_type"],
            row["key"],
            row["value"],
            tuple((each["key"], each["value"]) for each in row["headers"] or ()),
        )
        for row, stamp in zip(table.to_pylist(), stamps, strict=True)
    ]


def plain(records: Any) -> list[ConsumerRecord]:
    return sorted(
        (record._replace(leader_epoch=-1) for record in records),
        key=lambda record: (record.partition, record.offset),
    )


def in_order(records: list[ConsumerRecord]) -> bool:
    return all(
        [each.offset for each in records if each.partition == number]
        == [each.offset for each in plain(records) if each.partition == number]
        for number in (0, 1)
    )


def reader(broker: EmbeddedCluster, **settings: Any) -> Consumer:
    settings.setdefault("auto_offset_reset", "earliest")
    return Consumer("orders", bootstrap_servers=broker.bootstrap_servers, **settings)


async def by_rows(broker: EmbeddedCluster, count: int, **settings: Any) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    async with reader(broker, **settings) as consumer, asyncio.timeout(LIMIT_S):
        while len(found) < count:
            found += await consumer.getmany()
    return plain(found)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_the_columns_are_the_records(broker: EmbeddedCluster, codec: str) -> None:
    broker.create_topic("orders", 2)
    await fill(broker, 400, seed=5, compression_type=codec)
    found: list[ConsumerRecord] = []
    async with reader(broker) as consumer, asyncio.timeout(LIMIT_S):
        while len(found) < 400:
            found += rows(await consumer.getarrow())
        for number in (0, 1):
            partition = TopicPartition("orders", number)
            assert await consumer.position(partition) == broker.high_watermark("orders", number)
    assert in_order(found)
    assert plain(found) == await by_rows(broker, 400)


async def test_calls_of_all_kinds_may_alternate(broker: EmbeddedCluster) -> None:
    broker.create_topic("orders", 2)
    await fill(broker, 600, seed=6)
    seed = random.randrange(1 << 32)
    print(f"{seed=}")
    draw = random.Random(seed)
    found: list[ConsumerRecord] = []
    async with reader(broker) as consumer, asyncio.timeout(LIMIT_S):
        while len(found) < 600:
            kind = draw.randrange(4)
            if kind == 0:
                found.append(await consumer.getone())
            elif kind == 1:
                found += await consumer.getmany(draw.randrange(1, 20))
            elif kind == 2:
                found += rows(await consumer.getarrow(draw.randrange(1, 20)))
            else:
                async for record in consumer:
                    found.append(record)
                    if draw.random() < 0.2 or len(found) == 600:
                        break
    assert in_order(found)
    assert plain(found) == await by_rows(broker, 600)


async def test_aborted_records_and_markers_are_no_rows(broker: EmbeddedCluster) -> None:
    broker.create_topic("orders", 1)
    async with Producer(broker.bootstrap_servers, transactional_id="t") as producer:
        for end in (producer.abort_transaction, producer.commit_transaction) * 3:
            await producer.begin_transaction()
            await producer.send_many("orders", [end.__name__.encode()] * 5)
            await producer.flush()
            await end()
    async with reader(broker, isolation_level="read_committed") as consumer:
        table = await consumer.getarrow(timeout_ms=LIMIT_S * 1000)
        assert table["value"].to_pylist() == [b"commit_transaction"] * 15
        assert await consumer.position(TopicPartition("orders", 0)) == 36


async def test_a_start_within_a_batch(broker: EmbeddedCluster) -> None:
    broker.create_topic("orders", 1)
    async with Producer(broker.bootstrap_servers) as producer:
        await (await producer.send_many("orders", [b"%d" % number for number in range(100)]))
    async with reader(broker) as consumer:
        await consumer.getone(LIMIT_S * 1000)
        consumer.seek(TopicPartition("orders", 0), 70)
        table = await consumer.getarrow(timeout_ms=LIMIT_S * 1000)
        assert table["offset"].to_pylist() == list(range(70, 100))
        empty = await consumer.getarrow(timeout_ms=20)
        assert empty.num_rows == 0 and empty.schema == table.schema


async def test_max_records_ends_with_a_whole_batch(broker: EmbeddedCluster) -> None:
    broker.create_topic("orders", 1)
    async with Producer(broker.bootstrap_servers) as producer:
        for _ in range(10):
            await (await producer.send_many("orders", [b"x"] * 10))
    async with reader(broker) as consumer, asyncio.timeout(LIMIT_S):
        for expected in (10, 20):
            assert (await consumer.getarrow(expected - 5)).num_rows == expected
        with pytest.raises(ConfigError, match="max_records"):
            await consumer.getarrow(0)


async def test_a_call_ends_at_a_number_of_bytes(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tasks wait while columns are read."""
    monkeypatch.setattr(ready_records, "_ARROW_BYTES", 1)
    broker.create_topic("orders", 2)
    await fill(broker, 50, seed=9)
    async with reader(broker) as consumer:
        sizes = [(await consumer.getarrow(timeout_ms=LIMIT_S * 1000)).num_rows for _ in range(2)]
    assert sum(sizes) == 50 and all(sizes)  # a call for each partition


async def test_the_positions_of_a_group_are_committed(broker: EmbeddedCluster) -> None:
    broker.create_topic("orders", 2)
    await fill(broker, 50, seed=7)
    count = 0
    async with reader(broker, group_id="g", enable_auto_commit=False) as consumer:
        async with asyncio.timeout(LIMIT_S):
            while count < 50:
                count += (await consumer.getarrow()).num_rows
        await consumer.commit()
    ends = {TopicPartition("orders", n): broker.high_watermark("orders", n) for n in (0, 1)}
    assert broker.committed_offsets("g") == ends


async def test_rows_before_a_corrupt_batch_come_first(broker: EmbeddedCluster) -> None:
    broker.create_topic("orders", 1)
    async with Producer(broker.bootstrap_servers) as producer:
        for number in range(3):
            await (await producer.send_many("orders", [b"%d" % number] * 4))

    def spoil(answer: Any) -> None:
        for data in [part for topic in answer.responses for part in topic.partitions]:
            if data.records:  # the last record has -1 headers
                data.records = data.records[:-1] + b"\x01"

    broker.on(ApiKey.FETCH, change_answer(spoil), times=None)
    async with reader(broker, check_crcs=False) as consumer:
        table = await consumer.getarrow(timeout_ms=LIMIT_S * 1000)
        assert table["offset"].to_pylist() == list(range(8))
        with pytest.raises(CorruptRecordError, match="orders-0 at offset 8"):
            await consumer.getarrow(timeout_ms=LIMIT_S * 1000)
        assert await consumer.position(TopicPartition("orders", 0)) == 8


async def test_a_table_can_be_sent_again(broker: EmbeddedCluster) -> None:
    broker.create_topic("orders", 2)
    broker.create_topic("copy", 2)
    await fill(broker, 100, seed=8)
    count = 0
    async with (
        reader(broker) as consumer,
        Producer(broker.bootstrap_servers) as producer,
        asyncio.timeout(LIMIT_S),
    ):
        while count < 100:
            table = await consumer.getarrow()
            count += table.num_rows
            columns = ["key", "value", "headers", "timestamp", "partition"]
            await (await producer.send_arrow("copy", table.select(columns)))
    original, copied = (
        [(each.key, each.value, each.timestamp, each.headers) for each in broker.records(topic)]
        for topic in ("orders", "copy")
    )
    assert copied == original


def test_pandas_is_not_imported() -> None:
    program = """
import asyncio, sys
from aioprod import Consumer, Producer
from aioprod.testing import EmbeddedCluster

async def main():
    async with EmbeddedCluster() as broker:
        async with Producer(broker.bootstrap_servers) as producer:
            await producer.send_and_wait("orders", b"x")
        async with Consumer(
            "orders", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            assert (await consumer.getarrow()).num_rows == 1

asyncio.run(main())
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=LIMIT_S * 2)


async def test_what_it_needs(broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_topic("orders", 1)
    async with reader(broker, value_deserializer=lambda topic, headers, data: data) as consumer:
        with pytest.raises(ConfigError, match="getarrow needs one that reads columns"):
            await consumer.getarrow()
    monkeypatch.setitem(sys.modules, "aioprod.consumer.arrow_tables", None)
    async with reader(broker) as consumer:
        with pytest.raises(ConfigError, match=r'pip install "aioprod\[arrow\]"'):
            await consumer.getarrow()
