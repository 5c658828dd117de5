"""SaslHandshake: choose the mechanism of a login."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext


# After version 0, a login would continue without Kafka's framing.
@handles(SaslHandshakeRequest, versions=(1, 1))
async def handle(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """Begin a login, or list the offered mechanisms."""
    session = context.session
    code = context.failure()
    if session is None:
        return SaslHandshakeResponse(code or ErrorCode.ILLEGAL_SASL_STATE)
    if not code and not session.choose(request.mechanism):
        code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
    return SaslHandshakeResponse(code, list(session.offered))
