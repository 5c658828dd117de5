"""DescribeShareGroupOffsets: the start offsets of share groups, and their lag (KIP-932,
KIP-1226).
"""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.coordination import check_group
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.share_groups.group import ShareGroup
from aioprod.testing.broker.share_groups.share_partitions import Shared, ShareKey

_UNKNOWN = -1


@handles(DescribeShareGroupOffsetsRequest)
async def handle(
    request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse:
    """Describe the partitions in the request, or all that a group has used."""
    return DescribeShareGroupOffsetsResponse(
        groups=[_describe(asked, context) for asked in request.groups]
    )


def _describe(
    asked: DescribeShareGroupOffsetsRequestGroup, context: RequestContext
) -> DescribeShareGroupOffsetsResponseGroup:
    group_id = asked.group_id
    try:
        check_group(context, group_id)
        group = context.store.groups.groups.get(group_id)
        if group is not None and not isinstance(group, ShareGroup):
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    except RequestError as error:
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=group_id, error_code=error.code, error_message=error.text
        )
    wanted = (
        _used(group_id, context)
        if asked.topics is None
        else {topic.topic_name: topic.partitions for topic in asked.topics}
    )
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=group_id,
        topics=[_topic(group_id, name, numbers, context) for name, numbers in wanted.items()],
    )


def _used(group_id: str, context: RequestContext) -> dict[str, list[int]]:
    used: dict[str, list[int]] = {}
    for shared in context.store.shares.of_group(group_id):
        topic = context.store.find_topic("", shared.key.topic_id)
        if topic is not None:
            used.setdefault(topic.name, []).append(shared.key.partition)
    return {name: sorted(numbers) for name, numbers in used.items()}


def _topic(
    group_id: str, name: str, numbers: list[int], context: RequestContext
) -> DescribeShareGroupOffsetsResponseTopic:
    topic = context.store.find_topic(name)
    if code := context.failure(name):
        return DescribeShareGroupOffsetsResponseTopic(
            topic_name=name,
            partitions=[
                DescribeShareGroupOffsetsResponsePartition(
                    number, _UNKNOWN, 0, _UNKNOWN, code, code.description
                )
                for number in numbers
            ],
        )
    if topic is None:
        return DescribeShareGroupOffsetsResponseTopic(
            topic_name=name,
            partitions=[
                DescribeShareGroupOffsetsResponsePartition(number, _UNKNOWN, 0, _UNKNOWN)
                for number in numbers
            ],
        )
    find = context.store.shares.find
    return DescribeShareGroupOffsetsResponseTopic(
        name,
        topic.topic_id,
        [
            _partition(number, find(ShareKey(group_id, topic.topic_id, number)))
            for number in numbers
        ],
    )


def _partition(number: int, shared: Shared | None) -> DescribeShareGroupOffsetsResponsePartition:
    state = None if shared is None else shared.state
    if shared is None or state is None or state.saved_start < 0:
        return DescribeShareGroupOffsetsResponsePartition(number, _UNKNOWN, 0, _UNKNOWN)
    lag = shared.log.high_watermark - state.saved_start - state.saved_done
    return DescribeShareGroupOffsetsResponsePartition(number, state.saved_start, 0, max(lag, 0))
