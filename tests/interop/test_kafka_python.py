"""kafka-python with the embedded cluster: producing, consuming by assignment and in a group,
transactions, and topics.
"""

from __future__ import annotations

import gc
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, ThreadedCluster, drop_after, fail
from aioprod.types import TopicPartition as OurTopicPartition
from tests.waiting import stored

with warnings.catch_warnings():
    # kafka-python uses a deprecated function.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import (
        KafkaAdminClient,
        KafkaConsumer,
        KafkaProducer,
        OffsetAndMetadata,
        TopicPartition,
    )
    from kafka.admin import NewTopic
    from kafka.errors import KafkaError

# It does not close sockets whose connection is refused.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

LIMIT_S = 20.0
PARTITIONS = 3
COUNT = 200
VALUES = Counter(b"value %d" % number for number in range(COUNT))


@pytest.fixture
def threaded() -> Iterator[ThreadedCluster]:
    with EmbeddedCluster.in_thread(nodes=3, num_partitions=PARTITIONS) as cluster:
        cluster.create_topic("t", PARTITIONS)
        yield cluster
        gc.collect()  # reports open sockets in the test that leaves them open


@pytest.fixture
def consumer(threaded: ThreadedCluster) -> Iterator[KafkaConsumer]:
    made = KafkaConsumer(
        bootstrap_servers=threaded.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        fetch_max_wait_ms=50,
        heartbeat_interval_ms=50,
    )
    yield made
    made.close()


def produce(cluster: ThreadedCluster, **settings: Any) -> list[tuple[int, int]]:
    """Send the values and return the partition and offset of each."""
    producer = KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, linger_ms=2, batch_size=1_000, **settings
    )
    try:
        sent = [
            producer.send("t", b"value %d" % number, key=b"%d" % number) for number in range(COUNT)
        ]
        return [
            (found.partition, found.offset) for found in (future.get(LIMIT_S) for future in sent)
        ]
    finally:
        producer.close(LIMIT_S)


def places(cluster: ThreadedCluster) -> list[tuple[int, int]]:
    """Return the partition and offset of each value."""
    by_value = {
        record.value: (index, record.offset)
        for index in range(PARTITIONS)
        for record in cluster.records("t", index)
    }
    return [by_value[b"value %d" % number] for number in range(COUNT)]


def subscribe(consumer: KafkaConsumer) -> None:
    """Subscribe and fetch metadata. Without metadata the consumer may join the group and assign
    itself no partitions.
    """
    consumer.subscribe(["t"])
    assert consumer.partitions_for_topic("t") == set(range(PARTITIONS))


def read(consumer: KafkaConsumer, count: int) -> Counter[bytes]:
    found: list[bytes] = []
    for _ in range(int(LIMIT_S / 0.05)):
        found += [
            record.value for records in consumer.poll(timeout_ms=50).values() for record in records
        ]
        if len(found) >= count:
            break
    return Counter(found)


# snappy needs another library.
@pytest.mark.parametrize("codec", [None, "gzip", "lz4", "zstd"])
def test_producer(threaded: ThreadedCluster, codec: str | None) -> None:
    assert produce(threaded, compression_type=codec) == places(threaded)
    assert Counter(stored(threaded)) == VALUES


@pytest.mark.parametrize("acks", [0, 1])
def test_producer_with_fewer_acks(threaded: ThreadedCluster, acks: int) -> None:
    produce(threaded, acks=acks, enable_idempotence=False)
    threaded.wait_for_records("t", COUNT)
    assert Counter(stored(threaded)) == VALUES


def test_idempotent_producer_meets_lost_answers_and_refusals(threaded: ThreadedCluster) -> None:
    threaded.on(ApiKey.PRODUCE, drop_after(), times=2)
    threaded.on(ApiKey.PRODUCE, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=1)
    assert produce(
        threaded, max_in_flight_requests_per_connection=1, retry_backoff_ms=10
    ) == places(threaded)
    assert Counter(stored(threaded)) == VALUES


def test_consumer_by_assignment(threaded: ThreadedCluster, consumer: KafkaConsumer) -> None:
    produce(threaded)
    all_partitions = [TopicPartition("t", index) for index in range(PARTITIONS)]
    consumer.assign(all_partitions)
    assert read(consumer, COUNT) == VALUES
    assert sum(consumer.end_offsets(all_partitions).values()) == COUNT
    assert consumer.offsets_for_times({all_partitions[0]: 0})[all_partitions[0]].offset == 0
    consumer.seek_to_beginning(all_partitions[0])
    assert read(consumer, 1).keys() <= VALUES.keys()


def test_consumer_in_a_group(threaded: ThreadedCluster, consumer: KafkaConsumer) -> None:
    produce(threaded)
    subscribe(consumer)
    assert read(consumer, COUNT) == VALUES
    consumer.commit()
    assert threaded.committed_offsets("g") == {
        OurTopicPartition("t", index): len(threaded.records("t", index))
        for index in range(PARTITIONS)
    }


def test_transactions_and_their_readers(threaded: ThreadedCluster, consumer: KafkaConsumer) -> None:
    threaded.create_topic("source", 1)
    producer = KafkaProducer(bootstrap_servers=threaded.bootstrap_servers, transactional_id="x")
    threaded.on(ApiKey.END_TXN, drop_after())
    threaded.on(ApiKey.PRODUCE, drop_after())
    subscribe(consumer)
    try:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            for record in range(10):
                producer.send("t", b"%d-%d" % (number, record))
            position = {TopicPartition("source", 0): OffsetAndMetadata(number + 1, "", -1)}
            producer.send_offsets_to_transaction(position, consumer.group_metadata())
            producer.flush(LIMIT_S)
            (producer.abort_transaction if number % 2 else producer.commit_transaction)()
    finally:
        producer.close(LIMIT_S)
    expected = Counter(b"%d-%d" % (number, record) for number in (0, 2) for record in range(10))
    assert Counter(stored(threaded, committed_only=True)) == expected
    assert read(consumer, expected.total()) == expected
    assert threaded.committed_offsets("g")[OurTopicPartition("source", 0)] == 3


def test_a_second_producer_fences_the_first(threaded: ThreadedCluster) -> None:
    first, second = (
        KafkaProducer(bootstrap_servers=threaded.bootstrap_servers, transactional_id="x")
        for _ in range(2)
    )
    try:
        for each, value in ((first, b"first"), (second, b"second")):
            each.init_transactions()
            each.begin_transaction()
            each.send("t", value).get(LIMIT_S)
        with pytest.raises(KafkaError, match=r"(?i)fenced|epoch"):
            first.commit_transaction()
        second.commit_transaction()
    finally:
        first.close(1)
        second.close(LIMIT_S)
    assert Counter(stored(threaded, committed_only=True)) == Counter([b"second"])


def test_admin(threaded: ThreadedCluster) -> None:
    admin = KafkaAdminClient(bootstrap_servers=threaded.bootstrap_servers)
    try:
        admin.create_topics(
            [
                NewTopic(
                    "made",
                    num_partitions=4,
                    replication_factor=2,
                    topic_configs={"retention.ms": "1000"},
                )
            ]
        )
        assert len(threaded.topics["made"].partitions) == 4
        assert sorted(admin.list_topics()) == ["made", "t"]
        admin.delete_topics(["made"])
        assert list(threaded.topics) == ["t"]
    finally:
        admin.close()
