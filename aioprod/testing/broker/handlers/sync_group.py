"""SyncGroup: the leader sends the assignment of its generation, and all members get theirs."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.coordination import check_group
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext

_PROTOCOL_FROM = 5


@handles(SyncGroupRequest)
async def handle(request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    """Return the member's assignment when the leader has sent it."""
    if code := context.failure():
        return SyncGroupResponse(error_code=code)
    if context.api_version >= _PROTOCOL_FROM and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        check_group(context, request.group_id)
        answer = context.store.groups.sync(request)
    except RequestError as error:
        return SyncGroupResponse(error_code=error.code)
    return await context.wait_for(answer)
