"""Heartbeat: a member is alive, and learns whether it has to join again."""

from __future__ import annotations

from aioprod.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.handlers.coordination import check_group
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.store import StoreError


@handles(HeartbeatRequest)
async def handle(request: HeartbeatRequest, exchange: Exchange) -> HeartbeatResponse:
    """Keep the member's session."""
    try:
        check_group(exchange, request.group_id)
        return HeartbeatResponse(error_code=exchange.store.groups.heartbeat(request))
    except StoreError as error:
        return HeartbeatResponse(error_code=error.code)
