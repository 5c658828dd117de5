"""A running cluster, with those methods of the embedded one that need only Kafka's protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NoReturn, TypeVar

import pytest
from anyio.from_thread import start_blocking_portal

from aioprod.cluster.client import ClusterClient
from aioprod.consumer.partition_reader import (
    EARLIEST,
    LATEST,
    FetchSettings,
    PartitionReader,
    list_offsets,
    partitions_of,
)
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, KafkaTimeoutError
from aioprod.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from aioprod.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from aioprod.protocol.record_reader import Record
from aioprod.testing import EmbeddedCluster
from aioprod.types import TopicPartition

T = TypeVar("T")

_ADMIN_TIMEOUT_MS = 30_000
_POLL_S = 0.02


class RunningKafka:
    """Replaces an :class:`aioprod.testing.EmbeddedCluster` when tests run against another cluster.

    Its methods block for some milliseconds, even in asyncio tests; only ``wait_for_records`` must
    be awaited there. A test that calls a method that only the embedded cluster has, such as ``on``
    or ``stop_node``, is skipped with a reason.

    Attributes:
        bootstrap_servers: ``"host:port,..."``.
    """

    def __init__(self, bootstrap_servers: str, client_settings: Mapping[str, Any]) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._client_settings = dict(client_settings)

    def create_topic(
        self,
        name: str,
        num_partitions: int | None = None,
        configs: Mapping[str, str | None] | None = None,
        *,
        replication_factor: int | None = None,
    ) -> None:
        """Create a topic and wait until its partitions have leaders. The numbers of partitions and
        replicas default to the cluster's settings.

        Raises:
            BrokerError: if the cluster refuses the request.
        """
        topic = CreatableTopic(
            name=name,
            num_partitions=num_partitions or -1,
            replication_factor=replication_factor or -1,
            configs=[
                CreatableTopicConfig(name=key, value=value)
                for key, value in (configs or {}).items()
            ],
        )
        self._run(lambda client: _create(client, topic))

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records.

        Raises:
            BrokerError: if the cluster refuses the request.
        """
        self._run(lambda client: _delete(client, name))

    def records(
        self, topic: str, partition: int | None = None, *, committed_only: bool = False
    ) -> list[Record]:
        """Return the records of a partition, or of all partitions in order.

        Raises:
            BrokerError: if the topic or the partition does not exist.
        """
        return self._run(lambda client: _records(client, topic, partition, committed_only))

    def wait_for_records(self, topic: str, count: int, timeout_seconds: float = 10.0) -> Any:
        """Wait until a topic has at least ``count`` records, and return all its records.

        Raises:
            KafkaTimeoutError: if the topic has fewer records after ``timeout_seconds``.
        """
        return self._run(lambda client: _wait_for_records(client, topic, count, timeout_seconds))

    def _run(self, action: Callable[[ClusterClient], Coroutine[Any, Any, T]]) -> T:
        # A separate thread, because this one may be running the test's event loop.
        with start_blocking_portal() as portal:
            return portal.call(lambda: self._with_client(action))

    async def _with_client(self, action: Callable[[ClusterClient], Coroutine[Any, Any, T]]) -> T:
        async with ClusterClient(self.bootstrap_servers, **self._client_settings) as client:
            return await action(client)

    def __getattr__(self, name: str) -> NoReturn:
        if not name.startswith("_") and hasattr(EmbeddedCluster, name):
            pytest.skip(f"only the embedded cluster has {name}: run with --kafka=embedded")
        raise AttributeError(f"{type(self).__name__} has no {name}")


class RunningKafkaOnLoop(RunningKafka):
    """A :class:`RunningKafka` for asyncio tests."""

    async def wait_for_records(
        self, topic: str, count: int, timeout_seconds: float = 10.0
    ) -> list[Record]:
        """See :meth:`RunningKafka.wait_for_records`."""
        return await self._with_client(
            lambda client: _wait_for_records(client, topic, count, timeout_seconds)
        )


async def _create(client: ClusterClient, topic: CreatableTopic) -> None:
    request = CreateTopicsRequest(topics=[topic], timeout_ms=_ADMIN_TIMEOUT_MS)
    answer = (await client.request(request, client.snapshot.controller_id)).topics[0]
    if answer.error_code:
        raise BrokerError(
            ErrorCode.of(answer.error_code),
            f"can't create topic {topic.name}: {answer.error_message}",
        )
    # Listing offsets waits for the leaders.
    await list_offsets(
        client,
        dict.fromkeys(await partitions_of(client, [topic.name]), EARLIEST),
        retry_limit_ms=_ADMIN_TIMEOUT_MS,
    )


async def _delete(client: ClusterClient, name: str) -> None:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=_ADMIN_TIMEOUT_MS
    )
    answer = (await client.request(request, client.snapshot.controller_id)).responses[0]
    if answer.error_code:
        raise BrokerError(
            ErrorCode.of(answer.error_code), f"can't delete topic {name}: {answer.error_message}"
        )


async def _records(
    client: ClusterClient, topic: str, partition: int | None, committed_only: bool
) -> list[Record]:
    level = "read_committed" if committed_only else "read_uncommitted"
    partitions = [
        each for each in await partitions_of(client, [topic]) if partition in (None, each.partition)
    ]
    if not partitions:
        raise BrokerError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has no partition {partition}"
        )
    starts = await list_offsets(client, dict.fromkeys(partitions, EARLIEST))
    ends = await list_offsets(client, dict.fromkeys(partitions, LATEST), isolation_level=level)
    settings = FetchSettings(isolation_level=level)
    found: list[Record] = []
    for each in partitions:
        async for fetched in PartitionReader(client, each, starts[each], ends[each], settings):
            found += fetched.records()
    return found


async def _wait_for_records(
    client: ClusterClient, topic: str, count: int, timeout_seconds: float
) -> list[Record]:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_seconds
    while True:
        stored = await _stored(client, topic)
        if stored >= count:
            records = await _records(client, topic, None, committed_only=False)
            if len(records) >= count:  # offsets also count transaction markers
                return records
        if loop.time() >= deadline:
            raise KafkaTimeoutError(
                f"{topic}: {stored} of {count} records after {timeout_seconds} s"
            )
        await asyncio.sleep(_POLL_S)


async def _stored(client: ClusterClient, topic: str) -> int:
    partitions: list[TopicPartition] = await partitions_of(client, [topic])
    starts = await list_offsets(client, dict.fromkeys(partitions, EARLIEST))
    ends = await list_offsets(client, dict.fromkeys(partitions, LATEST))
    return sum(ends[each] - starts[each] for each in partitions)
