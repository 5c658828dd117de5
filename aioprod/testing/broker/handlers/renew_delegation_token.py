"""RenewDelegationToken (KIP-48): refused."""

from __future__ import annotations

from aioprod.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from aioprod.testing.broker.delegation_tokens import Refusal
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext


@handles(RenewDelegationTokenRequest)
async def handle(
    request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    """Refuse the request."""
    refusal = Refusal.of(context)
    return RenewDelegationTokenResponse(refusal.code, refusal.time_ms)
