"""DescribeLogDirs: one directory, in memory, with the sizes of the replicas on this node."""

from __future__ import annotations

from collections.abc import Iterator

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.store import Topic

_NAME = "/memory"
_ERROR_FROM = 3


@handles(DescribeLogDirsRequest)
async def handle(
    request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    """Describe the partitions in the request, or all partitions if it is null."""
    if code := context.failure():
        return DescribeLogDirsResponse(
            error_code=code,
            results=[DescribeLogDirsResult(code, _NAME)]
            if context.api_version < _ERROR_FROM
            # As in Kafka, without a message.
            and code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            else [],
        )
    wanted = (
        None
        if request.topics is None
        else {topic.topic: set(topic.partitions) for topic in request.topics}
    )
    topics = [
        DescribeLogDirsTopic(topic.name, partitions)
        for topic, partitions in _find(wanted, context)
        if partitions
    ]
    store = context.store
    left = store.max_memory_bytes - store.memory.size
    result = DescribeLogDirsResult(
        log_dir=_NAME, topics=topics, total_bytes=store.max_memory_bytes, usable_bytes=left
    )
    return DescribeLogDirsResponse(results=[result])


def _find(
    wanted: dict[str, set[int]] | None, context: RequestContext
) -> Iterator[tuple[Topic, list[DescribeLogDirsPartition]]]:
    for topic in context.store.topics.values():
        if wanted is None or topic.name in wanted:
            yield (
                topic,
                [
                    DescribeLogDirsPartition(index, partition.log.size, 0, False)
                    for index, partition in enumerate(topic.partitions)
                    if context.node.node_id in partition.leadership.replicas
                    and (wanted is None or index in wanted[topic.name])
                ],
            )
