"""FindCoordinator: the nodes that coordinate groups or transactional ids."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from aioprod.testing.broker.handlers.coordination import COORDINATED
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.internal_topics import create_for_coordinator
from aioprod.testing.broker.request_context import RequestContext

_SEVERAL_KEYS_FROM = 4


@handles(FindCoordinatorRequest)
async def handle(
    request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    """Return the coordinator of each key."""
    code = context.failure()
    if not code and request.key_type not in COORDINATED:
        code = ErrorCode.INVALID_REQUEST
    keys = request.coordinator_keys or [request.key]
    if not code and not all(context.refusal_of(COORDINATED[request.key_type], key) for key in keys):
        create_for_coordinator(context.store, request.key_type)
    if context.api_version >= _SEVERAL_KEYS_FROM:
        return FindCoordinatorResponse(
            coordinators=[
                _find(request.key_type, key, code, context) for key in request.coordinator_keys
            ]
        )
    found = _find(request.key_type, request.key, code, context)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(kind: int, key: str, code: ErrorCode, context: RequestContext) -> Coordinator:
    code = code or context.refusal_of(COORDINATED[kind], key)
    store = context.store
    any_node = store.cluster.imitation.any_node_serves
    node_id = context.node.node_id if any_node else store.coordinator_node(kind, key)
    node = None if code else store.cluster.find_address(node_id)
    if node is None:
        code = code or ErrorCode.COORDINATOR_NOT_AVAILABLE
        return Coordinator(
            key=key, error_code=code, error_message=code.description, node_id=-1, host="", port=-1
        )
    return Coordinator(key=key, node_id=node.node_id, host=node.host, port=node.port)
