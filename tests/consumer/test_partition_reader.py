"""Reading one partition: every record once, in order, whatever the brokers do meanwhile."""

from __future__ import annotations

import asyncio
import copy
import time
from dataclasses import replace

import pytest

from aioprod import (
    BrokerError,
    ConfigError,
    ErrorCode,
    KafkaError,
    Producer,
    RequestTimedOutError,
    TopicPartition,
    TopicRecreatedError,
)
from aioprod.cluster.client import ClusterClient
from aioprod.consumer.partition_reader import (
    EARLIEST,
    LATEST,
    FetchSettings,
    PartitionReader,
    list_offsets,
    partitions_of,
)
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.fetch import FetchResponse
from aioprod.protocol.messages.metadata import MetadataResponse
from aioprod.protocol.record_reader import Record
from aioprod.testing import EmbeddedCluster, change_answer, close, drop_after, fail

TP = TopicPartition("numbers", 0)
SMALL = FetchSettings(max_partition_fetch_bytes=300, fetch_max_wait_ms=20, retry_limit_ms=5_000)


async def fill(broker: EmbeddedCluster, count: int, first: int = 0) -> None:
    """Write the numbers from ``first`` on, in batches of ten."""
    async with Producer(broker.bootstrap_servers, linger_ms=0) as producer:
        for start in range(first, first + count, 10):
            for number in range(start, min(start + 10, first + count)):
                await producer.send(
                    "numbers",
                    b"%d" % number,
                    partition=0,
                    timestamp_ms=1_000 + number,
                    headers=[("n", b"%d" % number)],
                )
            await producer.flush()


async def read(
    client: ClusterClient, start: int, end: int | None, settings: FetchSettings = SMALL
) -> list[Record]:
    return [
        record
        async for fetched in PartitionReader(client, TP, start, end, settings)
        for record in fetched.records()
    ]


def values(records: list[Record]) -> list[int]:
    return [int(record.value or b"-1") for record in records]


async def test_reads_each_record_once_and_in_order_over_many_fetches(
    broker: EmbeddedCluster,
) -> None:
    await fill(broker, 100)
    async with ClusterClient(broker.bootstrap_servers) as client:
        records = await read(client, 0, 100)
    assert values(records) == list(range(100))
    assert [record.offset for record in records] == list(range(100))
    assert records[42].timestamp == 1_042
    assert records[42].headers == (("n", b"42"),)
    fetches = [seen for seen in broker.requests if seen.api_key == ApiKey.FETCH]
    assert len(fetches) > 3


@pytest.mark.parametrize(
    ("start", "end"), [(3, 7), (15, 38), (0, 1), (99, 100), (40, 40), (50, 20)]
)
async def test_takes_only_the_offsets_asked_for_out_of_whole_batches(
    broker: EmbeddedCluster, start: int, end: int
) -> None:
    await fill(broker, 100)
    async with ClusterClient(broker.bootstrap_servers) as client:
        assert values(await read(client, start, end)) == list(range(start, end))


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
async def test_a_leader_that_moved_is_looked_up_again(
    broker: EmbeddedCluster, code: ErrorCode
) -> None:
    await fill(broker, 50)
    async with ClusterClient(broker.bootstrap_servers, retry_backoff_ms=5) as client:
        rule = broker.on(ApiKey.FETCH, fail(code), times=2)
        assert values(await read(client, 0, 50)) == list(range(50))
    assert rule.spent


async def test_lost_connections_and_replies_lose_no_record(broker: EmbeddedCluster) -> None:
    await fill(broker, 50)
    async with ClusterClient(
        broker.bootstrap_servers, retry_backoff_ms=5, reconnect_backoff_ms=5, request_timeout_ms=300
    ) as client:
        broker.on(ApiKey.FETCH, close(), times=2)
        broker.on(ApiKey.FETCH, drop_after(), times=1)
        assert values(await read(client, 0, 50)) == list(range(50))


async def test_goes_on_where_it_stood_when_the_broker_comes_back(broker: EmbeddedCluster) -> None:
    await fill(broker, 50)
    async with ClusterClient(
        broker.bootstrap_servers, retry_backoff_ms=5, reconnect_backoff_ms=5
    ) as client:
        found: list[Record] = []
        async for fetched in PartitionReader(client, TP, 0, 50, SMALL):
            found += fetched.records()
            if len(found) == len(fetched.records()):
                await broker.stop()
                await broker.start()
        assert values(found) == list(range(50))


@pytest.mark.virtual_time
async def test_gives_up_with_the_last_error_after_the_limit(broker: EmbeddedCluster) -> None:
    await fill(broker, 10)
    async with ClusterClient(
        broker.bootstrap_servers, retry_backoff_ms=5, retry_backoff_max_ms=20
    ) as client:
        broker.on(ApiKey.FETCH, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=None)
        started = time.monotonic()
        with pytest.raises(BrokerError, match="numbers-0 at offset 0") as caught:
            await read(client, 0, 10, FetchSettings(retry_limit_ms=300))
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert 0.3 <= time.monotonic() - started < 3


async def test_an_error_that_cannot_pass_is_not_retried(broker: EmbeddedCluster) -> None:
    await fill(broker, 10)
    async with ClusterClient(broker.bootstrap_servers) as client:
        rule = broker.on(ApiKey.FETCH, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=2)
        with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
            await read(client, 0, 10)
    assert not rule.spent


async def test_an_offset_out_of_range_names_the_range(broker: EmbeddedCluster) -> None:
    await fill(broker, 10)
    async with ClusterClient(broker.bootstrap_servers) as client:
        with pytest.raises(
            BrokerError, match=r"at offset 500: the log has offsets 0 to 10"
        ) as caught:
            await read(client, 500, 600)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.virtual_time
async def test_an_end_that_is_never_reached_fails_and_says_where_the_log_ends(
    broker: EmbeddedCluster,
) -> None:
    await fill(broker, 10)
    async with ClusterClient(broker.bootstrap_servers) as client:
        with pytest.raises(
            RequestTimedOutError, match=r"from offset 10 \(to read up to 20\).*the log ends at 10"
        ):
            await read(client, 0, 20, FetchSettings(retry_limit_ms=200, fetch_max_wait_ms=20))


async def test_without_an_end_it_waits_for_more(broker: EmbeddedCluster) -> None:
    await fill(broker, 10)
    found: list[int] = []
    async with ClusterClient(broker.bootstrap_servers) as client:
        async with asyncio.timeout(5):
            async for fetched in PartitionReader(client, TP, 0, None, SMALL):
                found += values(fetched.records())
                if len(found) == 10:
                    await fill(broker, 5, first=10)
                if len(found) == 15:
                    break
    assert found == list(range(15))


@pytest.mark.virtual_time
async def test_a_topic_that_does_not_exist_is_said_to_be_unknown(broker: EmbeddedCluster) -> None:
    async with ClusterClient(broker.bootstrap_servers, retry_backoff_ms=5) as client:
        with pytest.raises(BrokerError, match="topic 'nothing': UNKNOWN_TOPIC_OR_PARTITION"):
            await partitions_of(client, ["nothing"], limit_s=0.1)
    assert "nothing" not in broker.topics


@pytest.mark.virtual_time
async def test_a_partition_that_does_not_exist_is_said_to_be_unknown(
    broker: EmbeddedCluster,
) -> None:
    await fill(broker, 1)
    async with ClusterClient(broker.bootstrap_servers, retry_backoff_ms=5) as client:
        with pytest.raises(BrokerError, match=r"numbers-7 \(the topic has 1 partition\)"):
            await list_offsets(client, {TopicPartition("numbers", 7): LATEST}, retry_limit_ms=100)


async def test_offsets_by_end_beginning_and_time(bootstrap: str) -> None:
    topic = f"offsets-{time.time_ns()}"
    async with Producer(bootstrap) as producer:
        for number in range(5):
            await producer.send_and_wait(
                topic, b"%d" % number, partition=0, timestamp_ms=1_000 + number
            )
    tp = TopicPartition(topic, 0)
    async with ClusterClient(bootstrap) as client:
        assert await partitions_of(client, [topic]) == [tp]
        for timestamp, expected in ((LATEST, 5), (EARLIEST, 0), (1_003, 3), (9_999, -1)):
            assert await list_offsets(client, {tp: timestamp}) == {tp: expected}


async def test_offset_lookups_are_retried_on_a_leader_that_moved(broker: EmbeddedCluster) -> None:
    broker.create_topic("numbers", 4)
    partitions = [TopicPartition("numbers", number) for number in range(4)]
    async with ClusterClient(broker.bootstrap_servers, retry_backoff_ms=5) as client:
        broker.on(ApiKey.LIST_OFFSETS, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        broker.on(ApiKey.LIST_OFFSETS, close())
        assert await list_offsets(client, dict.fromkeys(partitions, LATEST)) == dict.fromkeys(
            partitions, 0
        )
    assert sum(seen.api_key == ApiKey.LIST_OFFSETS for seen in broker.requests) == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [("isolation_level", "dirty"), ("fetch_max_bytes", 0), ("fetch_max_wait_ms", -1)],
)
def test_settings_outside_their_limits_are_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        FetchSettings(**{name: value})  # type: ignore[arg-type]


async def test_reads_what_a_real_broker_compressed_batches_keep(bootstrap: str) -> None:
    topic = f"compressed-{time.time_ns()}"
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        async with Producer(bootstrap, compression_type=codec, linger_ms=20) as producer:
            for number in range(25):
                await producer.send(topic, b"%d" % number, partition=0)
    async with ClusterClient(bootstrap) as client:
        reader = PartitionReader(client, TopicPartition(topic, 0), 0, 100)
        found = [record async for fetched in reader for record in fetched.records()]
    assert values(found) == [*range(25)] * 4


async def test_read_committed_leaves_out_aborted_and_open_transactions(kafka: str) -> None:
    topic = f"transactions-{time.time_ns()}"
    tp = TopicPartition(topic, 0)
    end = await asyncio.to_thread(_write_transactions, kafka, topic)
    async with ClusterClient(kafka) as client:
        committed = FetchSettings(isolation_level="read_committed", fetch_max_wait_ms=20)
        stable = await list_offsets(client, {tp: LATEST}, isolation_level="read_committed")
        assert (await list_offsets(client, {tp: LATEST}))[tp] == end > stable[tp]
        seen = [
            record.value
            async for fetched in PartitionReader(client, tp, 0, stable[tp], committed)
            for record in fetched.records()
        ]
        everything = [
            record.value
            async for fetched in PartitionReader(client, tp, 0, end)
            for record in fetched.records()
        ]
    assert seen == [b"committed-0", b"committed-1", b"committed-2"]
    assert everything == [
        b"committed-0",
        b"aborted-0",
        b"committed-1",
        b"aborted-1",
        b"committed-2",
        b"open",
    ]


def _write_transactions(servers: str, topic: str) -> int:
    """Committed and aborted records in turn, then one of a transaction that stays open; returns the
    log's end.
    """
    import confluent_kafka

    ends: list[int] = []

    def done(error: object, message: confluent_kafka.Message) -> None:
        assert error is None, error
        ends.append(message.offset() or 0)

    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": topic})
    producer.init_transactions(30)
    for number in range(3):
        for outcome in ("committed", "aborted")[: 2 if number < 2 else 1]:
            producer.begin_transaction()
            producer.produce(topic, f"{outcome}-{number}".encode(), partition=0, on_delivery=done)
            producer.flush(10)
            (producer.commit_transaction if outcome == "committed" else producer.abort_transaction)(
                10
            )
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0, on_delivery=done)
    producer.flush(10)
    return ends[-1] + 1


async def test_bytes_that_are_no_batch_are_an_error_and_no_endless_loop(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(broker, 10)
    async with ClusterClient(broker.bootstrap_servers) as client:
        reader = PartitionReader(client, TP, 0, 10, SMALL)
        fetch = reader._fetch

        async def cut() -> object:
            data = await fetch()
            data.records = (data.records or b"")[:40]
            return data

        monkeypatch.setattr(reader, "_fetch", cut)
        with pytest.raises(KafkaError, match="40 bytes without a complete batch"):
            async for _ in reader:
                pass


@pytest.mark.virtual_time
@pytest.mark.parametrize("bound", ["by its first fetch", "by its caller"])
async def test_offsets_of_a_deleted_topic_are_not_read_in_the_one_that_was_created_again(
    broker: EmbeddedCluster, bound: str
) -> None:
    await fill(broker, 10)
    async with ClusterClient(broker.bootstrap_servers) as client:
        former = (await client.refresh_topics(["numbers"])).topic_id("numbers")
        reader = PartitionReader(
            client, TP, 5, 15, SMALL, former if bound == "by its caller" else None
        )
        batches = aiter(reader)
        if bound == "by its first fetch":
            assert values((await anext(batches)).records()) == [5, 6, 7, 8, 9]
        broker.delete_topic("numbers")
        broker.create_topic("numbers", num_partitions=1)
        await fill(broker, 20, first=100)
        with pytest.raises(TopicRecreatedError, match="was deleted and created again") as caught:
            await anext(batches)
    assert caught.value.former_topic_id == former == reader.topic_id
    assert caught.value.topic_id == broker.topics["numbers"].topic_id


@pytest.mark.virtual_time
async def test_a_reader_of_the_new_topic_waits_for_a_broker_with_old_metadata(
    broker: EmbeddedCluster,
) -> None:
    await fill(broker, 10)
    former = broker.topics["numbers"].topic_id
    broker.delete_topic("numbers")
    broker.create_topic("numbers", num_partitions=1)
    await fill(broker, 10, first=100)

    def as_before(answer: MetadataResponse) -> None:
        for topic in answer.topics:
            topic.topic_id = former

    async with ClusterClient(broker.bootstrap_servers) as client:
        broker.on(ApiKey.METADATA, change_answer(as_before), times=2)
        reader = PartitionReader(client, TP, 0, 10, SMALL, broker.topics["numbers"].topic_id)
        found = [record async for fetched in reader for record in fetched.records()]
    assert values(found) == list(range(100, 110))


@pytest.mark.parametrize(
    "fails", [None, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER]
)
async def test_a_replica_in_the_rack_is_read_from_until_it_fails(fails: ErrorCode | None) -> None:
    """KIP-392. The embedded followers refuse readers, so the answers are changed."""
    async with EmbeddedCluster(nodes=3) as broker:
        broker.create_topic("numbers", 1, replication_factor=3)
        await fill(broker, 50)
        leader = broker.leader("numbers", 0)
        follower = next(node for node in broker.node_ids if node != leader)
        asked: list[FetchResponse] = []

        def name_follower(answer: FetchResponse) -> None:
            (partition,) = answer.responses[0].partitions
            asked.append(copy.deepcopy(answer))
            partition.preferred_read_replica, partition.records = follower, b""

        def serve(answer: FetchResponse) -> None:
            (partition,) = answer.responses[0].partitions
            partition.error_code = ErrorCode.NONE if fails is None else fails
            partition.records = (
                asked[0].responses[0].partitions[0].records if fails is None else b""
            )

        broker.on(ApiKey.FETCH, change_answer(name_follower), node=leader, times=1)
        broker.on(ApiKey.FETCH, change_answer(serve), node=follower, times=None)
        near = replace(SMALL, client_rack="near", max_partition_fetch_bytes=1 << 20)
        async with ClusterClient(broker.bootstrap_servers) as client:
            assert values(await read(client, 0, 50, near)) == list(range(50))
        assert len(asked) == 1
        assert broker.request_count(ApiKey.FETCH, node=follower) == 1
        assert broker.request_count(ApiKey.FETCH, node=leader) == (1 if fails is None else 2)


async def test_without_a_rack_no_replica_is_read_from() -> None:
    async with EmbeddedCluster(nodes=3) as broker:
        broker.create_topic("numbers", 1, replication_factor=3)
        await fill(broker, 10)
        leader = broker.leader("numbers", 0)

        def name_follower(answer: FetchResponse) -> None:
            answer.responses[0].partitions[0].preferred_read_replica = leader % 3 + 1

        broker.on(ApiKey.FETCH, change_answer(name_follower), node=leader, times=None)
        async with ClusterClient(broker.bootstrap_servers) as client:
            assert values(await read(client, 0, 10)) == list(range(10))
        assert broker.request_count(ApiKey.FETCH) == broker.request_count(ApiKey.FETCH, node=leader)
