"""GetTelemetrySubscriptions (KIP-714): the metrics that a client should push."""

from __future__ import annotations

from aioprod.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext


@handles(GetTelemetrySubscriptionsRequest)
async def handle(
    request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    """Return the subscription, and an id for a client that has none."""
    receiver = context.store.telemetry
    if not receiver.is_announced:
        raise context.drop_connection()
    if code := context.failure():
        return GetTelemetrySubscriptionsResponse(error_code=code)
    client_id, code = receiver.get(request.client_instance_id)
    if code:
        return GetTelemetrySubscriptionsResponse(error_code=code)
    asked = receiver.subscription
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=client_id,
        subscription_id=asked.id_for(client_id),
        accepted_compression_types=asked.codecs,
        push_interval_ms=asked.push_interval_ms,
        telemetry_max_bytes=asked.max_bytes,
        delta_temporality=asked.delta,
        requested_metrics=list(asked.metrics),
    )
