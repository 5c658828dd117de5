"""The error by which the broker refuses a request."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError


class RequestError(BrokerError):
    """A request is refused; has the error code and the message of the response."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(code, text)
        self.text = text


def check_timeout(timeout_ms: int) -> None:
    """Raise RequestError (REQUEST_TIMED_OUT) if a client gives the controller no time. With any
    time at all, the broker does the work at once.
    """
    if timeout_ms <= 0:
        raise RequestError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"timeout_ms={timeout_ms}: must be at least 1",
        )
