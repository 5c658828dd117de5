"""OffsetDelete: delete a group's offsets of topics that no member reads (KIP-496)."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.groups.group import CONSUMER, GroupState
from aioprod.testing.broker.groups.registry import AnyGroup
from aioprod.testing.broker.handlers.coordination import check_group, check_place
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext
from aioprod.types import TopicPartition


@handles(OffsetDeleteRequest)
async def handle(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    """Refuse the whole request, or delete with a result for each partition."""
    try:
        check_group(context, request.group_id)
        read = _topics_in_use(context.store.groups.groups.get(request.group_id))
    except RequestError as error:
        return OffsetDeleteResponse(error_code=error.code)
    topics = [
        OffsetDeleteResponseTopic(
            topic.name,
            [
                OffsetDeleteResponsePartition(
                    asked.partition_index,
                    _delete(
                        request.group_id,
                        TopicPartition(topic.name, asked.partition_index),
                        read,
                        context,
                    ),
                )
                for asked in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return OffsetDeleteResponse(topics=topics)


def _topics_in_use(group: AnyGroup | None) -> frozenset[str]:
    if group is None:
        raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, "there is no such group")
    if group.state != GroupState.EMPTY and group.protocol_type != CONSUMER:
        raise RequestError(
            ErrorCode.NON_EMPTY_GROUP, "the topics that its members read are unknown"
        )
    return group.subscribed_topics


def _delete(
    group_id: str, place: TopicPartition, read: frozenset[str], context: RequestContext
) -> ErrorCode:
    refusal = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if place.topic in read else ErrorCode.NONE
    code = check_place(context, place, refusal)
    if not code:
        context.store.offsets.delete_one(group_id, place)
    return code
