"""InitProducerId: an identity for an idempotent producer, or the next epoch of a transactional id."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.store import StoreError

_MAX_TRANSACTION_TIMEOUT_MS = 900_000  # broker setting transaction.max.timeout.ms
_FENCED_CODE_FROM = 4  # older clients know PRODUCER_FENCED as INVALID_PRODUCER_EPOCH


async def handle(request: InitProducerIdRequest, exchange: Exchange) -> InitProducerIdResponse:
    """Answer with producer id and epoch."""
    try:
        if code := exchange.failure():
            raise StoreError(code, code.description)
        producer_id, epoch = _identity(request, exchange)
    except StoreError as error:
        code = error.code
        if code is ErrorCode.PRODUCER_FENCED and exchange.api_version < _FENCED_CODE_FROM:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


def _identity(request: InitProducerIdRequest, exchange: Exchange) -> tuple[int, int]:
    name = request.transactional_id
    if name is None:
        return exchange.store.new_producer_id(), 0  # whatever identity the client had: Kafka makes a new one as well
    if not name:
        raise StoreError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    if not 0 < request.transaction_timeout_ms <= _MAX_TRANSACTION_TIMEOUT_MS:
        raise StoreError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"must be 1 to {_MAX_TRANSACTION_TIMEOUT_MS} ms")
    identity = exchange.store.init_transactional_id(name, request.producer_id, request.producer_epoch)
    return identity.producer_id, identity.epoch
