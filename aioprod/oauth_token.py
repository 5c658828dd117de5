"""The token of SASL/OAUTHBEARER, and the function that returns it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias


class OAuthToken:
    """A token for SASL/OAUTHBEARER, as a token provider returns it (KIP-255). Its repr contains no
    secret.

    Attributes:
        value: the token, such as a JSON Web Token in its compact form.
        extensions: names and values to send with the token (KIP-342).
        on_refused: called if a broker refuses a login with the token, so that a provider that keeps
            tokens can get another one for the next login.
    """

    # Not a dataclass, which takes milliseconds of the import of each client.
    __slots__ = ("extensions", "on_refused", "value")

    def __init__(
        self,
        value: str,
        extensions: Mapping[str, str] | None = None,
        on_refused: Callable[[], object] | None = None,
    ) -> None:
        self.value: Final = value
        self.extensions: Final[Mapping[str, str]] = {} if extensions is None else extensions
        self.on_refused: Final = on_refused

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OAuthToken):
            return NotImplemented
        return (self.value, self.extensions) == (other.value, other.extensions)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "OAuthToken()"


TokenProvider: TypeAlias = Callable[[], Awaitable[OAuthToken]]
"""An async function without arguments. Clients call it for each new connection, and before a
session expires.

An error that it raises becomes the cause of an AuthenticationError; so does CancelledError unless
the client cancels the call, because it closes or no longer needs the connection.
KeyboardInterrupt and SystemExit are also raised by the event loop.
"""
