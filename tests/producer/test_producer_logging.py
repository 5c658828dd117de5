"""The log shows changes: one line when trouble begins, one when it ends, nothing for each
retry.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from aioprod import DeliveryTimeoutError, ErrorCode, KafkaError, Producer
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.metadata import MetadataResponse
from aioprod.testing import EmbeddedCluster, change_answer, drop_before, fail
from tests.waiting import until

FAST = {
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 10,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 10,
}


def quick(broker: EmbeddedCluster, **settings: Any) -> Producer:
    return Producer(
        broker.bootstrap_servers,
        **{
            "linger_ms": 0,
            "delivery_timeout_ms": 20_000,
            "request_timeout_ms": 10_000,
            **FAST,
            **settings,
        },
    )


@pytest.fixture(autouse=True)
def all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aioprod")


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == level
        and not record.name.startswith("aioprod.testing")
        and record.name != "aioprod.cluster.runtime"  # a start, or a close
    ]


async def failed_tries(producer: Producer, node_id: int, count: int) -> None:
    """Wait until a broker could not be reached so often."""
    await until(
        lambda: (
            (link := producer._brokers._links.get(node_id)) is not None and link.failures >= count
        )
    )


async def test_an_undisturbed_producer_says_nothing(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with quick(broker) as producer:
        for number in range(20):
            await producer.send_and_wait(f"t{number % 3}", b"x")
    assert (
        lines(caplog, logging.INFO) + lines(caplog, logging.WARNING) + lines(caplog, logging.ERROR)
        == []
    )


async def test_a_broker_that_is_down_is_logged_once_and_once_that_it_is_back(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with quick(broker) as producer:
        await producer.send_and_wait("t", b"x")
        await broker.stop_node(1)
        sent = [await producer.send("t", b"%d" % number) for number in range(20)]
        await failed_tries(producer, 1, 10)
        (warning,) = lines(caplog, logging.WARNING)
        assert "broker 1" in warning and broker.address(1) in warning
        assert lines(caplog, logging.INFO) == []
        await broker.start_node(1)
        for delivery in sent:
            await delivery
        (back,) = lines(caplog, logging.INFO)
        assert "broker 1" in back
        # It is a state, not an event: the next time it is said again.
        await broker.stop_node(1)
        last = await producer.send("t", b"last")
        await failed_tries(producer, 1, 5)
        await broker.start_node(1)
        await last
    assert (len(lines(caplog, logging.WARNING)), len(lines(caplog, logging.INFO))) == (2, 2)
    assert lines(caplog, logging.ERROR) == []


async def test_an_idle_producer_says_no_more_than_a_busy_one(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Here only metadata asks for the broker."""
    async with quick(broker, metadata_max_age_ms=20) as producer:
        await producer.send_and_wait("t", b"x")
        await broker.stop_node(1)
        await failed_tries(producer, 1, 10)
        await broker.start_node(1)
        version = producer._metadata.snapshot.version
        await until(lambda: producer._metadata.snapshot.version > version)
    assert len(lines(caplog, logging.WARNING)) == 1
    assert len(lines(caplog, logging.INFO)) <= 1


async def test_starting_again_from_the_bootstrap_servers_adds_one_line(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """All brokers are forgotten meanwhile; that it is back is said nevertheless (KIP-899)."""
    async with quick(
        broker, metadata_max_age_ms=20, metadata_recovery_rebootstrap_trigger_ms=30
    ) as producer:
        await producer.send_and_wait("t", b"x")
        await broker.stop_node(1)
        await until(lambda: lines(caplog, logging.WARNING))
        await until(lambda: "bootstrap" in "".join(lines(caplog, logging.INFO)))
        starts = producer._metadata._rebootstraps.copy()
        await until(lambda: producer._metadata._rebootstraps != starts)
        assert len(lines(caplog, logging.INFO)) == 1
        await broker.start_node(1)
        await producer.send_and_wait("t", b"x")
    assert len(lines(caplog, logging.WARNING)) == 1
    assert "broker 1" in lines(caplog, logging.INFO)[-1]


@pytest.mark.virtual_time
@pytest.mark.parametrize("asked_by", ["connections", "metadata"])
async def test_being_sent_away_again_and_again_is_logged_once(
    caplog: pytest.LogCaptureFixture, asked_by: str
) -> None:
    """KIP-1242: the address that the metadata has for node 2 leads to node 1."""

    def other_address(answer: MetadataResponse) -> None:
        if asked_by == "metadata":
            answer.error_code = ErrorCode.REBOOTSTRAP_REQUIRED
            return
        first, second = sorted(answer.brokers, key=lambda node: node.node_id)
        second.host, second.port = first.host, first.port

    async with EmbeddedCluster(nodes=2) as broker:
        broker.create_topic("t")
        broker.move_leader("t", 0, 2)
        async with quick(broker) as producer:
            await producer.send_and_wait("t", b"before")
            rule = broker.on_every(ApiKey.METADATA, change_answer(other_address))
            await broker.stop_node(2)
            await broker.start_node(2, new_port=True)
            broker.move_leader("t", 0, 2)
            delivery = await producer.send("t", b"meanwhile")
            await rule.wait(20)
            said = [line for line in lines(caplog, logging.INFO) if "bootstrap servers" in line]
            assert len(said) == 1
            rule.cancel()
            await delivery


async def test_one_of_three_brokers_being_down_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with EmbeddedCluster(nodes=3) as broker:
        broker.create_topic("t", 3)
        async with quick(broker) as producer:
            for partition in range(3):
                await producer.send_and_wait("t", b"x", partition=partition)
            await broker.stop_node(2)
            producer._brokers.start_connecting(2)
            for number in range(50):
                await producer.send_and_wait("t", b"x", partition=number % 3)
    assert len(lines(caplog, logging.WARNING)) <= 1
    assert all("broker 2" in line for line in lines(caplog, logging.WARNING))


async def test_a_lost_connection_that_is_made_again_at_once_is_not_worth_a_line(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with quick(broker) as producer:
        broker.on(ApiKey.PRODUCE, drop_before(), times=5)
        await producer.send_and_wait("t", b"x")
    assert (
        lines(caplog, logging.INFO) + lines(caplog, logging.WARNING) + lines(caplog, logging.ERROR)
        == []
    )


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
async def test_retries_are_not_logged(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture, code: ErrorCode
) -> None:
    async with quick(broker) as producer:
        broker.on(ApiKey.PRODUCE, fail(code), times=10)
        await producer.send_and_wait("t", b"x")
        assert producer.metrics()["record-retry-total"] == 10
    assert (
        lines(caplog, logging.INFO) + lines(caplog, logging.WARNING) + lines(caplog, logging.ERROR)
        == []
    )


async def test_metadata_that_a_broker_refuses_is_logged_once_and_once_that_it_is_fresh_again(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with quick(broker, metadata_max_age_ms=10) as producer:
        await producer.send_and_wait("t", b"x")
        rule = broker.on(ApiKey.METADATA, drop_before(), times=None)
        await until(lambda: rule.used > 10)
        rule.cancel()
        version = producer._metadata.snapshot.version
        await until(lambda: producer._metadata.snapshot.version > version)
    assert len(lines(caplog, logging.WARNING)) <= 1
    assert len(lines(caplog, logging.INFO)) <= 1


async def test_records_that_are_given_up_are_logged_once_per_topic_until_they_are_stored_again(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("t", 3)
    async with quick(broker) as producer:
        await producer.send_and_wait("other", b"x")
        rule = broker.on(ApiKey.PRODUCE, fail(ErrorCode.INVALID_RECORD, topic="t"), times=None)
        for number in range(30):
            with pytest.raises(KafkaError):
                await producer.send_and_wait("t", b"x", partition=number % 3)
            await producer.send_and_wait("other", b"x")
        (warning,) = lines(caplog, logging.WARNING)
        assert "'t'" in warning and "INVALID_RECORD" in warning
        rule.cancel()
        for number in range(9):
            assert len(lines(caplog, logging.INFO)) == (number >= 3)
            await producer.send_and_wait("t", b"x", partition=number % 3)
    assert (len(lines(caplog, logging.WARNING)), len(lines(caplog, logging.INFO))) == (1, 1)
    assert lines(caplog, logging.ERROR) == []


@pytest.mark.virtual_time
async def test_a_broker_that_is_down_for_longer_than_the_delivery_timeout(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with quick(broker, delivery_timeout_ms=100, request_timeout_ms=50) as producer:
        await producer.send_and_wait("t", b"x")
        await broker.stop_node(1)
        for _ in range(5):
            with pytest.raises(DeliveryTimeoutError):
                await producer.send_and_wait("t", b"x")
        await broker.start_node(1)
        async with asyncio.timeout(10):
            while True:
                try:
                    await producer.send_and_wait("t", b"x")
                    break
                except DeliveryTimeoutError:
                    continue
    warnings, infos = lines(caplog, logging.WARNING), lines(caplog, logging.INFO)
    assert [("broker 1" in line, "'t'" in line) for line in warnings] == [
        (True, False),
        (False, True),
    ]
    assert sorted("broker 1" in line for line in infos) == [False, True]
    assert lines(caplog, logging.ERROR) == []


async def test_fire_and_forget_does_not_fill_the_log(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """No caller looks at the deliveries; hundreds of batches fail."""
    async with quick(broker, batch_size=100) as producer:
        await producer.send_and_wait("t", b"x")
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.INVALID_RECORD), times=None)
        for _ in range(200):
            await producer.send("t", b"x" * 50)
        await producer.flush()
        assert producer.metrics()["record-error-total"] == 200
    assert len(caplog.records) < 10


async def test_closing_while_the_broker_is_away_is_quiet(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Closing while the broker is away is quick and quiet."""
    async with quick(broker) as producer:
        await producer.send_and_wait("t", b"x")
        await broker.stop_node(1)
        lost = await producer.send("t", b"x")
        await failed_tries(producer, 1, 3)
        await producer.close(timeout_ms=0)
        assert lost.exception() is not None
    assert len(lines(caplog, logging.WARNING)) == 1
    assert lines(caplog, logging.INFO) + lines(caplog, logging.ERROR) == []


async def test_a_sequence_that_is_refused_is_logged_once_for_all_batches_after_it(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with quick(broker, batch_size=100) as producer:
        await producer.send_and_wait("t", b"x")
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), times=4)
        for delivery in [await producer.send("t", b"x" * 50) for _ in range(50)]:
            await delivery
    assert lines(caplog, logging.WARNING) + lines(caplog, logging.ERROR) == []
    assert len(lines(caplog, logging.INFO)) <= 2
    assert all("t-0" in line and "epoch" in line for line in lines(caplog, logging.INFO))


async def test_a_coordinator_that_is_not_ready_is_logged_once(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    broker.on(ApiKey.INIT_PRODUCER_ID, fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), times=10)
    async with quick(broker, transactional_id="tx") as producer:
        async with producer.transaction():
            await producer.send("t", b"x")
    assert len(lines(caplog, logging.WARNING)) == 1
    assert len([line for line in lines(caplog, logging.INFO) if "failed attempts" in line]) == 1
    assert lines(caplog, logging.ERROR) == []
