"""OffsetFetch: the committed offsets of a group, or of several groups since version 8."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable

from aioprod.error_codes import ErrorCode
from aioprod.protocol.acls import AclOperation, ResourceType
from aioprod.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from aioprod.protocol.primitives import ZERO_UUID
from aioprod.testing.broker.epoch_groups.group import EpochGroup
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.coordination import check_group_coordinator, topic_name
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.offsets import GroupOffsets
from aioprod.testing.broker.request_context import RequestContext
from aioprod.types import TopicPartition

_GROUP_CODE_FROM = 2
_SEVERAL_FROM = 8
_BY_ID_FROM = 10


@handles(OffsetFetchRequest)
async def handle(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    """Return the offsets of each group."""
    if context.api_version >= _SEVERAL_FROM:
        return OffsetFetchResponse(
            groups=[
                _answer_group(group, request.require_stable, context) for group in request.groups
            ]
        )
    code = _refusal(request.group_id, context)
    if code and context.api_version >= _GROUP_CODE_FROM:
        return OffsetFetchResponse(error_code=code)
    wanted = (
        None
        if request.topics is None
        else [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    )
    by_topic = _by_topic(_places(request.group_id, wanted, context))
    topics = [
        OffsetFetchResponseTopic(
            name,
            [
                OffsetFetchResponsePartition(
                    *_position(request.group_id, place, code, request.require_stable, context)
                )
                for place in places
            ],
        )
        for name, places in by_topic.items()
    ]
    return OffsetFetchResponse(topics=topics)


def _answer_group(
    asked: OffsetFetchRequestGroup, require_stable: bool, context: RequestContext
) -> OffsetFetchResponseGroup:
    code = _refusal(asked.group_id, context) or _refuse_member(asked, context)
    if code:
        return OffsetFetchResponseGroup(asked.group_id, error_code=code)
    by_id = context.api_version >= _BY_ID_FROM
    unknown: list[OffsetFetchResponseTopics] = []
    wanted: list[tuple[str, int]] | None = None
    if asked.topics is not None:
        wanted = []
        for topic in asked.topics:
            name = topic_name(context, topic.name, topic.topic_id)
            if name is None:
                unknown.append(_unknown_topic(topic))
            else:
                wanted += [(name, index) for index in topic.partition_indexes]
    topics = [
        OffsetFetchResponseTopics(
            name,
            topic_id,
            [
                OffsetFetchResponsePartitions(
                    *_position(asked.group_id, place, ErrorCode.NONE, require_stable, context)
                )
                for place in places
            ],
        )
        for name, places in _by_topic(_places(asked.group_id, wanted, context)).items()
        # If the request has no topics, deleted ones are omitted because they have no id.
        if (topic_id := _id_of(name, context)).int or not by_id
    ]
    return OffsetFetchResponseGroup(asked.group_id, [*topics, *unknown])


def _id_of(name: str, context: RequestContext) -> uuid.UUID:
    topic = context.store.find_topic(name)
    return ZERO_UUID if topic is None else topic.topic_id


def _unknown_topic(asked: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=asked.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(index, -1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)
            for index in asked.partition_indexes
        ],
    )


def _refusal(group_id: str, context: RequestContext) -> ErrorCode:
    try:
        check_group_coordinator(context, group_id)
    except RequestError as error:
        return context.failure() or error.code
    return context.failure()


def _refuse_member(asked: OffsetFetchRequestGroup, context: RequestContext) -> ErrorCode:
    """Return the error if the request's member or epoch is not valid in a group of the consumer
    protocol (KIP-848).
    """
    group = context.store.groups.groups.get(asked.group_id)
    if isinstance(group, EpochGroup) and (asked.member_id is not None or asked.member_epoch >= 0):
        try:
            group.check_epoch(asked.member_id or "", asked.member_epoch)
        except RequestError as error:
            return error.code
    return ErrorCode.NONE


def _places(
    group_id: str, wanted: Iterable[tuple[str, int]] | None, context: RequestContext
) -> Iterable[TopicPartition]:
    """Return the requested partitions, or all for which the group has offsets."""
    if wanted is None:
        return [
            place
            for place in _group(group_id, context).committed
            if context.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, place.topic)
        ]
    return [TopicPartition(*each) for each in wanted]


def _by_topic(places: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = defaultdict(list)
    for place in places:
        topics[place.topic].append(place)
    return topics


def _position(
    group_id: str,
    place: TopicPartition,
    code: ErrorCode,
    require_stable: bool,
    context: RequestContext,
) -> tuple[int, int, int, str, int]:
    """Return the fields of a partition's response: number, offset, leader epoch, metadata, error
    code.
    """
    group = _group(group_id, context)
    code = code or context.failure(*place)
    if not code and require_stable and group.is_unstable(place):
        code = ErrorCode.UNSTABLE_OFFSET_COMMIT
    committed = group.committed.get(place)
    if code or committed is None:
        return place.partition, -1, -1, "", code
    return (
        place.partition,
        committed.offset,
        committed.leader_epoch,
        committed.metadata,
        ErrorCode.NONE,
    )


def _group(group_id: str, context: RequestContext) -> GroupOffsets:
    return context.store.offsets.groups.get(group_id) or GroupOffsets()
