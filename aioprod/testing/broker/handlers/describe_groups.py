"""DescribeGroups: the state and the members of groups. Members' metadata is included only while a
group is stable.
"""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.acls import ResourceType
from aioprod.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.groups.group import Group, GroupState
from aioprod.testing.broker.groups.member import Member
from aioprod.testing.broker.handlers.authorized_operations import operations
from aioprod.testing.broker.handlers.coordination import check_group_coordinator
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext

_INSTANCES_FROM = 4
_NOT_FOUND_FROM = 6  # KIP-1043: in older versions, a missing group is described as dead


@handles(DescribeGroupsRequest)
async def handle(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    """Describe each group."""
    return DescribeGroupsResponse(
        groups=[
            _describe(group_id, request.include_authorized_operations, context)
            for group_id in request.groups
        ]
    )


def _describe(group_id: str, with_operations: bool, context: RequestContext) -> DescribedGroup:
    code = context.failure()
    try:
        check_group_coordinator(context, group_id)
    except RequestError as error:
        code = code or error.code
    if code:
        return DescribedGroup(error_code=code, group_id=group_id)
    allowed = operations(context, ResourceType.GROUP, group_id, wanted=with_operations)
    group = context.store.groups.groups.get(group_id)
    if not isinstance(group, Group):
        dead = DescribedGroup(
            group_id=group_id, group_state=GroupState.DEAD, authorized_operations=allowed
        )
        if context.api_version >= _NOT_FOUND_FROM:
            dead.error_code, dead.error_message = (
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Group {group_id} {'not found' if group is None else 'is not a classic group'}.",
            )
        return dead
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_data=group.protocol_name or "" if is_stable else "",
        members=[
            _describe_member(group, member, is_stable, context.api_version)
            for member in group.members.values()
        ],
        authorized_operations=allowed,
    )


def _describe_member(
    group: Group, member: Member, is_stable: bool, version: int
) -> DescribedGroupMember:
    metadata = group.metadata_of(member) if is_stable else b""
    described = DescribedGroupMember(
        member.member_id, None, member.client_id, member.client_host, metadata, member.assignment
    )
    if version >= _INSTANCES_FROM:
        described.group_instance_id = member.instance_id
    return described
