"""ConsumerGroupDescribe: groups of the consumer protocol, with their members and targets
(KIP-848).
"""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.acls import ResourceType
from aioprod.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from aioprod.testing.broker.epoch_groups.group import EpochGroup
from aioprod.testing.broker.epoch_groups.member import EpochMember, Partitions
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.assignments import failure_of, with_names
from aioprod.testing.broker.handlers.authorized_operations import operations
from aioprod.testing.broker.handlers.coordination import check_group
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext

_MEMBER_TYPE_FROM = 1  # 0: a member with the classic protocol, 1: with the consumer protocol


@handles(ConsumerGroupDescribeRequest)
async def handle(
    request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    """Describe each group."""
    return ConsumerGroupDescribeResponse(
        groups=[
            _describe(group_id, request.include_authorized_operations, context)
            for group_id in request.group_ids
        ]
    )


def _describe(group_id: str, with_operations: bool, context: RequestContext) -> DescribedGroup:
    try:
        check_group(context, group_id)
    except RequestError as error:
        return DescribedGroup(error.code, None, group_id)
    group = context.store.groups.groups.get(group_id)
    if not isinstance(group, EpochGroup):
        what = "not found" if group is None else "is not a consumer group"
        return DescribedGroup(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {group_id} {what}.",
            group_id,
        )
    present = [member.reserved for member in group.members.values()]
    if code := failure_of([*present, *group.targets.values()], context):
        return DescribedGroup(code, code.description, group_id)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=[_member(group, each, context) for each in group.members.values()],
        authorized_operations=operations(
            context, ResourceType.GROUP, group_id, wanted=with_operations
        ),
    )


def _member(group: EpochGroup, member: EpochMember, context: RequestContext) -> Member:
    return Member(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        sorted(member.topic_names),
        member.topic_regex or "",
        _assignment(member.reserved, context),
        _assignment(group.target_of(member.member_id), context),
        int(member.classic is None) if context.api_version >= _MEMBER_TYPE_FROM else -1,
    )


def _assignment(partitions: Partitions, context: RequestContext) -> Assignment:
    return Assignment([TopicPartitions(*each) for each in with_names(partitions, context)])
