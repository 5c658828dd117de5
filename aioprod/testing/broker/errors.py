"""How the broker's parts refuse a request."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError


class RequestError(BrokerError):
    """A request that the broker refuses, with the code and the text of its answer."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(code, text)
        self.text = text


def check_timeout(timeout_ms: int) -> None:
    """Raise RequestError (REQUEST_TIMED_OUT) where a client gives the controller no time at all;
    whatever else it asks for is done at once.
    """
    if timeout_ms <= 0:
        raise RequestError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"timeout_ms={timeout_ms}: the time is over before anything is done",
        )
