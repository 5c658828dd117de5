"""The error that refuses a request."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError


class RequestError(BrokerError):
    """Refuses a request, with the error code and the message of the response."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(code, text)
        self.text = text


def check_timeout(timeout_ms: int) -> None:
    """Raise RequestError (REQUEST_TIMED_OUT) if a request to the controller has no time left. With
    any positive timeout, the broker handles the request immediately.
    """
    if timeout_ms <= 0:
        raise RequestError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"timeout_ms={timeout_ms}: must be at least 1",
        )
