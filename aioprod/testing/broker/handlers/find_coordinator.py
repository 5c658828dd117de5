"""FindCoordinator: always this broker."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from aioprod.testing.broker.exchange import Exchange

_SEVERAL_KEYS_FROM = 4
_GROUP = 0
_TRANSACTION = 1


async def handle(request: FindCoordinatorRequest, exchange: Exchange) -> FindCoordinatorResponse:
    """Name this node as the coordinator of each key."""
    code = exchange.failure()
    if not code and request.key_type not in (_GROUP, _TRANSACTION):
        code = ErrorCode.INVALID_REQUEST
    if exchange.api_version >= _SEVERAL_KEYS_FROM:
        return FindCoordinatorResponse(coordinators=[_coordinator(key, code, exchange) for key in request.coordinator_keys])
    if code:
        return FindCoordinatorResponse(error_code=code, error_message=code.description, node_id=-1, host="", port=-1)
    node = exchange.node
    return FindCoordinatorResponse(node_id=node.node_id, host=node.host, port=node.port)


def _coordinator(key: str, code: ErrorCode, exchange: Exchange) -> Coordinator:
    if code:
        return Coordinator(key=key, error_code=code, error_message=code.description, node_id=-1, host="", port=-1)
    node = exchange.node
    return Coordinator(key=key, node_id=node.node_id, host=node.host, port=node.port)
