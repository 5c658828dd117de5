"""The errors of token providers."""

from __future__ import annotations

from aioprod.errors import AuthenticationError

_PASSING = frozenset((408, 425, 429))


class TokenRequestError(AuthenticationError):
    """The identity provider gave no token. The text has no secrets.

    Attributes:
        status: status code of the HTTP response; None if there was no response.
        error: error code of RFC 6749, such as ``invalid_client``; None if the response has none.
    """

    def __init__(self, text: str, status: int | None = None, error: str | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.error = error

    @property
    def retriable(self) -> bool:
        """True if the same request may succeed later."""
        return self.status is None or self.status >= 500 or self.status in _PASSING
