"""SASL/GSSAPI (RFC 4752, KIP-12): Kerberos. A security context of the Kerberos library creates and
verifies the messages. Both sides are authenticated, and neither sends a password.

Kafka uses GSSAPI for authentication only; it does not sign or encrypt later messages.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from aioprod.errors import AuthenticationError
from aioprod.protocol.sasl.mechanism import ClientMechanism

_NO_LAYER = 1
_OFFER_BYTES = 4
# No security layer, no limit on messages, and the principal of the ticket as the user.
_CHOICE = bytes([_NO_LAYER, 0, 0, 0])


class SecurityContext(Protocol):
    """A GSSAPI security context that has created its first token. Its methods raise
    AuthenticationError.
    """

    @property
    def complete(self) -> bool:
        """True if both sides are authenticated."""

    def step(self, token: bytes) -> bytes:
        """Process the broker's token. Return the next token, which may be empty."""

    def wrap(self, message: bytes) -> bytes:
        """Sign a message."""

    def unwrap(self, message: bytes) -> bytes:
        """Verify the signature of a message, and return the message."""


class _State(Enum):
    AUTHENTICATING = 1
    CHOOSING = 2
    COMPLETE = 3


class GssapiClient(ClientMechanism):
    """The client's side.

    Args:
        context: the security context with the broker, which needs no further network access.
        first_token: the first message.
    """

    name = "GSSAPI"

    def __init__(self, context: SecurityContext, first_token: bytes) -> None:
        self._context = context
        self._first_token = first_token
        self._state = _State.CHOOSING if context.complete else _State.AUTHENTICATING

    def first_message(self) -> bytes:
        return self._first_token

    def answer(self, challenge: bytes) -> bytes | None:
        if self._state is _State.AUTHENTICATING:
            return self._authenticate(challenge)
        if self._state is _State.CHOOSING:
            return self._choose_layer(challenge)
        return None

    def _authenticate(self, challenge: bytes) -> bytes:
        if not challenge:
            raise AuthenticationError("the broker is not authenticated: its token is missing")
        token = self._context.step(challenge)
        if self._context.complete:
            self._state = _State.CHOOSING
        elif not token:
            raise AuthenticationError("the broker's token did not complete the exchange")
        return token

    def _choose_layer(self, challenge: bytes) -> bytes:
        offer = self._context.unwrap(challenge)
        if len(offer) != _OFFER_BYTES:
            raise AuthenticationError(
                f"the broker offers security layers with {len(offer)} bytes: must be {_OFFER_BYTES}"
            )
        if not offer[0] & _NO_LAYER:
            raise AuthenticationError(
                "the broker requires messages signed or encrypted by GSSAPI, which Kafka "
                "does not support; set security_protocol='SASL_SSL' to encrypt them"
            )
        choice = self._context.wrap(_CHOICE)
        self._state = _State.COMPLETE
        return choice
