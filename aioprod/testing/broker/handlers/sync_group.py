"""SyncGroup: the leader brings the assignment of its generation, and all members fetch theirs."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.handlers.coordination import check_group
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.store import StoreError

_PROTOCOL_FROM = 5


@handles(SyncGroupRequest)
async def handle(request: SyncGroupRequest, exchange: Exchange) -> SyncGroupResponse:
    """Sync, and wait for the leader."""
    if exchange.api_version >= _PROTOCOL_FROM and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        check_group(exchange, request.group_id)
        answer = exchange.store.groups.sync(request)
    except StoreError as error:
        return SyncGroupResponse(error_code=error.code)
    return await exchange.wait_for(answer)
