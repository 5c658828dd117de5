"""Heartbeat: renew a member's session, and return whether it must rejoin."""

from __future__ import annotations

from aioprod.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.coordination import check_group
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext


@handles(HeartbeatRequest)
async def handle(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    """Renew the member's session."""
    try:
        check_group(context, request.group_id)
        return HeartbeatResponse(error_code=context.store.groups.heartbeat(request))
    except RequestError as error:
        return HeartbeatResponse(error_code=error.code)
