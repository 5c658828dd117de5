"""ListTransactions (KIP-664, KIP-994): the transactional ids that this node coordinates."""

from __future__ import annotations

import re

from aioprod.error_codes import ErrorCode
from aioprod.protocol.acls import AclOperation, ResourceType
from aioprod.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from aioprod.protocol.messages.list_transactions import TransactionState as Listed
from aioprod.testing.broker.cluster import TRANSACTION
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.transactions.transaction import TransactionState

_STATES = {state.value for state in TransactionState} | {"PrepareEpochFence", "Dead"}


@handles(ListTransactionsRequest)
async def handle(
    request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    """List the transactional ids that match all filters. An unknown state in a filter is ignored,
    and the response lists it.
    """
    if code := context.failure():
        return ListTransactionsResponse(error_code=code)
    try:
        pattern = re.compile(request.transactional_id_pattern or ".*", re.DOTALL)
    except re.error:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    states = set(request.state_filters)
    if states and not states & _STATES:
        return ListTransactionsResponse(unknown_state_filters=sorted(states))
    now_ms = context.store.now_ms()
    # As in Kafka, a missing start time counts as 1970.
    listed = [
        Listed(name, transaction.producer_id, transaction.state.value)
        for name, transaction in context.store.transactions.transactions.items()
        if context.store.coordinator_node(TRANSACTION, name) == context.node.node_id
        and context.allows(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)
        and pattern.fullmatch(name)
        and (not states or transaction.state.value in states)
        and (
            not request.producer_id_filters
            or transaction.producer_id in request.producer_id_filters
        )
        and (
            request.duration_filter < 0
            or now_ms - transaction.start_time_ms > request.duration_filter
        )
    ]
    return ListTransactionsResponse(
        unknown_state_filters=sorted(states - _STATES), transaction_states=listed
    )
