"""librdkafka reads a partition again whose first offset it was looking up as it was paused: by the
embedded broker and by a real one alike. For that reason librdkafka's members of groups in other
tests begin at committed offsets.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition

from aioprod import Admin, Producer
from aioprod.admin import NewTopic
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, hold
from aioprod.testing.kafka_listener import Listener
from aioprod.testing.real_kafka import RealKafka
from tests.testing.fault_proxy import FaultProxy, Keep
from tests.waiting import until

pytestmark = pytest.mark.interop

COUNT = 200
SETTINGS = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "fetch.wait.max.ms": 20,
    "debug": "topic",
}


class Place(NamedTuple):
    """Addresses of a broker: that of its port, and one at which look-ups wait."""

    direct: str
    kept_back: str


@asynccontextmanager
async def embedded(gate: asyncio.Event) -> AsyncIterator[Place]:
    async with EmbeddedCluster() as broker:
        broker.on_every(ApiKey.LIST_OFFSETS, hold(gate))
        yield Place(broker.bootstrap_servers, broker.bootstrap_servers)


@asynccontextmanager
async def real(gate: asyncio.Event) -> AsyncIterator[Place]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        kafka = RealKafka(listeners=[Listener(name="DELAYED", advertised_port=port)])
        await asyncio.to_thread(kafka.start)
        try:
            async with FaultProxy(
                listening,
                kafka.address(1, "DELAYED"),
                lambda api_key, size: Keep(gate) if api_key == ApiKey.LIST_OFFSETS else None,
            ):
                yield Place(kafka.bootstrap_servers, f"127.0.0.1:{port}")
        finally:
            await asyncio.to_thread(kafka.stop)


class Reader:
    """Reads a partition in a thread: pauses it during the look-up, and after half of the records.

    Attributes:
        look_ups: how often it asked for the first offset.
        offsets: offsets of the records.
    """

    def __init__(self, servers: str, topic: str) -> None:
        self.look_ups = 0
        self.offsets: list[int | None] = []
        self.ended = False
        logger = logging.Logger("librdkafka")
        logger.addFilter(self._note)
        self._place = TopicPartition(topic, 0)
        self._consumer = Consumer(
            {**SETTINGS, "bootstrap.servers": servers, "group.id": topic}, logger=logger
        )

    def _note(self, record: logging.LogRecord) -> bool:
        self.look_ups += "querying for logical offset BEGINNING" in record.getMessage()
        return False

    def run(self) -> None:
        self._consumer.assign([self._place])
        self._read_while(lambda: self.look_ups < 1)
        self._pause_and_resume()
        self._read_while(lambda: len(self.offsets) < COUNT // 2)
        self._pause_and_resume()
        self._read_while(lambda: not self.ended)
        self._consumer.close()

    def _pause_and_resume(self) -> None:
        """Do what librdkafka itself does in each rebalance."""
        self._consumer.pause([self._place])
        self._consumer.resume([self._place])

    def _read_while(self, condition: Callable[[], bool]) -> None:
        while condition() and not self.ended:
            message = self._consumer.poll(0.01)
            if message is not None and not message.error():
                self.offsets.append(message.offset())


@pytest.mark.parametrize(
    "broker", [embedded, pytest.param(real, marks=pytest.mark.kafka)], ids=["embedded", "real"]
)
async def test_a_partition_is_read_again(
    broker: Callable[[asyncio.Event], AbstractAsyncContextManager[Place]],
) -> None:
    topic, gate = f"t-{uuid.uuid4().hex[:8]}", asyncio.Event()
    async with broker(gate) as place:
        async with Admin(place.direct) as admin, Producer(place.direct) as producer:
            await admin.create_topics(NewTopic(topic, 1))
            for number in range(COUNT):
                await producer.send(topic, b"%d" % number)
        reader = Reader(place.kept_back, topic)
        reading = asyncio.create_task(asyncio.to_thread(reader.run))
        try:
            # The second one is of the pause. The answer to the first is outdated then, and has it
            # ask for a third time after 500 ms, while it reads.
            await until(lambda: reader.look_ups == 2)
            gate.set()
            await until(lambda: len(reader.offsets) == 2 * COUNT)
        finally:
            gate.set()
            reader.ended = True
            await reading
    assert reader.look_ups == 3
    assert reader.offsets == 2 * list(range(COUNT))
