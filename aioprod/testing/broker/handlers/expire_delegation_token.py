"""ExpireDelegationToken (KIP-48): refused."""

from __future__ import annotations

from aioprod.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from aioprod.testing.broker.delegation_tokens import Refusal
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext


@handles(ExpireDelegationTokenRequest)
async def handle(
    request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    """Refuse the request."""
    refusal = Refusal.of(context)
    return ExpireDelegationTokenResponse(refusal.code, refusal.time_ms)
