"""DescribeTransactions (KIP-664): the states of transactional ids that this node coordinates."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.handlers.coordination import check_coordinator
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.store import StoreError


@handles(DescribeTransactionsRequest)
async def handle(
    request: DescribeTransactionsRequest, exchange: Exchange
) -> DescribeTransactionsResponse:
    """Describe each transactional id."""
    return DescribeTransactionsResponse(
        transaction_states=[_describe(name, exchange) for name in request.transactional_ids]
    )


def _describe(name: str, exchange: Exchange) -> TransactionState:
    try:
        if code := exchange.failure():
            raise StoreError(code, code.description)
        if not name:
            raise StoreError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        check_coordinator(exchange, name)
        transaction = exchange.store.transactions.transactions.get(name)
        if transaction is None:
            raise StoreError(
                ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"transactional id {name!r} is not known"
            )
    except StoreError as error:
        return TransactionState(error_code=error.code, transactional_id=name)
    partitions: dict[str, list[int]] = {}
    for place in sorted(transaction.partitions):
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
