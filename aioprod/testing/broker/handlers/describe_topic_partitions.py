"""DescribeTopicPartitions (KIP-966): topics in the order of their names, with pagination."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.acls import AclOperation, ResourceType
from aioprod.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.authorized_operations import operations
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.internal_topics import is_internal
from aioprod.testing.broker.leaders import describe_partition
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.store import Topic, check_topic_name

_MOST_PARTITIONS = 2000  # broker setting max.request.partition.size.limit
_NO_CURSOR = Cursor("", 0)


@handles(DescribeTopicPartitionsRequest)
async def handle(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """Describe partitions from the cursor on, up to the limit. Without names, describe all
    topics.
    """
    cursor = request.cursor or _NO_CURSOR
    wanted = {topic.name for topic in request.topics}
    if cursor.partition_index < 0 or (
        wanted and request.cursor is not None and cursor.topic_name not in wanted
    ):
        return _refuse(request, ErrorCode.INVALID_REQUEST)
    response = DescribeTopicPartitionsResponse()
    left = max(1, min(request.response_partition_limit, _MOST_PARTITIONS))
    for name in sorted(
        name
        for name in wanted or context.store.topics
        if name >= cursor.topic_name
        and (wanted or context.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name))
    ):
        start = cursor.partition_index if name == cursor.topic_name else 0
        if left <= 0:
            response.next_cursor = ResponseCursor(name, start)
            break
        described = _describe(name, start, left, context)
        response.topics.append(described)
        left -= len(described.partitions)
        topic = context.store.find_topic(name)
        end = start + len(described.partitions)
        if topic is not None and not described.error_code and end < len(topic.partitions):
            response.next_cursor = ResponseCursor(name, end)
            break
    return response


def _refuse(
    request: DescribeTopicPartitionsRequest, code: ErrorCode
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[DescribeTopicPartitionsResponseTopic(code, topic.name) for topic in request.topics]
    )


def _describe(
    name: str, start: int, limit: int, context: RequestContext
) -> DescribeTopicPartitionsResponseTopic:
    topic = context.store.find_topic(name)
    code = context.failure(name)
    allowed = operations(
        context,
        ResourceType.TOPIC,
        name,
        wanted=code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )
    if not code and topic is None:
        code = _why_unknown(name)
    if code or topic is None:
        return DescribeTopicPartitionsResponseTopic(
            code, name, is_internal=is_internal(name), topic_authorized_operations=allowed
        )
    indexes = range(start, min(len(topic.partitions), start + limit))
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic.topic_id,
        is_internal=is_internal(name),
        partitions=[_describe_partition(topic, index, context) for index in indexes],
        topic_authorized_operations=allowed,
    )


def _why_unknown(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except RequestError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _describe_partition(
    topic: Topic, index: int, context: RequestContext
) -> DescribeTopicPartitionsResponsePartition:
    described = describe_partition(topic, index, context)
    return DescribeTopicPartitionsResponsePartition(
        **described, eligible_leader_replicas=[], last_known_elr=[]
    )
