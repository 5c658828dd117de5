"""DeleteGroups: groups without members, with their offsets (KIP-229)."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.handlers.coordination import check_group_coordinator
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.store import StoreError


@handles(DeleteGroupsRequest)
async def handle(request: DeleteGroupsRequest, exchange: Exchange) -> DeleteGroupsResponse:
    """Delete each by itself."""
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id, _delete(group_id, exchange))
            for group_id in request.groups_names
        ]
    )


def _delete(group_id: str, exchange: Exchange) -> ErrorCode:
    try:
        if code := exchange.failure():
            return code
        check_group_coordinator(exchange, group_id)
        exchange.store.groups.delete(group_id)
    except StoreError as error:
        return error.code
    exchange.store.offsets.delete(group_id)
    return ErrorCode.NONE
