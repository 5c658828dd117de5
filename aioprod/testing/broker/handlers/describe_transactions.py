"""DescribeTransactions (KIP-664): the states of transactional ids that this node coordinates."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.acls import AclOperation, ResourceType
from aioprod.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.coordination import check_coordinator
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext


@handles(DescribeTransactionsRequest)
async def handle(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """Describe each transactional id."""
    return DescribeTransactionsResponse(
        transaction_states=[_describe(name, context) for name in request.transactional_ids]
    )


def _describe(name: str, context: RequestContext) -> TransactionState:
    try:
        if code := context.refusal_of(ResourceType.TRANSACTIONAL_ID, name):
            raise RequestError(code, code.description)
        if not name:
            raise RequestError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        check_coordinator(context, name)
        transaction = context.store.transactions.transactions.get(name)
        if transaction is None:
            raise RequestError(
                ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"there is no transactional id {name!r}"
            )
    except RequestError as error:
        return TransactionState(error_code=error.code, transactional_id=name)
    partitions: dict[str, list[int]] = {}
    for place in sorted(transaction.partitions):
        if context.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, place.topic):
            partitions.setdefault(place.topic, []).append(place.partition)
    return TransactionState(
        transactional_id=name,
        transaction_state=transaction.state.value,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_time_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicData(topic, indexes) for topic, indexes in partitions.items()],
    )
