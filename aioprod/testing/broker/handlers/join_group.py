"""JoinGroup: join or rejoin a group. The response is sent after all members have joined."""

from __future__ import annotations

from aioprod.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.groups.member import Caller
from aioprod.testing.broker.handlers.coordination import check_group
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext

_REBALANCE_TIMEOUT_FROM = 1
_PROTOCOL_MAY_BE_NULL_FROM = 7


@handles(JoinGroupRequest)
async def handle(request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
    """Join and wait for the other members."""
    if context.api_version < _REBALANCE_TIMEOUT_FROM:
        request.rebalance_timeout_ms = request.session_timeout_ms
    response = await _join(request, context)
    if response.error_code:
        response.protocol_name = None if context.api_version >= _PROTOCOL_MAY_BE_NULL_FROM else ""
    return response


async def _join(request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
    try:
        check_group(context, request.group_id)
    except RequestError as error:
        return JoinGroupResponse(error_code=error.code, member_id=request.member_id)
    # Clients are on this machine.
    caller = Caller(context.client_id, f"/{context.node.host}", context.api_version)
    return await context.wait_for(context.store.groups.join(request, caller))
