"""LeaveGroup: a member leaves, or an administrator removes members (several at once since version
3).
"""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.coordination import check_group
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext

_SEVERAL_FROM = 3


@handles(LeaveGroupRequest)
async def handle(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    """Remove members, and return a result for each."""
    leaving = (
        request.members
        if context.api_version >= _SEVERAL_FROM
        else [MemberIdentity(request.member_id)]
    )
    try:
        check_group(context, request.group_id)
        results = context.store.groups.leave(request.group_id, leaving)
    except RequestError as error:
        if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
            return LeaveGroupResponse(error_code=error.code)
        results = [
            MemberResponse(each.member_id, each.group_instance_id, error.code) for each in leaving
        ]
    if context.api_version >= _SEVERAL_FROM:
        return LeaveGroupResponse(members=results)
    return LeaveGroupResponse(error_code=results[0].error_code)
