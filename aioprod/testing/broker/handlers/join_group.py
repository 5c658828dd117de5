"""JoinGroup: become a member of a group, or stay one in its next generation. The answer comes when
all members have joined.
"""

from __future__ import annotations

from aioprod.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.groups.member import Caller
from aioprod.testing.broker.handlers.coordination import check_group
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.store import StoreError

_REBALANCE_TIMEOUT_FROM = 1
_PROTOCOL_MAY_BE_NULL_FROM = 7


@handles(JoinGroupRequest)
async def handle(request: JoinGroupRequest, exchange: Exchange) -> JoinGroupResponse:
    """Join, and wait for the others."""
    if exchange.api_version < _REBALANCE_TIMEOUT_FROM:
        request.rebalance_timeout_ms = request.session_timeout_ms
    response = await _join(request, exchange)
    if response.error_code:
        response.protocol_name = None if exchange.api_version >= _PROTOCOL_MAY_BE_NULL_FROM else ""
    return response


async def _join(request: JoinGroupRequest, exchange: Exchange) -> JoinGroupResponse:
    try:
        check_group(exchange, request.group_id)
    except StoreError as error:
        return JoinGroupResponse(error_code=error.code, member_id=request.member_id)
    caller = Caller(
        exchange.client_id, f"/{exchange.node.host}", exchange.api_version
    )  # clients are on this machine, too
    return await exchange.wait_for(exchange.store.groups.join(request, caller))
