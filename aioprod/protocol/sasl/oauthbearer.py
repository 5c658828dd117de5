"""SASL/OAUTHBEARER (RFC 7628, KIP-255) with extensions (KIP-342)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from aioprod.errors import AuthenticationError
from aioprod.protocol.sasl.mechanism import ClientMechanism, ServerMechanism

_SEPARATOR = "\x01"
_GIVE_UP = b"\x01"
_NAME = re.compile(r"[A-Za-z]+")
# Printable ASCII, space, tab and line ends, as in the RFC.
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_RESERVED = "auth"

TokenValidator = Callable[[str, Mapping[str, str]], str | None]
"""``(token, extensions) -> user``; None if the token is refused."""


class OAuthBearerClient(ClientMechanism):
    """Sends a token.

    Raises:
        AuthenticationError: if token or extensions are not strings, or contain invalid characters.
    """

    name = "OAUTHBEARER"

    def __init__(
        self,
        token: str,
        extensions: Mapping[str, str],
        on_refused: Callable[[], object] | None = None,
    ) -> None:
        # Both come from the application's code. Errors do not show the values, which may be the
        # token.
        if not isinstance(token, str):
            kind = type(token).__name__
            raise AuthenticationError(f"the OAuth token must be a string, not {kind}")
        if not _TOKEN.fullmatch(token):
            raise AuthenticationError(
                "the OAuth token is empty or contains characters other than visible ASCII"
            )
        if not isinstance(extensions, Mapping):
            kind = type(extensions).__name__
            raise AuthenticationError(f"OAuth extensions must be a mapping of strings, not {kind}")
        for name, value in extensions.items():
            if not isinstance(name, str) or name == _RESERVED or not _NAME.fullmatch(name):
                raise AuthenticationError(
                    "the name of an OAuth extension must consist of letters A to Z, "
                    f"and not {_RESERVED!r}"
                )
            if not isinstance(value, str):
                kind = type(value).__name__
                raise AuthenticationError(f"OAuth extension {name!r} must be a string, not {kind}")
            if not _VALUE.fullmatch(value):
                raise AuthenticationError(
                    f"OAuth extension {name!r}: its value is empty or contains characters other "
                    "than printable ASCII"
                )
        if on_refused is not None and not callable(on_refused):
            kind = type(on_refused).__name__
            raise AuthenticationError(
                f"on_refused of the OAuth token must be a function, not {kind}"
            )
        self.on_refused = on_refused
        self._token = token
        self._extensions = dict(extensions)
        self._refusal = ""

    def _secrets(self) -> tuple[str, ...]:
        return (self._token,)

    def first_message(self) -> bytes:
        pairs = [
            f"auth=Bearer {self._token}",
            *(f"{name}={value}" for name, value in self._extensions.items()),
        ]
        return ("n,," + _SEPARATOR + _SEPARATOR.join(pairs) + _SEPARATOR * 2).encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if self._refusal:
            raise AuthenticationError(self._refusal)
        if not challenge:
            return None
        # A refusal is sent as a challenge. The broker sends the error after this response.
        self._refusal = self.reason(challenge.decode(errors="replace")) or "the token is refused"
        return _GIVE_UP


class OAuthBearerServer(ServerMechanism):
    """Gets the user of a token from a validator."""

    user: str | None

    name = "OAUTHBEARER"

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._refused = False

    def respond(self, message: bytes) -> bytes:
        if self._refused:
            raise AuthenticationError('{"status":"invalid_token"}')
        token, extensions = _parse(message)
        self.user = self._validator(token, extensions)
        if self.user is not None:
            return b""
        self._refused = True
        return b'{"status":"invalid_token"}'


def _parse(message: bytes) -> tuple[str, dict[str, str]]:
    header, *pairs = message.decode("ascii", errors="replace").split(_SEPARATOR)
    if not re.fullmatch(r"n,(a=[^,]*)?,", header) or len(pairs) < 3 or pairs[-2:] != ["", ""]:
        raise AuthenticationError("Invalid OAUTHBEARER client first message")
    found = dict(pair.split("=", 1) for pair in pairs[:-2] if "=" in pair)
    scheme, _, token = found.pop(_RESERVED, "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise AuthenticationError("Invalid OAUTHBEARER client first message: no bearer token")
    return token, found
