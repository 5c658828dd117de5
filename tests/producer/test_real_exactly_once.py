"""Cuts, lost acknowledgements and stalls between a producer and real Kafka 4.4 and 3.9: nothing is
lost, doubled, reordered or half committed.

Read back by other clients. Times are short, so that each test sees many faults. A
stall may be longer than request_timeout_ms: then requests arrive late, behind those of a newer
connection.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka import TopicPartition as ConfluentPartition

from aioprod import (
    AbortableTransactionError,
    BrokerError,
    Delivery,
    DeliveryTimeoutError,
    ErrorCode,
    KafkaError,
    Producer,
    ProducerFencedError,
    RecordMetadata,
    TopicPartition,
)
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.create_topics import CreatableTopic
from aioprod.testing.kafka_listener import Listener
from aioprod.testing.real_kafka import RealKafka
from tests.testing.fault_proxy import (
    CutAnswer,
    CutRequest,
    Fault,
    FaultProxy,
    Keep,
    Plan,
    RandomFaults,
    SingleBytes,
    Stall,
)
from tests.testing.new_topics import create_topics_with_leaders
from tests.testing.raw_client import RawClient
from tests.testing.raw_transactions import V1, TransactionalClient, ask_until
from tests.waiting import until

pytestmark = pytest.mark.kafka

LIMIT_S = 30.0
PARTITIONS = 3
PADDING = b"." * 60
FAST: dict[str, Any] = {
    "linger_ms": 0,
    "batch_size": 1_000,
    "buffer_memory": 32_000,
    "retry_backoff_ms": 2,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 2,
    "reconnect_backoff_max_ms": 20,
}

# All tests run with 4.4; with 3.9 only those of transactions, for which its protocol is another.
_ON_DEMAND_3_9, _ON_DEMAND_4_1 = (
    pytest.param(version, marks=pytest.mark.interop) for version in ("3.9.2", "4.1.0")
)


@dataclass(frozen=True)
class ProxiedKafka:
    """A broker and the socket to which its listener PROXIED sends clients."""

    version: str
    kafka: RealKafka
    listening: socket.socket

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.listening.getsockname()[1]}"

    async def new_topic(self, name: str) -> str:
        topic = f"{name}-{os.getpid()}-{time.time_ns()}"
        wanted = CreatableTopic(topic, PARTITIONS, 1)
        await create_topics_with_leaders(self.kafka.bootstrap_servers, wanted)
        return topic

    def proxy(self) -> FaultProxy:
        return FaultProxy(self.listening, self.kafka.bootstrap_servers_of("PROXIED"))


@pytest.fixture(scope="module", params=["4.4.0", _ON_DEMAND_3_9, _ON_DEMAND_4_1])
def proxied(request: pytest.FixtureRequest) -> Iterator[ProxiedKafka]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listener = Listener(name="PROXIED", advertised_port=listening.getsockname()[1])
        with RealKafka(version=request.param, listeners=[listener]) as kafka:
            yield ProxiedKafka(request.param, kafka, listening)


def read_with_confluent(
    servers: str, topic: str, isolation: str = "read_uncommitted"
) -> list[list[tuple[int, bytes]]]:
    """Offset and value of all that there is to read, by partition."""
    settings = {
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
        "enable.auto.commit": False,
    }
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", **settings})
    try:
        consumer.assign(
            [
                ConfluentPartition(topic, partition, OFFSET_BEGINNING)
                for partition in range(PARTITIONS)
            ]
        )
        found: list[list[tuple[int, bytes]]] = [[] for _ in range(PARTITIONS)]
        at_end: set[int] = set()
        deadline = time.monotonic() + LIMIT_S
        while len(at_end) < PARTITIONS:
            assert time.monotonic() < deadline, f"only {sorted(at_end)} have an end"
            for message in consumer.consume(1_000, 0.2):
                error, partition = message.error(), message.partition()
                assert partition is not None
                if error is None:
                    found[partition].append((message.offset() or 0, message.value() or b""))
                elif error.code() == ConfluentError._PARTITION_EOF:
                    at_end.add(partition)
                else:
                    raise AssertionError(error)
        return found
    finally:
        consumer.close()


Outcome = RecordMetadata | KafkaError


def enough(proxy: FaultProxy) -> bool:
    """Return whether enough faults have happened for a passing test to be meaningful."""
    return proxy.done[CutAnswer, ApiKey.PRODUCE] >= 8 and all(
        proxy.count(kind) >= 5 for kind in (CutRequest, Stall, SingleBytes)
    )


async def send_until_enough(
    proxy: FaultProxy, producer: Producer, topic: str, partition: int
) -> list[tuple[bytes, Delivery]]:
    """Send to one partition as fast as the buffer allows."""
    sent: list[tuple[bytes, Delivery]] = []
    while not enough(proxy):
        value = b"%d %d %s" % (partition, len(sent), PADDING)
        sent.append((value, await producer.send(topic, value, partition=partition)))
    return sent


async def outcomes(sent: list[tuple[bytes, Delivery]]) -> list[tuple[bytes, Outcome]]:
    ended: list[tuple[bytes, Outcome]] = []
    for value, delivery in sent:
        try:
            ended.append((value, await delivery))
        except KafkaError as error:
            ended.append((value, error))
    return ended


async def load(
    proxied: ProxiedKafka, topic: str, faults: Plan, **settings: Any
) -> list[list[tuple[bytes, Outcome]]]:
    """Send to all partitions at once, through enough trouble; returns each record's outcome, by
    partition.
    """
    async with (
        proxied.proxy() as proxy,
        Producer(proxied.bootstrap_servers, **{**FAST, **settings}) as producer,
    ):
        await producer.partitions_for(topic)
        proxy.plan = faults
        async with asyncio.timeout(LIMIT_S):
            sent = await asyncio.gather(
                *(
                    send_until_enough(proxy, producer, topic, partition)
                    for partition in range(PARTITIONS)
                )
            )
            ended = [await outcomes(each) for each in sent]
        proxy.plan = None
        assert producer._pool.available == producer.config.buffer_memory
        assert not producer._accumulator.incomplete
        report(
            proxied,
            proxy,
            f"{sum(map(len, sent))} records, {producer._core.producer_state.bumps} new epochs",
        )
    return ended


def report(proxied: ProxiedKafka, proxy: FaultProxy, what: str) -> None:
    """For who runs the tests with -s, or reads of a failure."""
    faults = ", ".join(
        f"{kind.__name__} {proxy.count(kind)}"
        for kind in (CutRequest, CutAnswer, Stall, SingleBytes)
    )
    lost = proxy.done[CutAnswer, ApiKey.PRODUCE]
    print(
        f"Kafka {proxied.version}: {what}, {proxy.passed[ApiKey.PRODUCE]} produce requests, "
        f"{faults}; {lost} lost acknowledgements"
    )


async def read(proxied: ProxiedKafka, topic: str) -> list[list[tuple[int, bytes]]]:
    return await asyncio.to_thread(read_with_confluent, proxied.kafka.bootstrap_servers, topic)


async def test_five_in_flight_lose_double_and_reorder_nothing(proxied: ProxiedKafka) -> None:
    topic = await proxied.new_topic("idempotent")
    ended = await load(
        proxied,
        topic,
        RandomFaults(seed=1, probability=0.08, longest_stall_s=0.12),
        request_timeout_ms=80,
    )
    for outcomes_here, log in zip(ended, await read(proxied, topic), strict=True):
        acknowledged = [
            (result.offset, value)
            for value, result in outcomes_here
            if isinstance(result, RecordMetadata)
        ]
        assert len(acknowledged) == len(outcomes_here), "nothing was to be given up"
        assert log == acknowledged


async def test_records_that_are_given_up_harm_no_others(proxied: ProxiedKafka) -> None:
    """They expire while it is unknown whether they are stored: a new epoch follows (KIP-360),
    and old requests still arrive.
    """
    topic = await proxied.new_topic("impatient")
    faults = RandomFaults(seed=2, probability=0.08, longest_stall_s=0.3)
    ended = await load(proxied, topic, faults, request_timeout_ms=60, delivery_timeout_ms=120)
    assert any(isinstance(result, DeliveryTimeoutError) for each in ended for _, result in each)
    for outcomes_here, log in zip(ended, await read(proxied, topic), strict=True):
        offsets = {value: offset for offset, value in log}
        assert len(offsets) == len(log), "a record is stored twice"
        for value, result in outcomes_here:
            if isinstance(result, RecordMetadata):
                assert offsets.get(value) == result.offset, (
                    f"{value!r} is not where the acknowledgement says"
                )
            else:
                # after an expired batch the broker does not know the next one: for the duration of
                # a request it is requested (docs/architecture.md, rule P6)
                refused = (
                    isinstance(result, BrokerError)
                    and result.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                )
                assert refused or isinstance(result, DeliveryTimeoutError)
        stored = [offsets[value] for value, _ in outcomes_here if value in offsets]
        assert stored == sorted(stored) and len(stored) == len(log)


async def test_one_request_in_flight_keeps_order_without_idempotence(proxied: ProxiedKafka) -> None:
    """Records may be doubled, which is what acks=1 promises; none is lost or overtaken."""
    topic = await proxied.new_topic("acks-1")
    settings = {"acks": 1, "enable_idempotence": False, "max_in_flight_requests_per_connection": 1}
    ended = await load(
        proxied, topic, RandomFaults(seed=3, probability=0.08, longest_stall_s=0.02), **settings
    )
    for outcomes_here, log in zip(ended, await read(proxied, topic), strict=True):
        at = dict(log)
        for value, result in outcomes_here:
            assert isinstance(result, RecordMetadata) and at[result.offset] == value
        assert list(dict.fromkeys(value for _, value in log)) == [
            value for value, _ in outcomes_here
        ]
        assert len(log) > len(outcomes_here), "no acknowledgement was lost: this proves nothing"


# -- transactions ----------------------------------------------------------------------------------


FENCED_BY_ITSELF = "not begun: fenced by a late copy"


@dataclass
class Reported:
    """The results that the application got: the values of committed transactions by partition, the
    last committed offset, and the outcome of each transaction.
    """

    committed: list[list[bytes]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    offset: int = -1
    ends: Counter[str] = field(default_factory=Counter)


async def write(
    producer: Producer, topic: str, number: int, rng: random.Random, reported: Reported
) -> str:
    """Write to all partitions, and commit or abort, or leave it in the middle."""
    await producer.begin_transaction()
    values = [
        [b"%d %d %s" % (number, index, PADDING) for index in range(rng.randrange(1, 40))]
        for _ in range(PARTITIONS)
    ]
    for partition, its_values in enumerate(values):
        for value in its_values:
            await producer.send(topic, value, partition=partition)
    if with_offset := rng.random() < 0.3:
        await producer.send_offsets_to_transaction({TopicPartition(topic, 0): number}, topic)
    end = rng.choice(
        ("committed", "committed", "committed", "aborted", "aborted after a flush", "left")
    )
    if end == "aborted after a flush":
        await producer.flush()
    if end == "committed":
        await producer.commit_transaction()
        for all_values, its_values in zip(reported.committed, values, strict=True):
            all_values += its_values
        reported.offset = number if with_offset else reported.offset
    elif end != "left":
        await producer.abort_transaction()
    return end


async def one_transaction(
    producer: Producer, topic: str, number: int, rng: random.Random, reported: Reported
) -> bool:
    """Return False if it was left in the middle."""
    try:
        end = await write(producer, topic, number, rng, reported)
    except AbortableTransactionError as error:
        end = f"failed: {error.code.name}"
        await producer.abort_transaction()
    except ProducerFencedError as error:
        if "or a late copy of a request of this one" not in str(error):
            raise
        end = FENCED_BY_ITSELF
    reported.ends[end] += 1
    return end not in ("left", FENCED_BY_ITSELF)


def transaction_faults(seed: int) -> Plan:
    """Late copies of everything but InitProducerId: no client can show its own late one from
    another producer that takes over.
    """
    faults = RandomFaults(seed, probability=0.12, longest_stall_s=0.12)

    def plan(api_key: int, size: int) -> Fault | None:
        fault = faults(api_key, size)
        return None if api_key == ApiKey.INIT_PRODUCER_ID and isinstance(fault, Stall) else fault

    return plan


async def run_transactions(proxied: ProxiedKafka, topic: str, seed: int) -> Reported:
    """Transactions through enough trouble; where one is left in the middle, a new producer takes
    over.
    """
    rng, reported, number, producers = random.Random(seed), Reported(), 0, 0
    plan = transaction_faults(seed)
    async with proxied.proxy() as proxy, asyncio.timeout(LIMIT_S):
        while not enough(proxy):
            proxy.plan = None
            producer = Producer(
                proxied.bootstrap_servers, transactional_id=topic, request_timeout_ms=80, **FAST
            )
            await producer.start()
            proxy.plan = plan
            producers += 1
            try:
                whole = True
                while whole and not enough(proxy):
                    number += 1
                    whole = await one_transaction(producer, topic, number, rng, reported)
                assert producer._transactions is not None
                assert producer._transactions.produce_adds_partitions is proxied.version.startswith(
                    "4."
                ), "the transaction protocol"
            finally:
                await producer.close(timeout_ms=0)
        proxy.plan = None
        async with Producer(
            proxied.bootstrap_servers, transactional_id=topic
        ) as last:  # ends what is open
            await last.init_transactions()
        report(
            proxied, proxy, f"{number} transactions {dict(reported.ends)} by {producers} producers"
        )
    return reported


async def follow_with_aiokafka(servers: str, topic: str, seen: list[list[bytes]]) -> None:
    """Add to ``seen`` what a reader of committed records gets while it is written."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        consumer.assign([AiokafkaPartition(topic, partition) for partition in range(PARTITIONS)])
        async for record in consumer:
            seen[record.partition].append(record.value)
    finally:
        await consumer.stop()


def committed_offset(servers: str, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    try:
        [place] = consumer.committed([ConfluentPartition(group, 0)], timeout=LIMIT_S)
        return int(place.offset)
    finally:
        consumer.close()


@pytest.mark.parametrize("proxied", ["4.4.0", "3.9.2", _ON_DEMAND_4_1], indirect=True)
async def test_transactions_are_seen_whole_and_once_or_not_at_all(proxied: ProxiedKafka) -> None:
    topic, servers = await proxied.new_topic("transactions"), proxied.kafka.bootstrap_servers
    followed: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    following = asyncio.create_task(follow_with_aiokafka(servers, topic, followed))
    try:
        reported = await run_transactions(proxied, topic, seed=4)
        if proxied.version.startswith("4."):
            # Without KIP-890, late records may cost a transaction.
            assert not [end for end in reported.ends if end.startswith("failed")]
            assert not reported.ends[FENCED_BY_ITSELF]
        # Before Kafka 4.0 that may be where EndTxn had no answer either, and the late copy comes
        # exactly between the two requests after it.
        assert reported.ends[FENCED_BY_ITSELF] <= 1
        seen = await asyncio.to_thread(read_with_confluent, servers, topic, "read_committed")
        assert [[value for _, value in each] for each in seen] == reported.committed
        assert sum(map(len, await read(proxied, topic))) > sum(map(len, seen)), (
            "no record was aborted: this proves nothing"
        )
        if reported.offset >= 0:
            assert await asyncio.to_thread(committed_offset, servers, topic) == reported.offset
        await until(
            lambda: following.done() or sum(map(len, followed)) >= sum(map(len, seen)), LIMIT_S
        )
        assert followed == reported.committed
    finally:
        following.cancel()
        await asyncio.wait([following])


@pytest.mark.parametrize("proxied", ["3.9.2"], indirect=True)
@pytest.mark.parametrize("commit", [True, False])
async def test_a_late_copy_that_opens_a_transaction_does_not_fence_its_producer(
    proxied: ProxiedKafka, commit: bool
) -> None:
    """Kafka 3.9 fences the epoch that asks for the next one while a transaction is open, and does
    not remember it.
    """
    topic, gate = await proxied.new_topic("reopened"), asyncio.Event()

    def plan(api_key: int, size: int) -> Fault | None:
        if api_key == ApiKey.ADD_PARTITIONS_TO_TXN and not proxy.done[CutAnswer, api_key]:
            return CutAnswer()
        ended = bool(proxy.passed[ApiKey.END_TXN])
        return (
            Keep(gate)
            if ended and not proxy.count(Keep) and api_key == ApiKey.INIT_PRODUCER_ID
            else None
        )

    async with (
        proxied.proxy() as proxy,
        asyncio.timeout(LIMIT_S),
        Producer(proxied.bootstrap_servers, transactional_id=topic, **FAST) as producer,
    ):
        await producer.init_transactions()
        proxy.plan = plan
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"first", partition=0)
        await (producer.commit_transaction() if commit else producer.abort_transaction())
        async with RawClient(proxied.kafka.bootstrap_servers) as client:
            late = TransactionalClient(client, topic, topic, V1)
            assert producer._core.producer_state.identity is not None
            late.producer_id, late.epoch = producer._core.producer_state.identity
            await ask_until(bool, lambda: asyncio.sleep(0, proxy.count(Keep)))
            assert await late.add(0) == ["NONE"]
        gate.set()
        async with producer.transaction():
            await producer.send_and_wait(topic, b"second", partition=0)
        assert producer._core.producer_state.identity == (late.producer_id, late.epoch + 2)
    seen = await asyncio.to_thread(
        read_with_confluent, proxied.kafka.bootstrap_servers, topic, "read_committed"
    )
    assert [value for _, value in seen[0]] == ([b"first"] if commit else []) + [b"second"]
