"""SaslAuthenticate: one message of a login."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.errors import AuthenticationError
from aioprod.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext


@handles(SaslAuthenticateRequest)
async def handle(
    request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    """Continue the login. The last response contains the session's lifetime."""
    session = context.session
    code = context.failure()
    if code:
        if session is not None:
            session.refused = True
        return SaslAuthenticateResponse(code, code.description)
    if session is None or not session.choosing:
        return SaslAuthenticateResponse(
            ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate before SaslHandshake"
        )
    try:
        answer, lifetime_ms = session.respond(request.auth_bytes)
    except AuthenticationError as error:
        return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error))
    return SaslAuthenticateResponse(
        auth_bytes=answer, error_message=None, session_lifetime_ms=lifetime_ms
    )
