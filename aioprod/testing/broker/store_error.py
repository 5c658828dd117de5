"""How the broker's parts refuse a request."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError


class StoreError(BrokerError):
    """A request that the broker refuses, with the code and the text of its answer."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(code, text)
        self.text = text
