"""SASL/PLAIN (RFC 4616). The password is sent, so the connection should use TLS."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from aioprod.errors import AuthenticationError
from aioprod.protocol.sasl.mechanism import ClientMechanism, ServerMechanism


class PlainClient(ClientMechanism):
    """Sends user name and password."""

    name = "PLAIN"

    def __init__(self, username: str, password: str) -> None:
        self._username = username
        self._password = password

    def _secrets(self) -> tuple[str, ...]:
        return (self._password,)

    def first_message(self) -> bytes:
        return b"\0%b\0%b" % (self._username.encode(), self._password.encode())

    def answer(self, challenge: bytes) -> bytes | None:
        return None


class PlainServer(ServerMechanism):
    """Checks the password of a user."""

    user: str

    name = "PLAIN"

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users

    def respond(self, message: bytes) -> bytes:
        parts = message.split(b"\0")
        if len(parts) != 3:
            raise AuthenticationError(
                f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            )
        authorization_id, username, password = (part.decode(errors="replace") for part in parts)
        expected = self._users.get(username)
        if (
            not username
            or expected is None
            or not hmac.compare_digest(expected.encode(), password.encode())
        ):
            raise AuthenticationError("Authentication failed: Invalid username or password")
        if authorization_id not in ("", username):
            raise AuthenticationError(
                "Authentication failed: Client requested an authorization id that is "
                "different from username"
            )
        self.user = username
        return b""
