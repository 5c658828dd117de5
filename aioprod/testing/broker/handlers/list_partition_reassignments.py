"""ListPartitionReassignments (KIP-455): none is ever in progress."""

from __future__ import annotations

from aioprod.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext


@handles(ListPartitionReassignmentsRequest)
async def handle(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """Return an empty list."""
    code = context.failure()
    return ListPartitionReassignmentsResponse(
        error_code=code, error_message=code.description if code else None
    )
