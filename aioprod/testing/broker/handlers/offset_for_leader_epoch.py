"""OffsetForLeaderEpoch (KIP-101, KIP-320): the offset at which the records of a leader epoch end,
so that a client can detect lost records.
"""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.leaders import leader_error
from aioprod.testing.broker.request_context import RequestContext


@handles(OffsetForLeaderEpochRequest)
async def handle(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """Look up each partition."""
    topics = [
        OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[_answer(topic.topic, asked, context) for asked in topic.partitions],
        )
        for topic in request.topics
    ]
    return OffsetForLeaderEpochResponse(topics=topics)


def _answer(name: str, asked: OffsetForLeaderPartition, context: RequestContext) -> EpochEndOffset:
    topic = context.store.find_topic(name)
    partition = topic.partition(asked.partition) if topic is not None else None
    code = context.failure(name, asked.partition)
    if not code and partition is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not code and partition is not None:
        code = leader_error(partition, asked.current_leader_epoch, context)
    if code or partition is None:
        return EpochEndOffset(error_code=code, partition=asked.partition)
    return EpochEndOffset(
        ErrorCode.NONE, asked.partition, *partition.find_epoch_end(asked.leader_epoch)
    )
