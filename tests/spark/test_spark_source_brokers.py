"""Options of the source whose meaning is the broker's: the same against the embedded broker and a
real one, without a JVM for Spark.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place

from aioprod import ConfigError, Producer
from aioprod.spark._versions import ReadAllAvailable
from aioprod.testing import EmbeddedCluster

from .source_topics import read, send, stream, stream_values, without_ids

# Real times: a broker deletes what is older than a week.
BASE = int(time.time() * 1000) - 3_600_000
TIMES = [1_000, 2_000, 2_000, 3_000, 1_000]


def at(milliseconds: int) -> str:
    return str(BASE + milliseconds)


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "real":
        yield request.getfixturevalue("kafka")
        return
    with EmbeddedCluster.in_thread() as running:
        yield running.bootstrap_servers


@pytest.fixture
def topic(servers: str, create_topic: Callable[[str, str, int], None]) -> str:
    """Two partitions: a0 to a3 one second apart and b0 of the first second."""
    name = f"source-{uuid.uuid4().hex[:8]}"
    create_topic(servers, name, 2)
    send(
        servers,
        name,
        value=["a0", "a1", "a2", "a3", "b0"],
        partition=[0, 0, 0, 0, 1],
        timestamp=[BASE + offset for offset in TIMES],
    )
    return name


def test_a_batch_between_two_times(servers: str, topic: str) -> None:
    assert read(servers, subscribe=topic, startingTimestamp="0", endingTimestamp=at(2000)) == [
        "a0",
        "b0",
    ]
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert read(servers, subscribe=topic, startingTimestamp=at(1001), **latest) == [
        "a1",
        "a2",
        "a3",
    ]
    assert read(servers, subscribe=topic, startingTimestamp=at(3001), **latest) == []
    assert read(servers, subscribe=topic, endingTimestamp=at(99999)) == [
        "a0",
        "a1",
        "a2",
        "a3",
        "b0",
    ]


def test_a_time_for_each_partition(servers: str, topic: str) -> None:
    starting = f'{{"{topic}":{{"0":{at(3000)},"1":0}}}}'
    ending = f'{{"{topic}":{{"0":{at(3001)},"1":{at(1000)}}}}}'
    assert read(servers, subscribe=topic, startingOffsetsByTimestamp=starting) == ["a3", "b0"]
    assert read(
        servers,
        subscribe=topic,
        startingOffsetsByTimestamp=starting,
        endingOffsetsByTimestamp=ending,
    ) == ["a3"]
    with pytest.raises(
        ConfigError,
        match=(
            r"startingOffsetsByTimestamp must name each partition that is read .*missing: "
            rf"{topic}-1"
        ),
    ):
        read(servers, subscribe=topic, startingOffsetsByTimestamp=f'{{"{topic}":{{"0":3000}}}}')


def test_a_time_after_the_last_record_is_an_error_or_the_end(servers: str, topic: str) -> None:
    with pytest.raises(
        ConfigError,
        match=f"option startingTimestamp: no record at or after {at(2000)} in {topic}-1",
    ):
        read(servers, subscribe=topic, startingTimestamp=at(2000))
    with stream(
        servers,
        subscribe=topic,
        startingTimestamp=at(2000),
        startingOffsetsByTimestampStrategy="latest",
    ) as reader:
        assert without_ids(reader.initialOffset()) == {topic: {"0": 1, "1": 1}}


def test_topics_that_begin_to_match_a_pattern_are_read_from_their_first_record(
    servers: str, topic: str
) -> None:
    with stream(servers, subscribePattern=topic + ".*") as reader:
        start = reader.initialOffset()
        assert without_ids(start) == {topic: {"0": 4, "1": 1}}
        send(servers, f"{topic}-more", value=["new"])
        end = reader.latestOffset(start, ReadAllAvailable())
        assert end[topic] == start[topic] and sum(end[f"{topic}-more"].values()) == 1
        assert stream_values(reader, start, end) == ["new"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_ranges_begin_and_end_inside_of_batches(servers: str, codec: str) -> None:
    name = f"source-{uuid.uuid4().hex[:8]}"
    send(servers, name, codec, value=[str(n) for n in range(100)], partition=[0] * 100)
    parts = f'{{"{name}":{{"0":%d}}}}'
    found = read(
        servers,
        assign=f'{{"{name}":[0]}}',
        startingOffsets=parts % 7,
        endingOffsets=parts % 93,
        minPartitions="5",
    )
    assert found == [str(n) for n in range(7, 93)]


def test_what_is_not_committed_is_not_read_where_that_is_asked_for(
    servers: str, topic: str
) -> None:
    async def transactions() -> None:
        async with Producer(servers, transactional_id=f"{topic}-1") as producer:
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"aborted", partition=0)
                    raise ZeroDivisionError
            async with producer.transaction():
                await producer.send(topic, b"committed", partition=0)

    asyncio.run(transactions())
    only = {"assign": f'{{"{topic}":[0]}}'}
    assert read(servers, **only, **{"kafka.isolation.level": "read_committed"}) == [
        "a0",
        "a1",
        "a2",
        "a3",
        "committed",
    ]
    assert read(servers, **only) == ["a0", "a1", "a2", "a3", "aborted", "committed"]


def test_an_open_transaction_bounds_what_a_stream_sees(servers: str, topic: str) -> None:
    async def while_open() -> None:
        async with (
            Producer(servers, transactional_id=f"{topic}-1") as producer,
            producer.transaction(),
        ):
            await producer.send_and_wait(topic, b"open", partition=0)
            for level, end in (("read_committed", 4), ("read_uncommitted", 5)):
                assert await asyncio.to_thread(latest, level) == {topic: {"0": end, "1": 1}}

    def latest(level: str) -> dict[str, dict[str, int]]:
        with stream(servers, subscribe=topic, **{"kafka.isolation.level": level}) as reader:
            return without_ids(reader.latestOffset({topic: {"0": 0, "1": 0}}, ReadAllAvailable()))

    asyncio.run(while_open())


def test_positions_in_a_group_are_seen_by_others_and_refused_while_it_has_members(
    servers: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    group = f"{topic}-watched"
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
        }
    )
    try:
        with stream(servers, subscribe=topic, **{"kafka.group.id": group}) as reader:
            reader.commit({topic: {"0": 3, "1": 1}})
            places = [Place(topic, 0), Place(topic, 1)]
            assert [place.offset for place in consumer.committed(places, timeout=10)] == [3, 1]
            consumer.subscribe([topic])
            seen = consumer.poll(20)
            assert seen is not None and seen.value() == b"a3", (
                "it goes on at the position that was committed"
            )
            reader.commit({topic: {"0": 4, "1": 1}})
        assert "kafka.group.id must name a group that no consumer is in" in caplog.text
        assert [place.offset for place in consumer.committed(places, timeout=10)] == [3, 1]
    finally:
        consumer.close()
