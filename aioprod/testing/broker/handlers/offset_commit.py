"""OffsetCommit: commit offsets of a group. Clients that are not members can commit only while the
group is empty.
"""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.coordination import (
    check_group_coordinator,
    commit_offset,
    topic_name,
)
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.offsets import Committer
from aioprod.testing.broker.request_context import RequestContext
from aioprod.types import TopicPartition

_UNKNOWN_GROUP_FROM = 9  # older clients expect ILLEGAL_GENERATION


@handles(OffsetCommitRequest)
async def handle(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    """Commit the valid offsets; each partition has a separate result."""
    refusal = context.failure() or _refusal(request, context)
    topics = []
    for topic in request.topics:
        name = topic_name(context, topic.name, topic.topic_id)
        partitions = [
            OffsetCommitResponsePartition(
                asked.partition_index, _commit(name, asked, refusal, request, context)
            )
            for asked in topic.partitions
        ]
        topics.append(OffsetCommitResponseTopic(topic.name, topic.topic_id, partitions))
    return OffsetCommitResponse(topics=topics)


def _refusal(request: OffsetCommitRequest, context: RequestContext) -> ErrorCode:
    committer = Committer(
        request.generation_id_or_member_epoch, request.member_id, request.group_instance_id
    )
    try:
        check_group_coordinator(context, request.group_id)
        context.store.groups.check_commit(request.group_id, committer, in_transaction=False)
    except RequestError as error:
        is_unknown = (
            request.group_id not in context.store.groups.groups
            and error.code is ErrorCode.ILLEGAL_GENERATION
        )
        return (
            ErrorCode.GROUP_ID_NOT_FOUND
            if is_unknown and context.api_version >= _UNKNOWN_GROUP_FROM
            else error.code
        )
    return ErrorCode.NONE


def _commit(
    topic: str | None,
    asked: OffsetCommitRequestPartition,
    refusal: ErrorCode,
    request: OffsetCommitRequest,
    context: RequestContext,
) -> ErrorCode:
    def commit(place: TopicPartition) -> None:
        context.store.offsets.commit(
            request.group_id,
            place,
            asked.committed_offset,
            asked.committed_leader_epoch,
            asked.committed_metadata,
        )

    return commit_offset(context, topic, asked.partition_index, refusal, commit)
