"""EndTxn: commit or abort. From version 5 on the producer gets a new epoch with each transaction
(KIP-890, transaction protocol v2).
"""

from __future__ import annotations

from aioprod.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.handlers.coordination import check_coordinator, fenced_code
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.store import StoreError
from aioprod.testing.broker.transactions import Identity

_FENCED_CODE_FROM = 2
_BUMPS_FROM = 5


@handles(EndTxnRequest)
async def handle(request: EndTxnRequest, exchange: Exchange) -> EndTxnResponse:
    """End the transaction; the answer has the identity for the next one."""
    bump = exchange.api_version >= _BUMPS_FROM
    try:
        if code := exchange.failure():
            raise StoreError(code, code.description)
        check_coordinator(exchange, request.transactional_id)
        following = exchange.store.transactions.end(
            request.transactional_id,
            Identity(request.producer_id, request.producer_epoch),
            commit=request.committed,
            bump=bump,
        )
    except StoreError as error:
        return EndTxnResponse(
            error_code=fenced_code(error.code, exchange.api_version, _FENCED_CODE_FROM)
        )
    return (
        EndTxnResponse(producer_id=following.producer_id, producer_epoch=following.epoch)
        if bump
        else EndTxnResponse()
    )
