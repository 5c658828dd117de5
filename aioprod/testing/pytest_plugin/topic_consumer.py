"""A consumer for tests: one topic from its beginning, every partition, no group."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, NamedTuple, Self

from aioprod.cluster.client import ClusterClient
from aioprod.consumer import FetchedRecords, FetchSettings, PartitionReader, list_offsets
from aioprod.consumer.partition_reader import EARLIEST, partitions_of
from aioprod.errors import ConfigError, KafkaTimeoutError
from aioprod.types import Header, TopicPartition

_QUEUED_REPLIES = 4


class ConsumerRecord(NamedTuple):
    """A record as it was read.

    Attributes:
        timestamp: milliseconds since 1970.
        timestamp_type: 0 where the producer set the timestamp (CreateTime), 1 where the broker did (LogAppendTime).
        headers: names and values in the producer's order; names may repeat.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class TopicConsumer:
    """Reads all partitions of one topic from their beginnings. It asks the brokers nothing before it is first asked for a record.

    Records of one partition come in their order. Those of different partitions come as they arrive.

    Args:
        bootstrap_servers: ``"host:port,..."``.
        topic: it has to exist when the first record is asked for; partitions that it is given later are not read.
        timeout_ms: how long :meth:`getone` and ``async for`` wait for a record before they raise.
        client_settings: the fields of :class:`aioprod.config.ClientConfig`, such as those for TLS and SASL.
        fetch_settings: the fields of :class:`aioprod.consumer.FetchSettings`, such as ``isolation_level="read_committed"``.
    """

    def __init__(
        self, bootstrap_servers: str, topic: str, *, timeout_ms: float = 10_000, client_settings: dict[str, Any] | None = None, **fetch_settings: Any
    ) -> None:
        if timeout_ms <= 0:
            raise ConfigError(f"timeout_ms={timeout_ms}: must be above 0")
        self.topic = topic
        self._timeout_ms = timeout_ms
        self._bootstrap_servers = bootstrap_servers
        self._client_settings = client_settings or {}
        self._fetch = FetchSettings(**{"retry_limit_ms": max(1, int(timeout_ms)), **fetch_settings})
        self._replies: asyncio.Queue[list[ConsumerRecord] | Exception] = asyncio.Queue(_QUEUED_REPLIES)
        self._failure: Exception | None = None
        self._read: deque[ConsumerRecord] = deque()
        self._returned = 0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Read no more, and close the connections."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def getone(self, timeout_ms: float | None = None) -> ConsumerRecord:
        """Return the next record.

        Raises:
            KafkaTimeoutError: there is none within ``timeout_ms``, or else the consumer's own limit.
            KafkaError: the topic can't be read.
        """
        limit_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        if not await self._wait_for_more(limit_ms):
            raise KafkaTimeoutError(f"no record from {self.topic} within {limit_ms:g} ms, after {self._returned} that were read before")
        self._returned += 1
        return self._read.popleft()

    async def getmany(self, max_records: int, timeout_ms: float | None = None) -> list[ConsumerRecord]:
        """Return the next ``max_records`` records, or those that came within ``timeout_ms`` where there are fewer.

        Raises:
            KafkaError: the topic can't be read.
        """
        if max_records < 1:
            raise ConfigError(f"max_records={max_records}: must be at least 1")
        deadline = asyncio.get_running_loop().time() + (self._timeout_ms if timeout_ms is None else timeout_ms) / 1000
        while len(self._read) < max_records:
            if not await self._take_reply(deadline):
                break
        many = [self._read.popleft() for _ in range(min(max_records, len(self._read)))]
        self._returned += len(many)
        return many

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        while True:
            yield await self.getone()

    async def _wait_for_more(self, limit_ms: float) -> bool:
        deadline = asyncio.get_running_loop().time() + limit_ms / 1000
        while not self._read:
            if not await self._take_reply(deadline):
                return False
        return True

    async def _take_reply(self, deadline: float) -> bool:
        """Move one reply's records to those that were read; False where the time is over."""
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._read_topic(), name=f"consumer of {self.topic}")
        try:
            async with asyncio.timeout_at(deadline):
                reply = await self._replies.get()
        except TimeoutError:
            return False
        if isinstance(reply, Exception):
            self._failure = reply
            raise reply
        self._read += reply
        return True

    async def _read_topic(self) -> None:
        try:
            async with self._client() as client:
                # Half the time, so that the caller learns why there is nothing.
                partitions = await partitions_of(client, [self.topic], limit_s=self._timeout_ms / 2000)
                starts = await list_offsets(client, dict.fromkeys(partitions, EARLIEST), retry_limit_ms=self._fetch.retry_limit_ms)
            async with asyncio.TaskGroup() as readers:
                for partition, start in starts.items():
                    readers.create_task(self._read_partition(partition, start), name=f"reader of {self.topic}-{partition.partition}")
        except Exception as error:
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            await self._replies.put(error)

    async def _read_partition(self, partition: TopicPartition, start: int) -> None:
        # A connection of its own: brokers answer one request of a connection after another, and an empty partition has them wait.
        async with self._client() as client:
            async for fetched in PartitionReader(client, partition, start, settings=self._fetch):
                await self._replies.put(_records(partition, fetched))

    def _client(self) -> ClusterClient:
        return ClusterClient(self._bootstrap_servers, **self._client_settings)


def _records(partition: TopicPartition, fetched: FetchedRecords) -> list[ConsumerRecord]:
    return [
        ConsumerRecord(*partition, record.offset, record.timestamp, record.timestamp_type, record.key, record.value, record.headers)
        for record in fetched.records()
    ]
