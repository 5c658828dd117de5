"""DescribeDelegationToken (KIP-48): refused."""

from __future__ import annotations

from aioprod.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from aioprod.testing.broker.delegation_tokens import Refusal
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext


@handles(DescribeDelegationTokenRequest)
async def handle(
    request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    """Refuse the request."""
    return DescribeDelegationTokenResponse(Refusal.of(context).code)
