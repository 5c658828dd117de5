"""CreateDelegationToken (KIP-48): refused."""

from __future__ import annotations

from aioprod.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from aioprod.testing.broker.delegation_tokens import Refusal
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext

_OWNER_FROM = 3


@handles(CreateDelegationTokenRequest)
async def handle(
    request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    """Refuse the request."""
    refusal = Refusal.of(context)
    asker = "User", refusal.user
    owner, requester = asker, ("", "")
    if context.api_version >= _OWNER_FROM:
        requester = asker
        if request.owner_principal_name:
            owner = request.owner_principal_type or "", request.owner_principal_name
    return CreateDelegationTokenResponse(
        error_code=refusal.code,
        principal_type=owner[0],
        principal_name=owner[1],
        token_requester_principal_type=requester[0],
        token_requester_principal_name=requester[1],
        issue_timestamp_ms=refusal.time_ms,
        expiry_timestamp_ms=refusal.time_ms,
        max_timestamp_ms=refusal.time_ms,
    )
