"""InitProducerId: an identity for an idempotent producer, or the next epoch of a
transactional id.
"""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.handlers.coordination import check_coordinator, fenced_code
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.store import StoreError
from aioprod.testing.broker.transactions import NO_EPOCH, NO_PRODUCER_ID, Identity

_FENCED_CODE_FROM = 4


@handles(InitProducerIdRequest)
async def handle(request: InitProducerIdRequest, exchange: Exchange) -> InitProducerIdResponse:
    """Answer with producer id and epoch."""
    try:
        if code := exchange.failure():
            raise StoreError(code, code.description)
        producer_id, epoch = _identity(request, exchange)
    except StoreError as error:
        code = fenced_code(error.code, exchange.api_version, _FENCED_CODE_FROM)
        return InitProducerIdResponse(
            error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH
        )
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


def _identity(request: InitProducerIdRequest, exchange: Exchange) -> Identity:
    expected = Identity(request.producer_id, request.producer_epoch)
    if (expected.producer_id == NO_PRODUCER_ID) != (expected.epoch == NO_EPOCH):
        raise StoreError(
            ErrorCode.INVALID_REQUEST, "producer id and epoch come together, or neither"
        )
    if request.transactional_id is None:
        return Identity(
            exchange.store.new_producer_id(), 0
        )  # whatever identity the client had: Kafka makes a new one as well
    check_coordinator(exchange, request.transactional_id)
    return exchange.store.transactions.init_producer_id(
        request.transactional_id,
        request.transaction_timeout_ms,
        None if expected.epoch == NO_EPOCH else expected,
    )
