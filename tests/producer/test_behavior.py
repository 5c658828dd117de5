"""The whole producer, as far as no other file covers it: timeouts, requests and
connections, metadata, muting, closing.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioprod import (
    BufferExhaustedError,
    ConfigError,
    DeliveryTimeoutError,
    ErrorCode,
    InvalidPartitionError,
    KafkaError,
    Producer,
    ProducerClosedError,
    RecordTooLargeError,
    SerializationError,
)
from aioprod.config.client import ClientConfig
from aioprod.net.bootstrap import bootstrap_addresses
from aioprod.net.connection import Connection
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.message import Message
from aioprod.protocol.messages.metadata import MetadataRequest
from aioprod.protocol.messages.produce import ProduceRequest
from aioprod.testing import EmbeddedCluster, delay, fail, hold, hold_answer
from tests.testing.bounded_producer import running
from tests.waiting import stored, until

LIMIT_SECONDS = 10.0
FAST: dict[str, Any] = {
    "linger_ms": 0,
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 20,
}
WITHOUT_ANSWERS: dict[str, Any] = {"acks": 0, "enable_idempotence": False}


@asynccontextmanager
async def producer_of(broker: EmbeddedCluster, **settings: Any) -> AsyncIterator[Producer]:
    """A producer for at most ten seconds, and one that a failed test does not wait for."""
    async with running(
        Producer(broker.bootstrap_servers, **{**FAST, **settings}), LIMIT_SECONDS
    ) as producer:
        yield producer


@pytest.fixture
async def three() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(nodes=3) as broker:
        broker.create_topic("t", 3)
        yield broker


def asked(broker: EmbeddedCluster, api_key: int) -> int:
    return sum(seen.api_key == api_key for seen in broker.requests)


class Spy:
    """A condition for ``broker.on`` that notes each request and never applies."""

    def __init__(self) -> None:
        self.requests: list[Any] = []

    def __call__(self, request: Message) -> bool:
        self.requests.append(request)
        return False


def spy_on(broker: EmbeddedCluster, api_key: int) -> list[Any]:
    spy = Spy()
    broker.on(api_key, delay(0), times=None, where=spy)
    return spy.requests


# -- the caller's side -----------------------------------------------------------------------------


@pytest.mark.virtual_time
async def test_memory_gets_what_metadata_left_of_max_block(three: EmbeddedCluster) -> None:
    async with producer_of(
        three, max_block_ms=400, buffer_memory=2_000, batch_size=1_500
    ) as producer:
        for partition in (0, 1):
            await producer.send_and_wait("t", b"first", partition=partition)
        answer = asyncio.Event()
        three.on(ApiKey.PRODUCE, hold(answer), times=None, node=1)
        kept = await producer.send("t", b"x" * 1_000, partition=0)
        three.on(ApiKey.METADATA, delay(0.25), times=1)
        with pytest.raises(BufferExhaustedError, match="the rest of max_block_ms") as caught:
            await producer.send("new", b"x" * 1_000)
        left = re.search(r"in (\d+) ms", str(caught.value))
        assert left is not None and int(left[1]) <= 150, (
            "400 ms in all, not 250 for metadata and 400 more for memory"
        )
        answer.set()
        await kept


async def test_a_record_larger_than_the_buffer_names_both_numbers(broker: EmbeddedCluster) -> None:
    async with producer_of(broker, buffer_memory=5_000, batch_size=1_000) as producer:
        with pytest.raises(
            RecordTooLargeError,
            match=r"a record of up to \d{4} bytes .* is larger than buffer_memory=5000",
        ):
            await producer.send_and_wait("t", b"x" * 6_000)
        assert producer._pool.available == 5_000


async def test_start_by_several_tasks_starts_once(broker: EmbeddedCluster) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        producer = Producer(broker.bootstrap_servers)
        await asyncio.gather(*(producer.start() for _ in range(5)))
        names = Counter(task.get_name() for task in asyncio.all_tasks())
        assert names["aioprod-sender"] == names["aioprod-metadata"] == 1
        await producer.send_and_wait("t", b"x")
        await producer.close()


async def test_close_while_starting_leaves_nothing_open(broker: EmbeddedCluster) -> None:
    broker.on(ApiKey.METADATA, delay(0.02), times=None)
    async with asyncio.timeout(LIMIT_SECONDS):
        producer = Producer(broker.bootstrap_servers)
        starting = asyncio.ensure_future(producer.start())
        await until(lambda: asked(broker, ApiKey.METADATA) > 0)
        await producer.close()
        with pytest.raises(KafkaError):
            await starting
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("aioprod-")]
        await until(lambda: broker.connection_count(1) == 0)


async def test_close_ends_sends_that_wait_for_metadata(broker: EmbeddedCluster) -> None:
    broker.create_topic("t")
    broker.on(ApiKey.METADATA, fail(ErrorCode.LEADER_NOT_AVAILABLE, topic="new"), times=None)
    async with producer_of(broker, max_block_ms=60_000) as producer:
        waiting = [
            asyncio.ensure_future(producer.send("new", b"x")),
            asyncio.ensure_future(producer.partitions_for("new")),
        ]
        waiting.append(asyncio.ensure_future(producer.send_many("new", [b"x", b"y"])))
        await until(lambda: asked(broker, ApiKey.METADATA) > 2)
        await producer.close()
        async with asyncio.timeout(1):
            for task in waiting:
                with pytest.raises(ProducerClosedError):
                    await task


async def test_flush_does_not_wait_for_later_sends(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", 2)
    async with producer_of(broker) as producer:
        for partition in (0, 1):
            await producer.send_and_wait("t", b"first", partition=partition)
        kept_back, released = asyncio.Event(), asyncio.Event()
        broker.on(ApiKey.PRODUCE, hold_answer(released))
        broker.on(ApiKey.PRODUCE, hold(kept_back), times=None)
        before = await producer.send("t", b"before", partition=0)
        flushing = asyncio.ensure_future(producer.flush())
        await asyncio.sleep(0)
        later = await producer.send("t", b"later", partition=1)
        released.set()
        await flushing
        assert before.done() and not later.done()
        kept_back.set()
        await later


async def test_flush_has_a_limit_and_breaks_nothing(broker: EmbeddedCluster) -> None:
    async with producer_of(broker) as producer:
        await producer.send_and_wait("t", b"first")
        answer = asyncio.Event()
        broker.on(ApiKey.PRODUCE, hold(answer))
        pending = await producer.send("t", b"x")
        begun = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            await producer.flush(timeout_ms=20)
        assert asyncio.get_running_loop().time() - begun < 2
        answer.set()
        assert (await pending).offset == 1


async def test_a_delivery_may_be_awaited_by_many_and_often(broker: EmbeddedCluster) -> None:
    async with producer_of(broker, linger_ms=10) as producer:
        delivery = await producer.send("t", b"x")

        async def look() -> int:
            return (await delivery).offset

        assert await asyncio.gather(*(look() for _ in range(50))) == [0] * 50
        assert await look() == 0


@pytest.mark.parametrize("headers", [[("\ud800", b"")], [("a", b"1"), ("b\udfff", None)]])
async def test_a_header_that_utf_8_can_not_write_is_named(
    broker: EmbeddedCluster, headers: list[tuple[str, bytes | None]]
) -> None:
    async with producer_of(broker) as producer:
        with pytest.raises(SerializationError, match=r"header .* UTF-8"):
            await producer.send("t", b"x", headers=headers)
        assert producer._pool.available == producer.config.buffer_memory


@pytest.mark.parametrize("servers", [5, None, b"h:1", ["h:1", 5]])
def test_servers_that_are_none_are_named(servers: Any) -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers="):
        Producer(servers)


# -- acks, muting, requests ------------------------------------------------------------------------


@pytest.mark.parametrize("in_flight", [1, 5])
async def test_without_acknowledgements_a_partition_goes_on_and_offsets_are_unknown(
    broker: EmbeddedCluster, in_flight: int
) -> None:
    async with producer_of(
        broker, **WITHOUT_ANSWERS, max_in_flight_requests_per_connection=in_flight, batch_size=0
    ) as producer:
        for number in range(20):
            assert (await producer.send_and_wait("t", b"%d" % number)).offset == -1
    assert await values_of(broker, 20) == [b"%d" % number for number in range(20)]


async def values_of(broker: EmbeddedCluster, count: int) -> list[bytes | None]:
    return [record.value for record in await broker.wait_for_records("t", count)]


async def test_without_acknowledgements_a_new_leader_is_found_all_the_same(
    three: EmbeddedCluster,
) -> None:
    """The old leader hangs up, which is all that it can do."""
    async with producer_of(three, **WITHOUT_ANSWERS) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        await values_of(three, 1)
        three.move_leader("t", 0, 2)
        async with asyncio.timeout(LIMIT_SECONDS):
            while b"after" not in stored(three):
                await producer.send_and_wait("t", b"after", partition=0)
                # Longer than reconnecting takes: nothing else asks for metadata in that time.
                await asyncio.sleep(0.03)


async def test_with_one_in_flight_a_partition_is_silent_until_its_answer(
    three: EmbeddedCluster,
) -> None:
    """Also where another node leads it meanwhile: it is muted, or its order would change without
    idempotence.
    """
    settings = {
        "enable_idempotence": False,
        "max_in_flight_requests_per_connection": 1,
        "batch_size": 0,
    }
    async with producer_of(three, **settings) as producer:
        for partition in range(3):
            await producer.send_and_wait("t", b"before", partition=partition)
        answer = asyncio.Event()
        rule = three.on(ApiKey.PRODUCE, hold(answer), node=1)
        first = await producer.send("t", b"first", partition=0)
        await until(lambda: rule.used == 1)
        three.move_leader("t", 0, 2)
        await until(
            lambda: (
                producer._accumulator.topics["t"].queues[0].leader == 2
                or not producer._metadata.request_update()
            )
        )
        second = await producer.send("t", b"second", partition=0)
        for number in range(20):
            await producer.send_and_wait("t", b"%d" % number, partition=1)
        assert not second.done()
        answer.set()
        await first
        await second
    assert stored(three, partition=0) == [b"before", b"first", b"second"]


async def test_no_more_requests_are_in_flight_than_allowed(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", 8)
    async with producer_of(
        broker, max_in_flight_requests_per_connection=3, batch_size=0, max_request_size=150
    ) as producer:
        for partition in range(8):
            await producer.send_and_wait("t", b"first", partition=partition)
        answer = asyncio.Event()
        broker.on(ApiKey.PRODUCE, hold(answer), times=None)
        deliveries = [
            await producer.send("t", b"%d" % number, partition=number) for number in range(8)
        ]
        await until(lambda: producer._sender.in_flight == 3)
        await asyncio.sleep(0.02)
        assert producer._sender.in_flight == 3 and producer.metrics()["requests-in-flight"] == 3
        answer.set()
        for delivery in deliveries:
            await delivery


async def test_one_request_carries_all_topics_and_partitions_of_a_node(
    three: EmbeddedCluster,
) -> None:
    three.create_topic("u", 3)
    seen: list[ProduceRequest] = spy_on(three, ApiKey.PRODUCE)
    async with producer_of(three, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        await asyncio.gather(producer.partitions_for("t"), producer.partitions_for("u"))
        for partition in range(3):
            for topic in ("t", "u"):
                await producer.send(topic, b"x", partition=partition)
        await until(lambda: producer._core.producer_state.identity is not None)
        connected = [producer._brokers.connection(node_id) for node_id in three.node_ids]
        await asyncio.gather(*connected)
        await producer.flush()
    assert len(seen) == 3, "one for each node"
    assert [len(topic.partition_data) for request in seen for topic in request.topic_data] == [
        1
    ] * 6
    assert {
        part.index
        for request in seen
        for topic in request.topic_data
        for part in topic.partition_data
    } == {0, 1, 2}


@pytest.mark.virtual_time
async def test_a_request_without_an_answer_costs_its_own_connection_only(
    three: EmbeddedCluster,
) -> None:
    async with producer_of(three, request_timeout_ms=150) as producer:
        for partition in range(3):
            await producer.send_and_wait("t", b"first", partition=partition)
        before = {node_id: producer._brokers.live(node_id) for node_id in three.node_ids}
        three.on(ApiKey.PRODUCE, hold_answer(asyncio.Event()), node=1)
        assert (await producer.send_and_wait("t", b"second", partition=0)).offset == 1
        after = {node_id: producer._brokers.live(node_id) for node_id in three.node_ids}
        assert after[1] is not before[1] and (after[2], after[3]) == (before[2], before[3])
        assert "request_timeout_ms=150" in str(getattr(before[1], "error", None))
    assert stored(three, partition=0) == [b"first", b"second"]


async def test_a_duplicate_is_a_success_of_unknown_place(broker: EmbeddedCluster) -> None:
    async with producer_of(broker) as producer:
        await producer.send_and_wait("t", b"first")
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
        assert (await producer.send_and_wait("t", b"an earlier attempt was stored")).offset == -1
        assert producer._core.producer_state.bumps == 0


async def test_the_advice_of_a_fatal_answer_is_that_of_its_code(broker: EmbeddedCluster) -> None:
    broker.on(ApiKey.PRODUCE, fail(ErrorCode.PRODUCER_FENCED))
    async with producer_of(broker) as producer:
        with pytest.raises(KafkaError, match="create a new one: PRODUCER_FENCED") as raised:
            await producer.send_and_wait("t", b"x")
    assert "grant" not in str(raised.value)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ],
    ids=lambda code: code.name,
)
async def test_a_broker_that_has_lost_an_idempotent_producer_does_not_end_it(
    broker: EmbeddedCluster, code: ErrorCode
) -> None:
    async with producer_of(broker, max_in_flight_requests_per_connection=5) as producer:
        await producer.send_and_wait("t", b"0")
        before = producer._core.producer_state.identity
        assert before is not None
        broker.on(ApiKey.PRODUCE, fail(code), times=2)
        deliveries = []
        for number in range(1, 6):
            deliveries.append(await producer.send("t", b"%d" % number))
            await asyncio.sleep(0.01)
        for delivery in deliveries:
            await delivery
        after = producer._core.producer_state.identity
        assert after is not None
        is_new = after.producer_id != before.producer_id
        assert is_new is (code is ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert stored(broker) == [b"%d" % number for number in range(6)]


async def test_a_producer_id_that_is_refused_permanently_is_requested_once(
    broker: EmbeddedCluster,
) -> None:
    rule = broker.on(
        ApiKey.INIT_PRODUCER_ID, fail(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), times=None
    )
    async with producer_of(broker) as producer:
        for _ in range(3):
            with pytest.raises(KafkaError, match="CLUSTER_AUTHORIZATION_FAILED"):
                await producer.send_and_wait("t", b"x")
        await asyncio.sleep(0.05)
    assert rule.used == 1


# -- metadata --------------------------------------------------------------------------------------


async def test_topics_that_are_not_used_are_not_asked_for_any_more(broker: EmbeddedCluster) -> None:
    seen: list[MetadataRequest] = spy_on(broker, ApiKey.METADATA)
    async with producer_of(broker, metadata_max_idle_ms=5_000, metadata_max_age_ms=20) as producer:
        for topic in ("idle", "used"):
            await producer.send_and_wait(topic, b"x")
        used = producer._metadata._last_used
        used["idle"] -= 6  # as if it had been six seconds ago
        await until(lambda: "idle" not in used)
        seen.clear()
        await until(lambda: bool(seen))
        assert [topic.name for topic in seen[0].topics or ()] == ["used"]
        await until(lambda: producer._metadata.snapshot.topics.keys() == {"used"})
        assert (await producer.send_and_wait("idle", b"y")).offset == 1, (
            "it is learned again when it is needed"
        )


@pytest.mark.virtual_time
async def test_many_refused_topics_make_no_storm_of_refreshes(broker: EmbeddedCluster) -> None:
    broker.on(ApiKey.METADATA, fail(ErrorCode.LEADER_NOT_AVAILABLE), times=None)
    async with producer_of(
        broker, retry_backoff_ms=100, retry_backoff_max_ms=100, max_block_ms=450
    ) as producer:
        await asyncio.gather(*(producer.send(f"t-{number % 50}", b"x") for number in range(500)))
    assert asked(broker, ApiKey.METADATA) <= 10, "one for each backoff of 100 ms, the first at once"


async def test_refreshes_come_one_at_a_time(broker: EmbeddedCluster) -> None:
    async with producer_of(broker) as producer:
        answer = asyncio.Event()
        rule = broker.on(ApiKey.METADATA, hold(answer), times=None)
        before = rule.used
        sends = [asyncio.ensure_future(producer.send(f"t-{number}", b"x")) for number in range(20)]
        await until(lambda: rule.used > before)
        await asyncio.sleep(0.05)
        assert rule.used == before + 1
        answer.set()
        await asyncio.gather(*sends)


async def test_waits_for_an_update_end_with_success_failure_and_close(
    broker: EmbeddedCluster,
) -> None:
    async with producer_of(broker) as producer:
        metadata = producer._metadata
        await metadata.await_update(metadata.snapshot.version - 1)
        version = metadata.request_update()
        await metadata.await_update(version)
        assert metadata.snapshot.version > version
        await broker.stop()
        version = metadata.request_update()
        await metadata.await_update(version)
        assert metadata.snapshot.version == version and metadata.last_error is not None
        waiting = asyncio.ensure_future(metadata.await_update(version + 1_000_000))
        await asyncio.sleep(0)
        await metadata.close()
        await waiting
        assert not metadata._updated._waiters


async def test_cancelled_waits_for_an_update_take_no_notice_from_others(
    broker: EmbeddedCluster,
) -> None:
    """On Python 3.11 and 3.12 a Condition loses a single notification, but not that of all."""
    async with producer_of(broker) as producer:
        metadata = producer._metadata
        await metadata.await_update(metadata.request_update())
        later = metadata.snapshot.version + 1_000_000
        waits = [asyncio.ensure_future(metadata.await_update(later)) for _ in range(20)]
        await asyncio.sleep(0)
        await metadata._notify_all()
        for wait in waits[::2]:
            wait.cancel()
        done, _ = await asyncio.wait(waits, timeout=5)
        assert [wait.cancelled() for wait in waits] == [True, False] * 10 and len(done) == 20
        metadata.request_update()
        await metadata.await_update(metadata.snapshot.version)


async def test_waits_for_an_update_end_with_the_task_that_refreshes(
    broker: EmbeddedCluster,
) -> None:
    async with producer_of(broker) as producer:
        metadata = producer._metadata
        wait = asyncio.ensure_future(metadata.await_update(metadata.snapshot.version + 1_000_000))
        await asyncio.sleep(0)
        assert metadata._task is not None
        metadata._task.cancel()
        await asyncio.wait_for(wait, 5)
        with pytest.raises(KafkaError, match="metadata task was cancelled"):
            await producer.send("orders", b"x")


async def test_a_leader_that_left_the_cluster_is_asked_after(three: EmbeddedCluster) -> None:
    """Metadata knows nothing of the topic at first, and of the old leader nothing any more: only
    the producer can ask again.
    """
    async with producer_of(three, metadata_max_age_ms=60_000) as producer:
        for partition in range(3):
            await producer.send_and_wait("t", b"first", partition=partition)
        rule = three.on(ApiKey.METADATA, fail(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), times=3)
        await three.stop_node(1)
        await producer.send_and_wait("t", b"second", partition=0)
        assert rule.used == 3
    assert stored(three, partition=0) == [b"first", b"second"]


async def test_a_topic_that_was_made_again_with_fewer_partitions(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", 8)
    async with producer_of(broker, metadata_max_age_ms=20) as producer:
        for partition in range(8):
            await producer.send_and_wait("t", b"x", partition=partition)
        broker.delete_topic("t")
        broker.create_topic("t", 2)
        async with asyncio.timeout(LIMIT_SECONDS):
            while await producer.partitions_for("t") != [0, 1]:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        for number in range(20):
            await producer.send_and_wait("t", b"%d" % number, b"key %d" % number)
        with pytest.raises(
            InvalidPartitionError, match="partition=7 of topic 't': it has partitions 0 to 1"
        ):
            await producer.send_and_wait("t", b"x", partition=7)
    assert len(stored(broker)) == 20


@pytest.mark.virtual_time
async def test_records_that_find_no_leader_in_time_are_counted() -> None:
    async with EmbeddedCluster(nodes=2, replication_factor=1) as broker:
        broker.create_topic("t", 2)
        settings = {"delivery_timeout_ms": 300, "request_timeout_ms": 200, "linger_ms": 20}
        async with producer_of(broker, **settings) as producer:
            await producer.partitions_for("t")
            await broker.stop_node(1)
            lost = [await producer.send("t", b"x", partition=0) for _ in range(7)]
            with pytest.raises(DeliveryTimeoutError, match="7 records to t-0 not acknowledged"):
                await lost[3]
            assert all(isinstance(delivery.exception(), DeliveryTimeoutError) for delivery in lost)
            assert asked(broker, ApiKey.METADATA) > 2, "the leader was asked after meanwhile"
            await broker.start_node(1)
            assert (await producer.send_and_wait("t", b"later", partition=0)).offset == 0


# -- sockets ---------------------------------------------------------------------------------------


async def test_sockets_have_their_options(broker: EmbeddedCluster) -> None:
    async with producer_of(
        broker, send_buffer_bytes=40_000, receive_buffer_bytes=50_000
    ) as producer:
        await producer.send_and_wait("t", b"x")
        connection = producer._brokers.live(1)
        assert connection is not None
        sock = connection._stream.info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        # Linux doubles what it is asked for.
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (40_000, 80_000)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (50_000, 100_000)


@pytest.mark.asyncio_loop
async def test_every_address_of_a_name_is_tried(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    """client.dns.lookup=use_all_dns_ips: the first address of the name refuses."""
    port = int(broker.bootstrap_servers.rpartition(":")[2])
    # 127.0.0.2 refuses on Linux only; a connection to it takes minutes on macOS.
    places = {"kafka.example": [("127.0.0.1", unused_tcp_port), ("127.0.0.1", port)]}

    async def look_up(host: str, service: object, **kwargs: object) -> list[tuple[Any, ...]]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", place)
            for place in places.get(host, [(host, port)])
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    async with (
        asyncio.timeout(LIMIT_SECONDS),
        Producer(f"kafka.example:{port}", **FAST) as producer,
    ):
        assert (await producer.send_and_wait("t", b"x")).offset == 0


async def test_canonical_names_become_bootstrap_servers_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def look_up(host: str, service: object, **kwargs: object) -> list[tuple[Any, ...]]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, service))
            for address in ("10.0.0.1", "10.0.0.2")
        ]

    async def reverse(address: tuple[str, int], flags: int) -> tuple[str, str]:
        return f"broker-{address[0][-1]}.example", str(address[1])

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "getaddrinfo", look_up)
    monkeypatch.setattr(loop, "getnameinfo", reverse)
    config = ClientConfig(
        bootstrap_servers=("kafka.example:9092",),
        client_dns_lookup="resolve_canonical_bootstrap_servers_only",
    )
    assert await bootstrap_addresses(config) == [
        ("broker-1.example", 9092),
        ("broker-2.example", 9092),
    ]


async def test_connections_are_opened_for_those_that_are_needed(three: EmbeddedCluster) -> None:
    async with producer_of(three) as producer:
        await producer.send_and_wait("t", b"x", partition=1)
        await until(
            lambda: [three.connection_count(node_id) for node_id in three.node_ids] == [0, 1, 0]
        )
        live: Connection | None = producer._brokers.live(2)
        assert live is not None and live.versions
    await until(lambda: not any(three.connection_count(node_id) for node_id in three.node_ids))
