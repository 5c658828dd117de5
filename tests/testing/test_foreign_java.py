"""Java's producer and consumer of Kafka 4.1 work with the embedded broker's transactions, in both
protocols (KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from aioprod.error_codes import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, ThreadedCluster, drop_after, fail
from aioprod.testing.broker.transactions.transaction import TransactionState
from aioprod.types import TopicPartition as Place
from tests.testing.java_client import JavaClients, java_clients

pytestmark = pytest.mark.kafka  # needs Java and Kafka's jars

COUNT = 20
PARTITIONS = 3
COMMITTED = sorted(b"%d-%d" % (number, record) for number in (0, 2, 4) for record in range(COUNT))
EVERY = sorted(b"%d-%d" % (number, record) for number in range(5) for record in range(COUNT))


@pytest.fixture(scope="module")
def java() -> Iterator[JavaClients]:
    with java_clients() as clients:
        yield clients


@pytest.fixture(params=[1, 2])
def threaded(request: pytest.FixtureRequest) -> Iterator[ThreadedCluster]:
    with EmbeddedCluster.in_thread(transaction_version=request.param) as broker:
        broker.create_topic("t", PARTITIONS)
        yield broker


@pytest.fixture
def producer(java: JavaClients, threaded: ThreadedCluster) -> Iterator[Any]:
    made = java.producer(
        bootstrap_servers=threaded.bootstrap_servers,
        transactional_id="x",
        linger_ms="2",
        retry_backoff_ms="10",
    )
    yield made
    made.close(java.seconds(0))


def speaks_v2(broker: ThreadedCluster) -> bool:
    """Return whether the client used transaction protocol v2."""
    ends = {seen.api_version for seen in broker.requests if seen.api_key == ApiKey.END_TXN}
    adds = any(seen.api_key == ApiKey.ADD_PARTITIONS_TO_TXN for seen in broker.requests)
    assert ends in ({4}, {5}) and adds == (ends == {4})
    return ends == {5}


def produce(java: JavaClients, producer: Any, broker: ThreadedCluster) -> None:
    """Send five transactions; every second one is aborted after its records have arrived."""
    producer.initTransactions()
    for number in range(5):
        producer.beginTransaction()
        for record in range(COUNT):
            producer.send(java.record("t", record % PARTITIONS, b"%d-%d" % (number, record)))
        if number % 2:
            producer.flush()
            producer.abortTransaction()
        else:
            producer.commitTransaction()


def values(broker: ThreadedCluster, *, committed_only: bool = True) -> list[bytes]:
    return sorted(
        record.value or b"" for record in broker.records("t", committed_only=committed_only)
    )


def version_of(threaded: ThreadedCluster, request: pytest.FixtureRequest) -> int:
    return int(request.node.callspec.params["threaded"])


def test_commits_and_aborts(
    java: JavaClients, threaded: ThreadedCluster, producer: Any, request: pytest.FixtureRequest
) -> None:
    produce(java, producer, threaded)
    assert speaks_v2(threaded) == (version_of(threaded, request) == 2)
    assert (values(threaded), values(threaded, committed_only=False)) == (COMMITTED, EVERY)
    for isolation_level, expected in (("read_committed", COMMITTED), ("read_uncommitted", EVERY)):
        consumer = java.consumer(
            bootstrap_servers=threaded.bootstrap_servers, isolation_level=isolation_level
        )
        assert java.read(consumer, "t", PARTITIONS, len(expected)) == expected
        consumer.close()


def test_refusals_and_lost_answers(
    java: JavaClients, threaded: ThreadedCluster, producer: Any
) -> None:
    threaded.on(ApiKey.FIND_COORDINATOR, fail(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    threaded.on(ApiKey.INIT_PRODUCER_ID, fail(ErrorCode.CONCURRENT_TRANSACTIONS))
    threaded.on(ApiKey.ADD_PARTITIONS_TO_TXN, fail(ErrorCode.CONCURRENT_TRANSACTIONS), times=2)
    threaded.on(ApiKey.ADD_PARTITIONS_TO_TXN, drop_after())
    threaded.on(ApiKey.PRODUCE, drop_after(), times=2)
    threaded.on(ApiKey.PRODUCE, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=2)
    threaded.on(ApiKey.END_TXN, drop_after())
    threaded.on(ApiKey.END_TXN, fail(ErrorCode.NOT_COORDINATOR))
    threaded.on(ApiKey.END_TXN, drop_after())
    produce(java, producer, threaded)
    assert (values(threaded), values(threaded, committed_only=False)) == (COMMITTED, EVERY)


def test_markers_that_wait(java: JavaClients, threaded: ThreadedCluster, producer: Any) -> None:
    producer.initTransactions()
    producer.beginTransaction()
    producer.send(java.record("t", 0, b"first"))
    threaded.pause_markers()
    producer.commitTransaction()
    assert values(threaded) == []
    producer.beginTransaction()
    sent = producer.send(java.record("t", 0, b"second"))
    assert not sent.isDone()
    threaded.resume_markers()
    producer.commitTransaction()
    assert values(threaded) == [b"first", b"second"]


def test_offsets_in_a_transaction(
    java: JavaClients, threaded: ThreadedCluster, producer: Any
) -> None:
    producer.initTransactions()
    for offset, commit in ((7, True), (9, False)):
        producer.beginTransaction()
        producer.send(java.record("t", 0, b"%d" % offset))
        producer.sendOffsetsToTransaction(java.offsets("t", 1, offset), java.group("g"))
        (producer.commitTransaction if commit else producer.abortTransaction)()
    assert threaded.committed_offsets("g") == {Place("t", 1): 7}
    consumer = java.consumer(
        bootstrap_servers=threaded.bootstrap_servers, isolation_level="read_committed", group_id="g"
    )
    places = java.offsets("t", 1, 0).keySet()
    assert [found.offset() for found in consumer.committed(places).values()] == [7]
    consumer.close()


def test_a_member_of_an_old_generation_is_fenced(
    java: JavaClients, threaded: ThreadedCluster, producer: Any
) -> None:
    threaded.set_group_members("g", 4, {"m": None})
    producer.initTransactions()
    producer.beginTransaction()
    with pytest.raises(Py4JJavaError, match="CommitFailedException"):
        producer.sendOffsetsToTransaction(java.offsets("t", 1, 5), java.group("g", 3, "m"))
    producer.abortTransaction()
    producer.beginTransaction()
    producer.sendOffsetsToTransaction(java.offsets("t", 1, 6), java.group("g", 4, "m"))
    producer.commitTransaction()
    assert threaded.committed_offsets("g") == {Place("t", 1): 6}


def test_a_second_producer_fences_the_first(
    java: JavaClients, threaded: ThreadedCluster, producer: Any
) -> None:
    second = java.producer(
        bootstrap_servers=threaded.bootstrap_servers, transactional_id="x", retry_backoff_ms="10"
    )
    for each, value in ((producer, b"first"), (second, b"second")):
        each.initTransactions()
        each.beginTransaction()
        each.send(java.record("t", 0, value))
        each.flush()
    with pytest.raises(Py4JJavaError, match="ProducerFencedException"):
        producer.commitTransaction()
    second.commitTransaction()
    second.close()
    assert (values(threaded), values(threaded, committed_only=False)) == (
        [b"second"],
        [b"first", b"second"],
    )


def test_an_expired_transaction_can_not_be_committed(
    java: JavaClients, threaded: ThreadedCluster, producer: Any
) -> None:
    producer.initTransactions()
    producer.beginTransaction()
    producer.send(java.record("t", 0, b"slow"))
    producer.flush()
    threaded.expire_transaction("x")
    assert threaded.transactions["x"].state is TransactionState.COMPLETE_ABORT
    with pytest.raises(Py4JJavaError, match=r"ProducerFencedException|InvalidTxnStateException"):
        producer.commitTransaction()
    assert values(threaded) == []
