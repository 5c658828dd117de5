"""AddOffsetsToTxn: make the offsets of a consumer group part of a transaction."""

from __future__ import annotations

from aioprod.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.handlers.coordination import check_coordinator, fenced_code
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.store import StoreError
from aioprod.testing.broker.transactions import Identity

_FENCED_CODE_FROM = 2


@handles(AddOffsetsToTxnRequest)
async def handle(request: AddOffsetsToTxnRequest, exchange: Exchange) -> AddOffsetsToTxnResponse:
    """Add the group."""
    try:
        if code := exchange.failure():
            raise StoreError(code, code.description)
        check_coordinator(exchange, request.transactional_id)
        identity = Identity(request.producer_id, request.producer_epoch)
        exchange.store.transactions.add(request.transactional_id, identity, group=request.group_id)
    except StoreError as error:
        return AddOffsetsToTxnResponse(
            error_code=fenced_code(error.code, exchange.api_version, _FENCED_CODE_FROM)
        )
    return AddOffsetsToTxnResponse()
