"""A record that was read is sent with the same bytes, by every way."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod import Consumer, Producer, ProducerRecord, TopicPartition
from aioprod.header_names import column_text, decode_name, encode_name, name_in_column
from aioprod.processing import Processor
from aioprod.testing import EmbeddedCluster, ThreadedCluster
from aioprod.varints import encode_varint
from tests.foreign_bytes.batches import batch
from tests.protocol.record_bytes import record
from tests.testing.raw_client import RawClient
from tests.waiting import until

NAMES = [b"h", "é".encode(), b"\xff\xfe", b"caf\xe9", "\uef80".encode(), b"\xed\xb2\x80", b""]
STAMPS = [-1, -2, -86_400_000, 0, 1_700_000_000_000]
FROM, TO = TopicPartition("from", 0), TopicPartition("to", 0)
LIMIT_S = 30


def odd_batches() -> Iterator[bytes]:
    """Batches of two records, with all names, and of one timestamp."""
    names = b"".join(encode_varint(len(name)) + name + encode_varint(-1) for name in NAMES)
    records = [record(0, n, 1, b"k", 1, b"v", encode_varint(len(NAMES)) + names) for n in range(2)]
    for stamp in STAMPS:
        yield batch(b"".join(records), count=2, base_timestamp=stamp)


async def fill(servers: str) -> None:
    async with RawClient(servers) as client:
        for data in odd_batches():
            assert (await client.produce("from", data)).error_code == 0


def stored(cluster: EmbeddedCluster | ThreadedCluster, topic: str) -> list[tuple[list[bytes], int]]:
    """Names, in bytes, and timestamps."""
    return [
        ([encode_name(name) for name, _ in each.headers], each.timestamp)
        for each in cluster.records(topic, 0)
    ]


EXPECTED = [(NAMES, stamp) for stamp in STAMPS for _ in range(2)]


async def by_records(consumer: Consumer, producer: Producer) -> None:
    records = await consumer.getmany(timeout_ms=5_000)
    await producer.send_many(
        "to",
        [
            ProducerRecord("to", each.value, each.key, 0, each.timestamp, each.headers)
            for each in records
        ],
    )


async def by_columns(consumer: Consumer, producer: Producer) -> None:
    table = await consumer.getarrow(timeout_ms=5_000)
    assert table.column("headers").to_pylist(), "all names are valid text"
    columns = ["key", "value", "headers", "timestamp", "partition"]
    await producer.send_arrow("to", table.select(columns))


async def by_columns_of_records(consumer: Consumer, producer: Producer) -> None:
    """The rest of a batch that another call has begun is converted from records."""
    first = await consumer.getone(timeout_ms=5_000)
    await producer.send("to", first.value, first.key, 0, first.timestamp, first.headers)
    await by_columns(consumer, producer)


@pytest.mark.parametrize("way", [by_records, by_columns, by_columns_of_records])
async def test_clients(
    broker: EmbeddedCluster, way: Callable[[Consumer, Producer], Awaitable[None]]
) -> None:
    broker.create_topic("from", 1)
    broker.create_topic("to", 1)
    await fill(broker.bootstrap_servers)
    servers = broker.bootstrap_servers
    async with (
        asyncio.timeout(LIMIT_S),
        Producer(servers) as producer,
        Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([FROM])
        await way(consumer, producer)
        await producer.flush()
    assert stored(broker, "from") == stored(broker, "to") == EXPECTED


@pytest.mark.virtual_time
async def test_dead_letters(broker: EmbeddedCluster) -> None:
    broker.create_topic("from", 1)
    broker.create_topic("to", 1)
    await fill(broker.bootstrap_servers)

    async def handle(record: object) -> None:
        raise ValueError("poison")

    async with Processor(
        handle,
        "from",
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        dead_letter_topic="to",
        consumer={"auto_offset_reset": "earliest"},
    ):
        await until(lambda: len(broker.records("to", committed_only=True)) == len(EXPECTED))
    for each in broker.records("to", committed_only=True):
        assert [encode_name(name) for name, _ in each.headers][: len(NAMES)] == NAMES


@pytest.fixture
def filled(threaded_broker: ThreadedCluster) -> ThreadedCluster:
    threaded_broker.create_topic("from", 1)
    threaded_broker.create_topic("to", 1)
    asyncio.run(fill(threaded_broker.bootstrap_servers))
    return threaded_broker


def aioprod(*arguments: str, given: bytes = b"") -> bytes:
    done = subprocess.run(
        [sys.executable, "-m", "aioprod", *arguments],
        input=given,
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_the_command_line(filled: ThreadedCluster) -> None:
    where = ["-b", filled.bootstrap_servers, "-q"]
    printed = aioprod("consume", "from", "--exit", *where)
    aioprod("produce", "to", "--format", "json", *where, given=printed)
    assert stored(filled, "to") == EXPECTED
    raw = aioprod("consume", "from", "--exit", "--format", "%h;", *where)
    assert raw == b";".join([b",".join(name + b"=NULL" for name in NAMES)] * len(EXPECTED)) + b";"


def test_arguments_that_are_not_utf_8(filled: ThreadedCluster) -> None:
    where = ["-b", filled.bootstrap_servers, "-q"]
    name, value, split = (os.fsdecode(data) for data in (b"caf\xe9", b"\xff", b"\xa7"))
    arguments = ["-H", f"{name}={value}", "-K", split]
    aioprod("produce", "to", *arguments, *where, given=b"key\xa7value\n")
    (stored_record,) = filled.records("to")
    assert (stored_record.key, stored_record.value) == (b"key", b"value")
    assert stored_record.headers == ((decode_name(b"caf\xe9"), b"\xff"),)
    printed = aioprod("consume", "to", "--exit", "--format", f"%k{split}%v{split}%h", *where)
    assert printed == b"key\xa7value\xa7caf\xe9=\xff"


def test_a_copy(filled: ThreadedCluster) -> None:
    with EmbeddedCluster.in_thread() as target:
        target.create_topic("from", 1)
        servers = ["-b", filled.bootstrap_servers, "--to-bootstrap-servers"]
        aioprod("copy", "from", "--once", *servers, target.bootstrap_servers)
        assert stored(target, "from")[: len(EXPECTED)] == EXPECTED


@given(st.binary(max_size=12) | st.text(max_size=6).map(str.encode))
def test_each_name_has_one_text_in_rows_and_columns(name: bytes) -> None:
    row = decode_name(name)
    assert encode_name(row) == name
    column = column_text(row)
    column.encode()  # no surrogates
    assert name_in_column(column) == row
    if name.isascii():
        assert row == column == name.decode()
