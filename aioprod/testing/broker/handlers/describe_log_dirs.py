"""DescribeLogDirs: one directory, which is memory, with the sizes of the replicas on the node that
was asked.
"""

from __future__ import annotations

from collections.abc import Iterator

from aioprod.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.store import Topic

_NAME = "/memory"
_ERROR_FROM = 3


@handles(DescribeLogDirsRequest)
async def handle(request: DescribeLogDirsRequest, exchange: Exchange) -> DescribeLogDirsResponse:
    """Describe what was asked for, or everything (null)."""
    if code := exchange.failure():
        return DescribeLogDirsResponse(
            error_code=code,
            results=[DescribeLogDirsResult(code, _NAME)]
            if exchange.api_version < _ERROR_FROM
            else [],
        )
    wanted = (
        None
        if request.topics is None
        else {topic.topic: set(topic.partitions) for topic in request.topics}
    )
    topics = [
        DescribeLogDirsTopic(topic.name, partitions)
        for topic, partitions in _find(wanted, exchange)
        if partitions
    ]
    store = exchange.store
    left = store.max_memory_bytes - store.memory.size
    result = DescribeLogDirsResult(
        log_dir=_NAME, topics=topics, total_bytes=store.max_memory_bytes, usable_bytes=left
    )
    return DescribeLogDirsResponse(results=[result])


def _find(
    wanted: dict[str, set[int]] | None, exchange: Exchange
) -> Iterator[tuple[Topic, list[DescribeLogDirsPartition]]]:
    for topic in exchange.store.topics.values():
        if wanted is None or topic.name in wanted:
            yield (
                topic,
                [
                    DescribeLogDirsPartition(index, partition.log.size, 0, False)
                    for index, partition in enumerate(topic.partitions)
                    if exchange.node.node_id in partition.leadership.replicas
                    and (wanted is None or index in wanted[topic.name])
                ],
            )
