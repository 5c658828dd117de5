"""Brokers that answer nothing: a frozen leader, a silent coordinator, a cluster that is gone. What
it costs, with the default timeouts.

A test that waited for ``request.timeout.ms`` (30 s) or ``socket.connection.setup.timeout.ms`` (10
s) would break its limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioprod import DeliveryTimeoutError, KafkaError, Producer, ProducerClosedError
from aioprod.cluster import coordinators
from aioprod.cluster.client import ClusterClient
from aioprod.errors import BrokerConnectionError
from aioprod.net import brokers, silence
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aioprod.testing import EmbeddedCluster, change_answer, hold_answer
from tests.testing.bounded_producer import running
from tests.waiting import stored, until

LIMIT_SECONDS = 5.0
SILENCE_SECONDS = 0.05


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (silence, coordinators):
        monkeypatch.setattr(module, "SILENCE_S", SILENCE_SECONDS)
    monkeypatch.setattr(brokers, "HESITATION_S", SILENCE_SECONDS / 2)


@pytest.fixture
async def three() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(nodes=3) as broker:
        broker.create_topic("t", 3)
        yield broker


@asynccontextmanager
async def producer_of(addresses: str, **settings: Any) -> AsyncIterator[Producer]:
    """A producer for at most five seconds, and one that a failed test does not wait for."""
    async with running(Producer(addresses, **settings), LIMIT_SECONDS) as producer:
        yield producer


def requests(broker: EmbeddedCluster, api_key: ApiKey, node_id: int | None = None) -> int:
    return sum(
        seen.api_key == api_key and node_id in (None, seen.node_id) for seen in broker.requests
    )


class TestFrozenLeader:
    @pytest.mark.parametrize("in_flight", [1, 5])
    async def test_what_it_has_not_answered_goes_to_its_successor_in_order_and_once(
        self, three: EmbeddedCluster, in_flight: int
    ) -> None:
        settings: dict[str, Any] = {
            "batch_size": 0,
            "linger_ms": 0,
            "max_in_flight_requests_per_connection": in_flight,
        }
        async with producer_of(three.bootstrap_servers, **settings) as producer:
            await producer.send_and_wait("t", b"before", partition=0)
            three.freeze_node(1)
            deliveries = [
                await producer.send("t", b"%d" % number, partition=0) for number in range(20)
            ]
            await until(lambda: producer._sender.in_flight == in_flight)
            three.move_leader("t", 0, 2)
            for delivery in deliveries:
                await delivery
            three.unfreeze_node(1)  # what it was sent may still be handled, and is refused or known
            await producer.send_and_wait("t", b"after", partition=0)
        assert stored(three, partition=0) == [
            b"before",
            *[b"%d" % number for number in range(20)],
            b"after",
        ]

    async def test_one_that_was_never_reached_is_left_too(self, three: EmbeddedCluster) -> None:
        """The connection is set up by the system, and then nothing comes."""
        async with producer_of(three.address(2)) as producer:
            three.freeze_node(1)
            delivery = await producer.send("t", b"value", partition=0)
            await until(lambda: three.connection_count(1) > 0)
            three.move_leader("t", 0, 3)
            assert (await delivery).offset == 0

    async def test_one_that_left_the_cluster_is_left_at_once(self, three: EmbeddedCluster) -> None:
        """A real cluster fences it: metadata does not name it any more."""

        def without_first(answer: MetadataResponse) -> None:
            answer.brokers = [each for each in answer.brokers if each.node_id != 1]

        async with producer_of(three.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            three.freeze_node(1)
            deliveries = [
                await producer.send("t", b"1", partition=0),
                await producer.send("t", b"other", partition=1),
            ]
            await until(lambda: producer._sender.in_flight > 0)
            three.move_leader("t", 0, 3)
            three.on(ApiKey.METADATA, change_answer(without_first), times=None)
            for delivery in deliveries:
                await delivery
        assert stored(three, partition=0) == [b"0", b"1"]

    async def test_one_that_stays_leader_is_waited_for(self, three: EmbeddedCluster) -> None:
        """The leader may only be slow: its requests continue to wait, and the other nodes are asked
        for the leader.
        """
        async with producer_of(three.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            asked = requests(three, ApiKey.METADATA)
            released = asyncio.Event()
            three.on(ApiKey.PRODUCE, hold_answer(released), node=1)
            delivery = await producer.send("t", b"1", partition=0)
            await until(lambda: requests(three, ApiKey.METADATA) >= asked + 3)
            assert not delivery.done()
            released.set()
            assert (await delivery).offset == 1
        assert requests(three, ApiKey.PRODUCE) == 2

    async def test_a_leader_that_answers_keeps_its_requests_when_another_takes_over(
        self, three: EmbeddedCluster
    ) -> None:
        async with producer_of(three.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            connection = producer._brokers.live(1)
            three.move_leader("t", 0, 2)
            await producer._metadata.refresh(["t"])
            assert connection is producer._brokers.live(1) is not None
            await producer.send_and_wait("t", b"1", partition=0)

    async def test_it_is_not_what_the_others_wait_for(self, three: EmbeddedCluster) -> None:
        """New topics, producer ids and fresh metadata come from the brokers that reply."""
        async with producer_of(three.address(1)) as producer:
            three.freeze_node(1)  # the only one connected
            three.create_topic("new", 3)
            three.move_leader("t", 0, 3)
            await producer.send_and_wait("new", b"value", partition=1)
            await producer.send_and_wait("t", b"value", partition=0)

    async def test_a_silent_bootstrap_server_does_not_delay_the_start(
        self, three: EmbeddedCluster
    ) -> None:
        three.freeze_node(1)
        three.freeze_node(2)
        three.move_leader("t", 0, 3)
        async with producer_of(three.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"value", partition=0)

    async def test_one_that_freezes_between_connection_and_metadata_does_not_either(
        self, three: EmbeddedCluster
    ) -> None:
        for node_id in (1, 2):
            three.on(ApiKey.METADATA, hold_answer(asyncio.Event()), node=node_id)
        three.move_leader("t", 0, 3)
        async with producer_of(three.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"value", partition=0)


class TestFrozenCoordinator:
    @pytest.fixture
    def coordinator(self, three: EmbeddedCluster) -> int:
        return three.coordinator("transaction", "id")

    async def test_a_commit_goes_to_its_successor(
        self, three: EmbeddedCluster, coordinator: int
    ) -> None:
        successor, leader = (node_id for node_id in three.node_ids if node_id != coordinator)
        async with producer_of(three.bootstrap_servers, transactional_id="id") as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send("t", b"value", partition=leader - 1)
            await producer.flush()
            three.freeze_node(coordinator)
            committing = asyncio.create_task(producer.commit_transaction())
            await until(lambda: requests(three, ApiKey.FIND_COORDINATOR) >= 2)
            three.move_coordinator("transaction", "id", successor)
            await committing
        assert [record.value for record in three.records("t", leader - 1, committed_only=True)] == [
            b"value"
        ]

    async def test_one_that_stays_coordinator_is_waited_for(
        self, three: EmbeddedCluster, coordinator: int
    ) -> None:
        async with producer_of(three.bootstrap_servers, transactional_id="id") as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send("t", b"value", partition=0)
            released = asyncio.Event()
            three.on(ApiKey.END_TXN, hold_answer(released))
            committing = asyncio.create_task(producer.commit_transaction())
            await until(lambda: requests(three, ApiKey.FIND_COORDINATOR) >= 3)
            released.set()
            await committing
        assert requests(three, ApiKey.END_TXN) == 1


class TestTotalOutage:
    async def test_earlier_records_arrive_at_its_end(self, three: EmbeddedCluster) -> None:
        settings = {
            "reconnect_backoff_ms": 5,
            "reconnect_backoff_max_ms": 20,
            "retry_backoff_ms": 5,
            "retry_backoff_max_ms": 20,
        }
        async with producer_of(three.bootstrap_servers, **settings) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            await three.stop_all()
            deliveries = [
                await producer.send("t", b"%d" % number, partition=0) for number in range(1, 4)
            ]
            await asyncio.sleep(0.1)
            assert not any(delivery.done() for delivery in deliveries)
            await three.start()
            for delivery in deliveries:
                await delivery
        assert stored(three, partition=0) == [b"0", b"1", b"2", b"3"]

    @pytest.mark.virtual_time
    @pytest.mark.parametrize("dark", [True, False], ids=["silent", "refusing"])
    async def test_records_are_given_up_in_time(self, three: EmbeddedCluster, dark: bool) -> None:
        async with producer_of(
            three.bootstrap_servers, delivery_timeout_ms=300, request_timeout_ms=250
        ) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            await end_all(three, dark)
            loop = asyncio.get_running_loop()
            started = loop.time()
            deliveries = [
                await producer.send("t", b"lost", partition=partition) for partition in range(3)
            ]
            for delivery in deliveries:
                with pytest.raises(DeliveryTimeoutError):
                    await delivery
            assert 0.29 <= loop.time() - started < 1.3

    @pytest.mark.virtual_time
    @pytest.mark.parametrize("dark", [True, False], ids=["silent", "refusing"])
    @pytest.mark.parametrize(
        "settings",
        [{}, {"acks": 0, "enable_idempotence": False}, {"transactional_id": "id"}],
        ids=["plain", "acks0", "txn"],
    )
    async def test_close_returns_in_time_and_leaves_no_delivery_open(
        self, three: EmbeddedCluster, dark: bool, settings: dict[str, Any]
    ) -> None:
        producer = Producer(three.bootstrap_servers, **settings)
        async with asyncio.timeout(LIMIT_SECONDS):
            await producer.start()
            if "transactional_id" in settings:
                await producer.init_transactions()
                await producer.begin_transaction()
            for partition in range(3):
                await producer.send_and_wait("t", b"before", partition=partition)
            await end_all(three, dark)
            deliveries = [
                await producer.send("t", bytes(100_000), partition=partition)
                for partition in range(3)
            ]
            waiting = [asyncio.create_task(producer.flush())]
            if "transactional_id" in settings:
                waiting.append(asyncio.create_task(producer.commit_transaction()))
            loop = asyncio.get_running_loop()
            await asyncio.sleep(0.02)
            started = loop.time()
            await producer.close(timeout_ms=200)
            assert loop.time() - started < 1.2
            await asyncio.wait(waiting)
            for delivery in deliveries:
                assert delivery.done()
                error = delivery.exception()
                assert error is None or isinstance(error, ProducerClosedError)
                assert error is not None or settings.get("acks") == 0
            assert all(isinstance(task.exception(), KafkaError | None) for task in waiting)


async def end_all(broker: EmbeddedCluster, dark: bool) -> None:
    if not dark:
        await broker.stop_all()
        return
    for node_id in broker.node_ids:
        broker.freeze_node(node_id)


async def test_a_call_that_waits_for_a_node_that_left_the_cluster_ends(
    three: EmbeddedCluster,
) -> None:
    """Readers of partitions have no task that refreshes metadata."""

    def without_first(answer: MetadataResponse) -> None:
        answer.brokers = [each for each in answer.brokers if each.node_id != 1]

    async with asyncio.timeout(LIMIT_SECONDS), ClusterClient(three.bootstrap_servers) as client:
        await client.request(MetadataRequest(), 1)
        three.freeze_node(1)
        three.on(ApiKey.METADATA, change_answer(without_first), times=None)
        with pytest.raises(BrokerConnectionError, match="left the cluster"):
            await client.request(MetadataRequest(), 1)
