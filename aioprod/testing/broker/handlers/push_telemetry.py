"""PushTelemetry (KIP-714): receives metrics from a client."""

from __future__ import annotations

from aioprod.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext


@handles(PushTelemetryRequest)
async def handle(request: PushTelemetryRequest, context: RequestContext) -> PushTelemetryResponse:
    """Validate and store the metrics."""
    receiver = context.store.telemetry
    if not receiver.is_announced:
        raise context.drop_connection()
    code = context.failure() or receiver.push(request, context.client_id, context.node.node_id)
    return PushTelemetryResponse(error_code=code)
