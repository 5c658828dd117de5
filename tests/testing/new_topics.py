"""New topics that can be written to and read from at once.

Apache Kafka answers CreateTopics before the leaders of the new partitions know of it. Clients retry
until they do, but a `RawClient` sends a request once, so its tests create topics here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from uuid import UUID

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from aioprod.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aioprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.testing.raw_client import RawClient

LIMIT_S = 60.0
_PAUSE_S = 0.01
_LATEST = -1


async def create_topics_with_leaders(address: str, *topics: CreatableTopic) -> dict[str, UUID]:
    """Create topics, wait for the leaders of all partitions, and return the ids by name.

    Args:
        address: a broker that clients reach without logging in.
    """
    async with RawClient(address) as client:
        created = (await client.call(CreateTopicsRequest(list(topics)), 7)).topics
    errors = {each.name: ErrorCode.of(each.error_code).name for each in created if each.error_code}
    assert not errors, errors
    await wait_for_leaders(address, {each.name: each.num_partitions for each in created})
    return {each.name: each.topic_id for each in created}


async def wait_for_leaders(
    address: str, partitions: Mapping[str, int], *, limit_s: float = LIMIT_S
) -> None:
    """Wait until each partition's leader serves it.

    Metadata does not suffice: it is one broker's view, and a broker publishes its metadata before
    it leads the partition. So each leader is asked for the end of its partitions.

    Args:
        partitions: the number of partitions of each topic.

    Raises:
        AssertionError: after ``limit_s`` seconds, with the last error of each partition.
    """
    problems: dict[str, str] = {}
    try:
        async with asyncio.timeout(limit_s):
            while problems := await _problems(address, partitions):  # noqa: ASYNC110
                await asyncio.sleep(_PAUSE_S)
    except TimeoutError:
        raise AssertionError(f"no leaders within {limit_s:g} s: {problems}") from None


async def _problems(address: str, partitions: Mapping[str, int]) -> dict[str, str]:
    """Return the errors of partitions that cannot be used yet, by topic and number."""
    wanted = [MetadataRequestTopic(name=name) for name in partitions]
    async with AsyncExitStack() as stack:
        bootstrap = await stack.enter_async_context(RawClient(address))
        metadata = await bootstrap.call(MetadataRequest(wanted, False), 9)
        addresses = {each.node_id: f"{each.host}:{each.port}" for each in metadata.brokers}
        described = {each.name: each for each in metadata.topics}
        problems: dict[str, str] = {}
        leaders: dict[int, list[tuple[str, int]]] = {}
        for name, count in partitions.items():
            if len(described[name].partitions) != count:
                code = ErrorCode.of(described[name].error_code).name
                problems[name] = f"{code}, {len(described[name].partitions)} of {count} partitions"
            for each in described[name].partitions:
                if each.leader_id in addresses:
                    leaders.setdefault(each.leader_id, []).append((name, each.partition_index))
                else:
                    problems[f"{name}-{each.partition_index}"] = "no leader"
        for node_id, led in leaders.items():
            leader = await stack.enter_async_context(RawClient(addresses[node_id]))
            problems |= await _refused(leader, led)
    return problems


async def _refused(leader: RawClient, partitions: list[tuple[str, int]]) -> dict[str, str]:
    """Return the errors of a leader's partitions, by topic and number."""
    topics = [
        ListOffsetsTopic(name, [ListOffsetsPartition(number, timestamp=_LATEST)])
        for name, number in partitions
    ]
    answer = await leader.call(ListOffsetsRequest(-1, 0, topics), 7)
    return {
        f"{topic.name}-{each.partition_index}": ErrorCode.of(each.error_code).name
        for topic in answer.topics
        for each in topic.partitions
        if each.error_code
    }
