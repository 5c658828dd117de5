"""EndTxn: commit or abort a transaction. From version 5 on, each transaction gets a new producer
epoch (KIP-890, transaction protocol v2).
"""

from __future__ import annotations

from aioprod.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.coordination import check_coordinator, fenced_code
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.transactions.transaction import ProducerIdAndEpoch

_FENCED_CODE_FROM = 2
_BUMPS_FROM = 5


@handles(EndTxnRequest)
async def handle(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    """End the transaction, and return the producer id and epoch of the next one."""
    bump = context.api_version >= _BUMPS_FROM
    try:
        if code := context.failure():
            raise RequestError(code, code.description)
        check_coordinator(context, request.transactional_id)
        following = context.store.transactions.end(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            commit=request.committed,
            bump=bump,
        )
    except RequestError as error:
        return EndTxnResponse(
            error_code=fenced_code(error.code, context.api_version, _FENCED_CODE_FROM)
        )
    return (
        EndTxnResponse(producer_id=following.producer_id, producer_epoch=following.epoch)
        if bump
        else EndTxnResponse()
    )
