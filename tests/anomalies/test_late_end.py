"""The known fault of transactions before KIP-890: a delayed EndTxn commits a later transaction.

Kafka 3.9 accepts it, so a client has to request a new epoch after an EndTxn without a response.
Tests of aioprod's epochs that take no timeouts of 10 s are in
``tests/producer/transactions/test_transaction_late.py``.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from uuid import uuid4

import pytest

from aioprod import Admin
from aioprod.admin import NewTopic
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing.kafka_listener import Listener
from aioprod.testing.real_kafka import RealKafka
from tests.anomalies.clients import CLIENTS, Sender
from tests.anomalies.clients.java_client import stop_java
from tests.interop.programs.reading import read_all
from tests.testing.fault_proxy import Fault, FaultProxy, Keep

pytestmark = [pytest.mark.faults, pytest.mark.kafka, pytest.mark.timeout(240)]

BEFORE_KIP_890 = "3.9.2"
LIMIT_S = 30.0
AFFECTED = ("aiokafka", "confluent-kafka", "confluent-kafka-aio", "java", "franz-go")
FIRST, LATER, LAST = 1, 2, 3


@dataclass
class DelayedEnd:
    """The proxy's plan: delay the first EndTxn.

    Attributes:
        release: delivers it.
        handled: the coordinator has responded to it.
    """

    release: asyncio.Event = field(default_factory=asyncio.Event)
    handled: asyncio.Event = field(default_factory=asyncio.Event)
    requests: int = 0

    def __call__(self, api_key: int, size: int) -> Fault | None:
        if api_key != ApiKey.END_TXN:
            return None
        self.requests += 1
        return Keep(self.release, self.handled) if self.requests == 1 else None


@pytest.fixture(scope="module")
def listening() -> Iterator[socket.socket]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound


@pytest.fixture(scope="module")
def kafka_3_9(listening: socket.socket) -> Iterator[RealKafka]:
    listener = Listener(name="PROXIED", advertised_port=listening.getsockname()[1])
    with RealKafka(version=BEFORE_KIP_890, listeners=[listener]) as kafka:
        yield kafka


@pytest.fixture(scope="module", autouse=True)
def _java_ends() -> Iterator[None]:
    yield
    stop_java()


@asynccontextmanager
async def late_end(
    kafka: RealKafka, listening: socket.socket
) -> AsyncIterator[tuple[str, DelayedEnd]]:
    """Run a proxy that delays an EndTxn, and create a topic."""
    topic, delayed = f"late-end-{uuid4()}", DelayedEnd()
    async with Admin(kafka.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(topic, 1)])
    async with FaultProxy(listening, kafka.bootstrap_servers_of("PROXIED"), delayed):
        yield topic, delayed


async def committed(kafka: RealKafka, topic: str) -> list[int]:
    """Return the values that readers of committed records get."""
    found = await read_all(kafka.bootstrap_servers, topic, 1, committed_only=True)
    return [int(each.value or b"-1") for each in found]


async def with_a_late_end(name: str, kafka: RealKafka, listening: socket.socket) -> list[int]:
    """Commit a transaction whose EndTxn is delayed, so that the client sends it again. Deliver the
    first one within the next transaction, which is aborted. Return the committed values.
    """
    CLIENTS[name].prepare()
    new_sender, _ = CLIENTS[name].load()
    async with late_end(kafka, listening) as (topic, delayed):
        servers = f"127.0.0.1:{listening.getsockname()[1]}"
        sender: Sender = new_sender(servers, topic, topic, None)
        try:
            await sender.start()
            await sender.begin()
            await sender.send(0, FIRST)
            await sender.end(commit=True)
            assert delayed.requests > 1, "the client did not repeat EndTxn"
            await sender.begin()
            await sender.send(0, LATER)
            delayed.release.set()
            async with asyncio.timeout(LIMIT_S):
                await delayed.handled.wait()
            try:
                await sender.send(0, LAST)
                await sender.end(commit=False)
            except Exception as error:  # the broker has ended the transaction of another client
                assert name != "aioprod", error
        finally:
            delayed.release.set()
            with suppress(Exception):  # some report the ended transaction again
                await sender.close()
        return await committed(kafka, topic)


async def test_a_delayed_end_commits_no_later_transaction(
    kafka_3_9: RealKafka, listening: socket.socket
) -> None:
    assert await with_a_late_end("aioprod", kafka_3_9, listening) == [FIRST]


@pytest.mark.parametrize("name", AFFECTED)
async def test_the_known_fault_of_other_clients_is_reproduced(
    name: str, kafka_3_9: RealKafka, listening: socket.socket
) -> None:
    assert [*await with_a_late_end(name, kafka_3_9, listening)][:2] == [FIRST, LATER]


async def test_kafka_python_refuses_to_go_on(
    kafka_3_9: RealKafka, listening: socket.socket
) -> None:
    with pytest.raises(Exception, match="RequestTimedOut"):
        await with_a_late_end("kafka-python", kafka_3_9, listening)
