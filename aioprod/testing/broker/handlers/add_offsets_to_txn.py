"""AddOffsetsToTxn: add the offsets of a consumer group to a transaction."""

from __future__ import annotations

from aioprod.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.coordination import check_coordinator, fenced_code
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.transactions.transaction import ProducerIdAndEpoch

_FENCED_CODE_FROM = 2


@handles(AddOffsetsToTxnRequest)
async def handle(
    request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse:
    """Add the group."""
    try:
        if code := context.failure():
            raise RequestError(code, code.description)
        check_coordinator(context, request.transactional_id)
        identity = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        context.store.transactions.add(request.transactional_id, identity, group=request.group_id)
    except RequestError as error:
        return AddOffsetsToTxnResponse(
            error_code=fenced_code(error.code, context.api_version, _FENCED_CODE_FROM)
        )
    return AddOffsetsToTxnResponse()
