"""DeleteGroups: delete groups without members, and their offsets (KIP-229)."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.coordination import check_group_coordinator
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext


@handles(DeleteGroupsRequest)
async def handle(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    """Delete the groups; each group has a separate result."""
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id, _delete(group_id, context))
            for group_id in request.groups_names
        ]
    )


def _delete(group_id: str, context: RequestContext) -> ErrorCode:
    try:
        if code := context.failure():
            return code
        check_group_coordinator(context, group_id)
        context.store.groups.delete(group_id)
    except RequestError as error:
        return error.code
    context.store.offsets.delete(group_id)
    context.store.shares.forget(lambda key: key.group_id == group_id)
    return ErrorCode.NONE
