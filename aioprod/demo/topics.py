"""The demo's topics: made, checked to be empty, and counted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from aioprod.consumer.partition_reader import EARLIEST, LATEST, list_offsets, partitions_of
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError
from aioprod.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest

if TYPE_CHECKING:
    from aioprod.cluster.client import ClusterClient

PARTITIONS = 4
_CREATE_TIMEOUT_MS = 10_000
_LEADER_TIMEOUT_S = 10
_LEADER_POLL_S = 0.1


async def create_topics(client: ClusterClient, names: Sequence[str]) -> None:
    """Create these topics with four partitions each, where they don't exist yet, and wait until
    every partition has a leader.

    Raises:
        BrokerError: the cluster refuses one.
        BrokerConnectionError, TimeoutError: no usable answer in time.
    """
    topics = [
        CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=-1)
        for name in names
    ]
    async with asyncio.timeout(_LEADER_TIMEOUT_S + _CREATE_TIMEOUT_MS / 1000):
        request = CreateTopicsRequest(topics=topics, timeout_ms=_CREATE_TIMEOUT_MS)
        answer = await client.request(request, client.snapshot.controller_id)
        for topic in answer.topics:
            code = ErrorCode.of(topic.error_code)
            if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise BrokerError(
                    code,
                    f"can't create topic {topic.name}"
                    + (f" ({topic.error_message})" if topic.error_message else ""),
                )
        await _wait_for_leaders(client, names)


async def count_records(client: ClusterClient, names: Iterable[str]) -> dict[str, int]:
    """Return the number of records of each topic: the latest less the earliest offsets of its
    partitions.

    Raises:
        KafkaError: a topic does not exist or no leader answers in time.
    """
    partitions = await partitions_of(client, names)
    first = await list_offsets(client, dict.fromkeys(partitions, EARLIEST))
    last = await list_offsets(client, dict.fromkeys(partitions, LATEST))
    return {
        name: sum(last[tp] - first[tp] for tp in partitions if tp.topic == name)
        for name in {tp.topic for tp in partitions}
    }


async def _wait_for_leaders(client: ClusterClient, names: Sequence[str]) -> None:
    while True:
        snapshot = await client.refresh_topics(names)
        topics = [snapshot.topics[name] for name in names]
        if all(
            topic.partitions and all(partition.leader >= 0 for partition in topic.partitions)
            for topic in topics
        ):
            return
        await asyncio.sleep(_LEADER_POLL_S)
