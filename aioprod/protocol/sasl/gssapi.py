"""SASL/GSSAPI (RFC 4752, KIP-12): Kerberos. A security context of the Kerberos library makes and
reads the messages; both sides are authenticated, and neither sends a password.

Kafka uses GSSAPI for the login only: the rest of the connection is not signed or encrypted by it.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from aioprod.errors import AuthenticationError
from aioprod.protocol.sasl.mechanism import ClientMechanism

_NO_LAYER = 1
_OFFER_BYTES = 4
# No security layer, no limit on messages, and the user that the ticket names.
_CHOICE = bytes([_NO_LAYER, 0, 0, 0])


class SecurityContext(Protocol):
    """A security context of GSSAPI that has made its first token. Its errors are
    AuthenticationErrors.
    """

    @property
    def complete(self) -> bool:
        """Whether both sides are authenticated."""

    def step(self, token: bytes) -> bytes:
        """Take the broker's token; return the next one, or nothing."""

    def wrap(self, message: bytes) -> bytes:
        """Sign a message."""

    def unwrap(self, message: bytes) -> bytes:
        """Check a signature; return the message."""


class _State(Enum):
    AUTHENTICATING = 1
    CHOOSING = 2
    COMPLETE = 3


class GssapiClient(ClientMechanism):
    """The client's side.

    Args:
        context: the security context with the broker; it needs no network any more.
        first_token: what it sends first.
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
            raise AuthenticationError("the broker has not proven who it is: its token is missing")
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
                f"the broker offers security layers in {len(offer)} bytes: must be {_OFFER_BYTES}"
            )
        if not offer[0] & _NO_LAYER:
            raise AuthenticationError(
                "the broker demands messages that are signed or encrypted by GSSAPI, which Kafka "
                "does not use; security_protocol='SASL_SSL' encrypts them"
            )
        choice = self._context.wrap(_CHOICE)
        self._state = _State.COMPLETE
        return choice
