"""Tokens for SASL/OAUTHBEARER (KIP-255)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OAuthToken:
    """A token for SASL/OAUTHBEARER, as a token provider returns it (KIP-255).

    Attributes:
        value: the token, such as a JSON Web Token in its compact form.
        extensions: names and values to send with the token (KIP-342).
    """

    value: str = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)


TokenProvider = Callable[[], Awaitable[OAuthToken]]
"""An async function without arguments. Clients call it for each new connection, and before a
session expires.

An error that it raises becomes the cause of an AuthenticationError; so does CancelledError unless
the client cancels the call, because it closes or no longer needs the connection.
KeyboardInterrupt and SystemExit are also raised by the event loop.
"""
