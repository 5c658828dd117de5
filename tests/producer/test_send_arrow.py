"""Arrow tables to Kafka: the records are those that send would have written, each row has its own
outcome, and nothing is lost or doubled.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
import time
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from aioprod import (
    BrokerError,
    BytesSerializer,
    ConfigError,
    Deliveries,
    ErrorCode,
    InvalidPartitionError,
    InvalidTopicError,
    KafkaError,
    MetadataTimeoutError,
    Producer,
    ProducerInterceptor,
    ProducerRecord,
    RecordTooLargeError,
    RoundRobinPartitioner,
    SerializationError,
    StringSerializer,
)
from aioprod.producer import arrow, arrow_partitions
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, fail
from tests.producer.arrow_rows import assert_nothing_kept, number_of, numbered, where

NOW = 1_700_000_000_000
LIMIT_S = 30.0

__all__ = ["where"]


# -- what arrives ----------------------------------------------------------------------------------


def mixed_rows(count: int) -> list[dict[str, Any]]:
    rng = random.Random(count)
    return [
        {
            "value": rng.choice([None, b"", b"%d" % number, b"v" * rng.randrange(300)]),
            "key": rng.choice([None, b"", b"%d" % (number % 50), b"k" * rng.randrange(100)]),
            "headers": rng.choice(
                [
                    None,
                    [],
                    [("h", b"1"), ("h", None)],
                    [(f"name-{number}", b"x" * rng.randrange(100))],
                ]
            ),
            "timestamp": rng.choice([None, NOW, NOW + number, NOW - number]),
            "partition": rng.choice([None, None, number % 4]),
        }
        for number in range(count)
    ]


def as_table(rows: list[dict[str, Any]]) -> pa.Table:
    types = {
        "value": pa.binary(),
        "key": pa.binary(),
        "headers": pa.map_(pa.string(), pa.binary()),
        "timestamp": pa.int64(),
        "partition": pa.int16(),
    }
    return pa.table(
        {name: pa.array([row[name] for row in rows], kind) for name, kind in types.items()}
    )


async def test_the_records_are_those_that_send_would_have_written(
    broker: EmbeddedCluster, where: str
) -> None:
    rows = mixed_rows(2_000)
    rows = [
        row if row["key"] is not None or row["partition"] is not None else {**row, "key": b"any"}
        for row in rows
    ]
    for topic in ("by-send", "by-arrow"):
        broker.create_topic(topic, num_partitions=4)
    async with Producer(
        broker.bootstrap_servers, clock=lambda: NOW / 1000, batch_size=5_000
    ) as producer:
        for row in rows:
            await producer.send(
                "by-send",
                row["value"],
                row["key"],
                row["partition"],
                row["timestamp"],
                row["headers"] or (),
            )
        deliveries = await producer.send_arrow("by-arrow", as_table(rows))
        await deliveries.wait()
        await producer.flush()
    for partition in range(4):
        expected = broker.records("by-send", partition)
        assert len(expected) > 300
        assert broker.records("by-arrow", partition) == expected


async def test_rows_come_behind_what_was_sent_before_and_before_what_is_sent_after(
    broker: EmbeddedCluster,
) -> None:
    async with Producer(broker.bootstrap_servers, linger_ms=50, batch_size=2_000) as producer:
        deliveries: list[Any] = []
        for start in range(0, 400, 100):
            values = numbered(400)[start : start + 100]
            deliveries += [await producer.send("t", value) for value in values[:50]]
            deliveries += await producer.send_arrow("t", pa.table({"value": values[50:]}))
        assert [(await delivery).offset for delivery in deliveries] == list(range(400))
    assert [number_of(record) for record in broker.records("t")] == list(range(400))


async def test_rows_without_keys_go_to_all_partitions_in_full_batches(
    broker: EmbeddedCluster,
) -> None:
    broker.create_topic("t", num_partitions=3)
    async with Producer(
        broker.bootstrap_servers, batch_size=4_000, linger_ms=60_000, delivery_timeout_ms=120_000
    ) as producer:
        deliveries = await producer.send_arrow("t", pa.table({"value": numbered(5_000)}))
        async with asyncio.timeout(LIMIT_S):
            places = await deliveries
        metrics = producer.metrics()
    found = [broker.records("t", partition) for partition in range(3)]
    assert all(len(records) > 500 for records in found)
    assert sorted(number_of(record) for records in found for record in records) == list(
        range(5_000)
    )
    assert all(
        number_of(found[place.partition][place.offset]) == row for row, place in enumerate(places)
    )
    assert metrics["batch-size-avg"] > 3_600, (
        "linger_ms=60000 is not waited for, and the batches are full"
    )


async def test_keys_can_be_ignored(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", num_partitions=4)
    async with Producer(
        broker.bootstrap_servers, partitioner_ignore_keys=True, batch_size=1_000
    ) as producer:
        places = await (
            await producer.send_arrow(
                "t", pa.table({"value": numbered(1_000), "key": [b"the same key"] * 1_000})
            )
        )
    assert len({place.partition for place in places}) > 1


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_batches_are_compressed(broker: EmbeddedCluster, codec: Any) -> None:
    values = numbered(20_000)
    async with Producer(
        broker.bootstrap_servers, compression_type=codec, batch_size=16_384
    ) as producer:
        for _ in range(2):  # in the second round the topic is known to shrink
            await (await producer.send_arrow("t", pa.table({"value": values}))).wait()
        assert producer.metrics()["compression-rate-avg"] < 0.3
    assert [record.value for record in broker.records("t")] == values * 2


async def test_many_rows_are_encoded_in_a_thread(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[threading.Thread] = []

    def watched(*args: Any, **kwargs: Any) -> Any:
        seen.append(threading.current_thread())
        return original(*args, **kwargs)

    original = arrow_partitions.partition_records
    monkeypatch.setattr(arrow, "partition_records", watched)
    monkeypatch.setattr(arrow, "_FEW_TO_ENCODE", 1_000)  # the accelerator's is a whole portion
    async with Producer(broker.bootstrap_servers) as producer:
        await (await producer.send_arrow("t", pa.table({"value": numbered(10)}))).wait()
        assert seen == [threading.main_thread()]
        await (await producer.send_arrow("t", pa.table({"value": numbered(5_000)}))).wait()
        assert len(seen) > 1 and threading.main_thread() not in seen[1:]


# -- outcomes --------------------------------------------------------------------------------------


async def test_each_row_has_its_delivery(broker: EmbeddedCluster, where: str) -> None:
    broker.create_topic("t", num_partitions=5)
    keys = [b"%d" % (number % 97) for number in range(3_000)]
    async with Producer(broker.bootstrap_servers, batch_size=1_000) as producer:
        deliveries = await producer.send_arrow(
            "t", pa.table({"value": numbered(3_000), "key": keys})
        )
        assert isinstance(deliveries, Deliveries) and len(deliveries) == 3_000
        places = await deliveries
        assert deliveries.done() and deliveries.exceptions() == {}
        assert [await delivery for delivery in deliveries] == places
        assert deliveries[17].result() == places[17] and deliveries[-1].result() == places[-1]
        assert [delivery.result() for delivery in deliveries[10:20]] == places[10:20]
    found = [broker.records("t", partition) for partition in range(5)]
    for row, place in enumerate(places):
        record = found[place.partition][place.offset]
        assert (number_of(record), record.key, record.timestamp) == (
            row,
            keys[row],
            place.timestamp,
        )


async def test_places_have_the_timestamps_of_the_rows(broker: EmbeddedCluster) -> None:
    times = [datetime(2026, 1, 1, 0, 0, second % 60, 5_000, UTC) for second in range(100)]
    async with Producer(broker.bootstrap_servers) as producer:
        places = await (
            await producer.send_arrow("t", pa.table({"value": numbered(100), "timestamp": times}))
        )
    assert [place.timestamp for place in places] == [int(time.timestamp() * 1000) for time in times]
    assert [record.timestamp for record in broker.records("t")] == [
        place.timestamp for place in places
    ]


@pytest.mark.parametrize("keyed", [False, True])
async def test_a_row_that_is_too_large_fails_alone(broker: EmbeddedCluster, keyed: bool) -> None:
    values = numbered(50)
    values[7] = b"x" * 5_000_000  # as its columns show already
    values[20] = b"x" * 9_990  # with what a record and a batch have besides
    values[21] = b"000021" + b"x" * 9_800  # just not
    columns = {
        "value": values,
        **({"key": [b"%d" % (number % 9) for number in range(50)]} if keyed else {}),
    }
    broker.create_topic("t", num_partitions=3)
    async with Producer(
        broker.bootstrap_servers, max_request_size=10_000, batch_size=1_000
    ) as producer:
        deliveries = await producer.send_arrow("t", pa.table(columns))
        await producer.flush()
        with pytest.raises(RecordTooLargeError, match=r"row 7 .*max_request_size"):
            await deliveries
        found = deliveries.exceptions()
        assert list(found) == [7, 20]
        assert all(isinstance(error, RecordTooLargeError) for error in found.values())
        assert "max_request_size=10000" in str(found[20])
        assert producer.metrics()["record-error-total"] == 2
    assert sorted(number_of(record) for record in broker.records("t")) == [
        row for row in range(50) if row not in (7, 20)
    ]


async def test_rows_for_partitions_that_are_not_there_fail_alone(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", num_partitions=2)
    partitions = [0, 5, 1, None, -1, 0]
    async with Producer(broker.bootstrap_servers) as producer:
        deliveries = await producer.send_arrow(
            "t", pa.table({"value": numbered(6), "partition": partitions})
        )
        with pytest.raises(
            InvalidPartitionError, match="partition=5 of topic 't': it has partitions 0 to 1"
        ):
            await deliveries
        assert list(deliveries.exceptions()) == [1, 4]
        assert deliveries[0].result().partition == deliveries[5].result().partition == 0
    assert sorted(number_of(record) for record in broker.records("t")) == [0, 2, 3, 5]


async def test_a_partition_may_be_new(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", num_partitions=1)
    async with Producer(broker.bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"x")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        await asyncio.to_thread(_add_partitions, admin, "t", 3)
        places = await (
            await producer.send_arrow("t", pa.table({"value": numbered(2), "partition": [2, 1]}))
        )
    assert [place.partition for place in places] == [2, 1]


def _add_partitions(admin: AdminClient, topic: str, total: int) -> None:
    for future in admin.create_partitions([NewPartitions(topic, total)]).values():
        future.result(LIMIT_S)


async def test_where_the_topic_cannot_be_had_all_rows_fail_with_one_wait(
    broker: EmbeddedCluster,
) -> None:
    refusals = {
        "secret": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "slow": ErrorCode.LEADER_NOT_AVAILABLE,
    }
    for topic, expected, max_block_ms in (
        ("not legal", InvalidTopicError, 60_000),
        ("secret", BrokerError, 60_000),
        ("slow", MetadataTimeoutError, 200),
    ):
        async with Producer(broker.bootstrap_servers, max_block_ms=max_block_ms) as producer:
            broker.clear_rules()
            broker.on(
                ApiKey.METADATA, fail(refusals.get(topic, ErrorCode.NONE), topic=topic), times=None
            )
            async with asyncio.timeout(5):
                deliveries = await producer.send_arrow(
                    topic, pa.table({"value": numbered(5_000), "key": numbered(5_000)})
                )
            assert deliveries.done() and len(deliveries) == 5_000
            assert {type(error) for error in deliveries.exceptions().values()} == {expected}
            with pytest.raises(expected):
                await deliveries.wait()
            assert producer.metrics()["record-error-total"] == 5_000


async def test_an_invalid_table_of_records_is_refused_before_anything_is_sent(
    broker: EmbeddedCluster,
) -> None:
    async with Producer(broker.bootstrap_servers) as producer:
        for wrong in (
            [b"v"],
            pa.table({"key": [b"k"]}),
            pa.table({"value": [b"v"] * 5_000, "timestamp": [*range(4_999), 2**62]}),
        ):
            with pytest.raises(SerializationError):
                await producer.send_arrow("t", wrong)
        with pytest.raises(InvalidPartitionError, match="4294967296 not in range"):
            await producer.send_arrow("t", pa.table({"value": [b"v"], "partition": [2**32]}))
        assert (
            len(await producer.send_arrow("t", pa.table({"value": pa.array([], pa.binary())}))) == 0
        )
        assert_nothing_kept(producer)
    assert "t" not in broker.topics


# -- who has to see each record --------------------------------------------------------------------


class Marking(ProducerInterceptor):
    def __init__(self) -> None:
        self.delivered: list[ProducerRecord] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(headers=[*record.headers, ("seen", b"yes")])

    def on_delivery(
        self, record: ProducerRecord, metadata: object, error: KafkaError | None
    ) -> None:
        self.delivered.append(record)


@pytest.mark.parametrize("text", [False, True])
async def test_interceptors_see_each_row(broker: EmbeddedCluster, text: bool) -> None:
    marking = Marking()
    kind = pa.struct([("value", pa.string() if text else pa.binary()), ("name", pa.string())])
    headers = pa.array([[{"name": "h", "value": "1" if text else b"1"}], None, []], pa.list_(kind))
    columns = {
        "value": ["a", None, "c"],
        "key": [b"k", None, b""],
        "timestamp": [NOW, NOW + 1, None],
        "partition": [1, None, -1],
        "headers": headers,
    }
    broker.create_topic("t", num_partitions=2)
    async with Producer(broker.bootstrap_servers, interceptors=[marking]) as producer:
        deliveries = await producer.send_arrow("t", pa.table(columns))
        with pytest.raises(InvalidPartitionError):
            await deliveries
        assert list(deliveries.exceptions()) == [2]
    first = broker.records("t", 1)[0]
    assert (first.value, first.key, first.timestamp, list(first.headers)) == (
        b"a",
        b"k",
        NOW,
        [("h", b"1"), ("seen", b"yes")],
    )
    assert {record.value for record in marking.delivered} == {b"a", None}


async def test_a_partitioner_is_asked_for_each_row(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", num_partitions=4)
    async with Producer(broker.bootstrap_servers, partitioner=RoundRobinPartitioner()) as producer:
        places = await (await producer.send_arrow("t", pa.table({"value": numbered(40)})))
    assert [place.partition for place in places] == [0, 1, 2, 3] * 10


async def test_serializers_have_nothing_to_do(broker: EmbeddedCluster) -> None:
    async with Producer(broker.bootstrap_servers, value_serializer=StringSerializer()) as producer:
        with pytest.raises(ConfigError, match="value_serializer"):
            await producer.send_arrow("t", pa.table({"value": ["text"]}))
    async with Producer(
        broker.bootstrap_servers,
        key_serializer=BytesSerializer(),
        value_serializer=BytesSerializer(),
    ) as producer:
        await (await producer.send_arrow("t", pa.table({"value": ["text"]})))
    assert broker.records("t")[0].value == b"text"


async def test_the_extra_is_named_where_pyarrow_is_missing(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(sys.modules):
        if name.startswith("aioprod.") and "arrow" in name:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    async with Producer(broker.bootstrap_servers) as producer:
        with pytest.raises(
            ImportError,
            match=r"send_arrow needs the extra arrow, as in pip install 'aioprod\[arrow\]'",
        ):
            await producer.send_arrow("t", None)


# -- real Kafka ------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_another_client_reads_it_from_real_kafka(kafka: str, codec: Any) -> None:
    topic = f"arrow-{os.getpid()}-{time.time_ns()}"
    count = 50_000
    keys = [None if number % 5 == 0 else b"key-%d" % (number % 1_000) for number in range(count)]
    headers = [
        [("n", b"%d" % number), ("null", None)] if number % 3 else None for number in range(count)
    ]
    times = [NOW + number // 100 - number % 7 for number in range(count)]
    columns = {
        "value": pa.array(
            [None if number % 11 == 0 else b"%06d" % number for number in range(count)]
        ),
        "key": pa.array(keys),
        "headers": pa.array(headers, pa.map_(pa.string(), pa.binary())),
        "timestamp": pa.array(times, pa.timestamp("ms", "UTC")),
    }
    admin = AdminClient({"bootstrap.servers": kafka})
    await asyncio.to_thread(admin.create_topics([NewTopic(topic, 3, 1)])[topic].result, LIMIT_S)
    async with Producer(kafka, compression_type=codec) as producer:
        by_key = {
            key: (await producer.send_and_wait(topic, b"key", key)).partition
            for key in (b"key-1", b"key-2", b"key-3")
        }
        places = await (await producer.send_arrow(topic, pa.table(columns)))
    found = await asyncio.to_thread(_read, kafka, topic, count + len(by_key))
    for row, place in enumerate(places):
        message = found[place.partition, place.offset]
        assert message.key() == keys[row]
        assert message.value() == (None if row % 11 == 0 else b"%06d" % row)
        assert (message.headers() or None) == headers[row]
        assert message.timestamp()[1] == times[row] == place.timestamp
        assert by_key.get(keys[row] or b"", place.partition) == place.partition
    for partition in range(3):
        rows = [
            row
            for row, place in enumerate(places)
            if place.partition == partition and keys[row] is not None
        ]
        offsets = [places[row].offset for row in rows]
        assert offsets == sorted(offsets)


def _read(servers: str, topic: str, count: int) -> dict[tuple[int, int], Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    try:
        consumer.assign(
            [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(3)]
        )
        found: dict[tuple[int, int], Any] = {}
        deadline = time.monotonic() + LIMIT_S
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(10_000, 0.2):
                partition, offset = message.partition(), message.offset()
                assert message.error() is None and partition is not None and offset is not None
                found[partition, offset] = message
        assert len(found) == count
        return found
    finally:
        consumer.close()


async def test_a_portion_grows_with_the_number_of_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Brokers take as long for a batch of few records as for one of many."""
    monkeypatch.setattr(arrow, "_MOST_ROWS", 1000)
    rows = 128 * 50
    keys = pa.array([b"%d" % row for row in range(rows)], pa.binary())
    table = pa.table({"key": keys, "value": keys})
    batches = []
    for partitions in (5, 50):
        async with EmbeddedCluster() as broker:
            broker.create_topic("t", partitions)
            async with Producer(broker.bootstrap_servers) as producer:
                deliveries = await producer.send_arrow("t", table)
                await deliveries.wait()
                batches.append(len(deliveries._stretches))
            assert sum(len(broker.records("t", number)) for number in range(partitions)) == rows
    assert batches == [5 * 7, 50]
