"""InitProducerId: a producer id for an idempotent producer, or the next epoch of a transactional
id.
"""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.coordination import check_coordinator, fenced_code
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.transactions.transaction import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
)

_FENCED_CODE_FROM = 4


@handles(InitProducerIdRequest)
async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Return the producer id and epoch."""
    try:
        if code := context.failure():
            raise RequestError(code, code.description)
        producer_id, epoch = _identity(request, context)
    except RequestError as error:
        code = fenced_code(error.code, context.api_version, _FENCED_CODE_FROM)
        return InitProducerIdResponse(
            error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH
        )
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


def _identity(request: InitProducerIdRequest, context: RequestContext) -> ProducerIdAndEpoch:
    expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    if (expected.producer_id == NO_PRODUCER_ID) != (expected.epoch == NO_EPOCH):
        raise RequestError(ErrorCode.INVALID_REQUEST, "only one of producer id and epoch is set")
    if request.transactional_id is None:
        # Like Kafka, ignore the client's current id.
        return ProducerIdAndEpoch(context.store.new_producer_id(), 0)
    check_coordinator(context, request.transactional_id)
    return context.store.transactions.init_producer_id(
        request.transactional_id,
        request.transaction_timeout_ms,
        None if expected.epoch == NO_EPOCH else expected,
    )
