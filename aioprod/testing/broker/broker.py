"""The embedded broker: a Kafka broker on a loopback port of this process. It keeps everything in memory, until it is dropped."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TypedDict, TypeVar, Unpack

from anyio.from_thread import BlockingPortal, start_blocking_portal

from aioprod.error_codes import ErrorCode
from aioprod.errors import ConfigError, KafkaTimeoutError
from aioprod.protocol.message import Message
from aioprod.protocol.record_reader import Record
from aioprod.testing.broker.connection import Connection
from aioprod.testing.broker.control import Action, Rule
from aioprod.testing.broker.dispatcher import Dispatcher, SeenRequest
from aioprod.testing.broker.exchange import NodeAddress
from aioprod.testing.broker.handlers import HANDLERS
from aioprod.testing.broker.log import wait_for_append
from aioprod.testing.broker.store import Store, StoreError, Topic

_STOP_LIMIT_SECONDS = 5.0
_NODE_ID = 1
_CLUSTER_ID = "aioprod-embedded-broker"

T = TypeVar("T")


class BrokerSettings(TypedDict, total=False):
    """The arguments of :class:`EmbeddedBroker`."""

    host: str
    port: int
    num_partitions: int
    auto_create_topics: bool
    max_message_bytes: int
    max_memory_bytes: int
    wall_clock: Callable[[], float]
    random_source: random.Random | None


class EmbeddedBroker:
    """A Kafka broker in this process and on this event loop, for tests, demos and trying things out.

    It speaks Kafka's own protocol to any client, on one node: metadata, produce (idempotent as well), fetch, offsets, creating and deleting topics.
    It has no consumer groups, no transactions and no security, and says so in its ApiVersions answer. Nothing is written to disk and nothing is
    deleted by age: topic settings such as retention.ms are kept but do nothing.

    Args:
        host: address to bind and to advertise.
        port: port to bind, 0 for any free one; kept when the broker is stopped and started again.
        num_partitions: of topics created without a number (broker setting num.partitions).
        auto_create_topics: create topics when a client asks for their metadata (broker setting auto.create.topics.enable).
        max_message_bytes: largest record batch in bytes (broker setting message.max.bytes).
        max_memory_bytes: the most bytes of record batches held; more are refused with POLICY_VIOLATION and a text that says why.
        wall_clock: seconds since 1970, for log append time.
        random_source: gives topic ids.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        num_partitions: int = 1,
        auto_create_topics: bool = True,
        max_message_bytes: int = 1_048_588,
        max_memory_bytes: int = 2 << 30,
        wall_clock: Callable[[], float] = time.time,
        random_source: random.Random | None = None,
    ) -> None:
        for name, value in (("num_partitions", num_partitions), ("max_message_bytes", max_message_bytes), ("max_memory_bytes", max_memory_bytes)):
            if value < 1:
                raise ConfigError(f"{name}={value}: must be at least 1")
        self._host = host
        self._port = port
        self._store = Store(
            num_partitions=num_partitions,
            auto_create_topics=auto_create_topics,
            max_message_bytes=max_message_bytes,
            max_memory_bytes=max_memory_bytes,
            wall_clock=wall_clock,
            random_source=random_source,
        )
        self._dispatcher = Dispatcher(self._store, NodeAddress(_NODE_ID, host, port, _CLUSTER_ID))
        self._server: asyncio.Server | None = None

    async def start(self) -> Self:
        """Listen. Raises OSError where the port can't be had."""
        if self._server is not None:
            raise ConfigError("the broker is running already")
        self._server = await asyncio.get_running_loop().create_server(lambda: Connection(self._dispatcher), self._host, self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        self._dispatcher.node = NodeAddress(_NODE_ID, self._host, self._port, _CLUSTER_ID)
        self._dispatcher.accepting = True
        return self

    async def stop(self) -> None:
        """Close the port and all connections, also those that wait on a hook, within five seconds. Topics and records stay for a new start."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        self._dispatcher.accepting = False
        tasks = self._dispatcher.abort_connections()
        if tasks:
            await asyncio.wait(tasks, timeout=_STOP_LIMIT_SECONDS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(server.wait_closed(), _STOP_LIMIT_SECONDS)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    @classmethod
    @contextmanager
    def in_thread(cls, **settings: Unpack[BrokerSettings]) -> Iterator[ThreadedBroker]:
        """Run a broker on an event loop of its own in a thread of its own, for synchronous code, until the ``with`` block ends.

        Takes the arguments of the class: ``with EmbeddedBroker.in_thread(num_partitions=3) as broker: ...``
        """
        with start_blocking_portal() as portal:
            broker = portal.call(lambda: cls(**settings))
            with portal.wrap_async_context_manager(broker):
                yield ThreadedBroker(broker, portal)

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for a client's bootstrap.servers."""
        if not self._port:
            raise ConfigError("the broker has no port yet: start it first")
        return f"{self._host}:{self._port}"

    @property
    def requests(self) -> deque[SeenRequest]:
        """The last 10,000 requests that came in, oldest first."""
        return self._dispatcher.requests

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics by name."""
        return self._store.topics

    def create_topic(self, name: str, num_partitions: int | None = None, configs: Mapping[str, str | None] | None = None) -> Topic:
        """Create a topic, with the broker's number of partitions where none is given. Raises BrokerError where it can't be."""
        return self._store.create_topic(name, num_partitions, configs)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records. Raises BrokerError where there is none."""
        self._store.delete_topic(self._topic(name))

    def records(self, topic: str, partition: int | None = None) -> list[Record]:
        """Decode what a partition holds, or all partitions of the topic one after another. Raises BrokerError where there is none such."""
        found = self._topic(topic)
        if partition is None:
            return [record for each in found.partitions for record in each.log.records()]
        chosen = found.partition(partition)
        if chosen is None:
            raise StoreError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has partitions 0 to {len(found.partitions) - 1}, not {partition}")
        return chosen.log.records()

    async def wait_for_records(self, topic: str, count: int, timeout_seconds: float = 10.0) -> list[Record]:
        """Return the topic's records as soon as there are ``count`` or more. Raises KafkaTimeoutError where there are too few in that time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        logs = [partition.log for partition in self._topic(topic).partitions]
        while sum(log.end_offset for log in logs) < count:
            left = deadline - loop.time()
            if left <= 0:
                raise KafkaTimeoutError(f"{topic}: {sum(log.end_offset for log in logs)} of {count} records after {timeout_seconds} s")
            await wait_for_append(logs, left)
        return self.records(topic)

    def on(self, api_key: int, *actions: Action, times: int | None = 1, where: Callable[[Message], bool] | None = None) -> Rule:
        """Do something to the next ``times`` requests of an API (None: to all), for which ``where(request)`` is true.

        Rules of the same API are used up one after another, in the order in which they were made.
        """
        if api_key not in HANDLERS:
            raise ConfigError(f"API key {api_key} is none that this broker handles: {sorted(HANDLERS)}")
        rule = Rule(actions, times, where)
        self._dispatcher.rules.add(api_key, rule)
        return rule

    def clear_rules(self) -> None:
        """Forget everything that :meth:`on` set up."""
        self._dispatcher.rules.clear()

    def _topic(self, name: str) -> Topic:
        topic = self._store.find_topic(name)
        if topic is None:
            raise StoreError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic


class ThreadedBroker:
    """The calls of an :class:`EmbeddedBroker`, to be made from any thread but the broker's own.

    Events for ``hold`` belong to the broker's loop: make them with :meth:`call` (``broker.call(asyncio.Event)``) and set them with it.
    """

    def __init__(self, broker: EmbeddedBroker, portal: BlockingPortal) -> None:
        self._broker = broker
        self._portal = portal

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for a client's bootstrap.servers."""
        return self._broker.bootstrap_servers

    @property
    def topics(self) -> Mapping[str, Topic]:
        """A copy of the topics by name."""
        return self._portal.call(lambda: dict(self._broker.topics))

    @property
    def requests(self) -> list[SeenRequest]:
        """A copy of the last requests that came in, oldest first."""
        return self._portal.call(lambda: list(self._broker.requests))

    def create_topic(self, name: str, num_partitions: int | None = None, configs: Mapping[str, str | None] | None = None) -> Topic:
        """See :meth:`EmbeddedBroker.create_topic`."""
        return self._portal.call(self._broker.create_topic, name, num_partitions, configs)

    def delete_topic(self, name: str) -> None:
        """See :meth:`EmbeddedBroker.delete_topic`."""
        self._portal.call(self._broker.delete_topic, name)

    def records(self, topic: str, partition: int | None = None) -> list[Record]:
        """See :meth:`EmbeddedBroker.records`."""
        return self._portal.call(self._broker.records, topic, partition)

    def wait_for_records(self, topic: str, count: int, timeout_seconds: float = 10.0) -> list[Record]:
        """See :meth:`EmbeddedBroker.wait_for_records`."""
        return self._portal.call(self._broker.wait_for_records, topic, count, timeout_seconds)

    def on(self, api_key: int, *actions: Action, times: int | None = 1, where: Callable[[Message], bool] | None = None) -> Rule:
        """See :meth:`EmbeddedBroker.on`."""
        return self._portal.call(lambda: self._broker.on(api_key, *actions, times=times, where=where))

    def clear_rules(self) -> None:
        """See :meth:`EmbeddedBroker.clear_rules`."""
        self._portal.call(self._broker.clear_rules)

    def stop(self) -> None:
        """See :meth:`EmbeddedBroker.stop`; the records can still be read."""
        self._portal.call(self._broker.stop)

    def start(self) -> None:
        """Start again after :meth:`stop`, on the same port."""
        self._portal.call(self._broker.start)

    def call(self, function: Callable[[], T]) -> T:
        """Call something on the broker's loop and return what it gives."""
        return self._portal.call(function)
