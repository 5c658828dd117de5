"""ShareGroupDescribe: share groups with their members and assignments (KIP-932)."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.acls import ResourceType
from aioprod.protocol.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from aioprod.testing.broker.epoch_groups.member import Partitions
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.assignments import failure_of, with_names
from aioprod.testing.broker.handlers.authorized_operations import operations
from aioprod.testing.broker.handlers.coordination import check_group
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.share_groups.group import ShareGroup


@handles(ShareGroupDescribeRequest)
async def handle(
    request: ShareGroupDescribeRequest, context: RequestContext
) -> ShareGroupDescribeResponse:
    """Describe each group."""
    return ShareGroupDescribeResponse(
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
    if not isinstance(group, ShareGroup):
        what = "not found" if group is None else "is not a share group"
        return DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.", group_id)
    if code := failure_of((member.assigned for member in group.members.values()), context):
        return DescribedGroup(code, code.description, group_id)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=[
            Member(
                member.member_id,
                member.rack_id,
                member.epoch,
                member.client_id,
                member.client_host,
                sorted(member.topic_names),
                _assignment(member.assigned, context),
            )
            for member in group.members.values()
        ],
        authorized_operations=operations(
            context, ResourceType.GROUP, group_id, wanted=with_operations
        ),
    )


def _assignment(partitions: Partitions, context: RequestContext) -> Assignment:
    return Assignment([TopicPartitions(*each) for each in with_names(partitions, context)])
