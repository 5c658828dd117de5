"""AlterShareGroupOffsets: set the start offsets of a share group without members (KIP-932)."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.coordination import check_group
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.share_groups.share_partitions import ShareKey
from aioprod.testing.broker.store import Topic


@handles(AlterShareGroupOffsetsRequest)
async def handle(
    request: AlterShareGroupOffsetsRequest, context: RequestContext
) -> AlterShareGroupOffsetsResponse:
    """Create the group if it does not exist; each partition has a separate result."""
    try:
        check_group(context, request.group_id)
        context.store.groups.empty_share_group(request.group_id)
    except RequestError as error:
        return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.text)
    answers = []
    for asked in request.topics:
        topic = context.store.find_topic(asked.topic_name)
        answer = AlterShareGroupOffsetsResponseTopic(
            topic_name=asked.topic_name,
            partitions=[
                _alter(request.group_id, asked.topic_name, topic, each, context)
                for each in asked.partitions
            ],
        )
        if topic is not None:
            answer.topic_id = topic.topic_id
        answers.append(answer)
    return AlterShareGroupOffsetsResponse(responses=answers)


def _alter(
    group_id: str,
    name: str,
    topic: Topic | None,
    asked: AlterShareGroupOffsetsRequestPartition,
    context: RequestContext,
) -> AlterShareGroupOffsetsResponsePartition:
    number = asked.partition_index
    if code := context.failure(name, number):
        return AlterShareGroupOffsetsResponsePartition(number, code, code.description)
    partition = None if topic is None else topic.partition(number)
    if topic is None or partition is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return AlterShareGroupOffsetsResponsePartition(number, code, code.description)
    key = ShareKey(group_id, topic.topic_id, number)
    context.store.shares.move(key, partition, asked.start_offset)
    return AlterShareGroupOffsetsResponsePartition(number)
