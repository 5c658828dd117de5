"""Refuses requests for delegation tokens, like a broker without ``delegation.token.secret.key``."""

from __future__ import annotations

from typing import NamedTuple

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.request_context import RequestContext


class Refusal(NamedTuple):
    """The reason why requests for delegation tokens are refused.

    Attributes:
        code: the error.
        user: the user that sent the request.
        time_ms: the timestamps in the response.
    """

    code: ErrorCode
    user: str
    time_ms: int

    @classmethod
    def of(cls, context: RequestContext) -> Refusal:
        """Return the refusal of a request."""
        if code := context.failure():
            return cls(code, "", -1)
        if context.session is None or context.session.user is None:  # only users may request tokens
            return cls(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "ANONYMOUS", -1)
        return cls(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, context.session.user, 0)
