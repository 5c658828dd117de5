"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677, KIP-84). Both sides prove that they know the
password, and neither sends it.

As in Kafka, names and passwords are encoded as UTF-8 without SASLprep, and there is no channel
binding.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field

from aioprod.errors import AuthenticationError
from aioprod.protocol.sasl.mechanism import ClientMechanism, ServerMechanism

MIN_ITERATIONS = 4_096
"""Kafka's lower limit. With fewer iterations, a recorded proof would be easy to break."""
MAX_ITERATIONS = 100_000
"""Kafka allows 16,384. Larger numbers (60 ms of CPU) would block the event loop for too long."""

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_NO_BINDING = b"n,,"
_FIRST = re.compile(
    r"(?:m=[^,]*,)?r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[0-9]{1,10})(?:,.*)?",
    re.DOTALL,
)
_CLIENT_FIRST = re.compile(
    r"n,(?:a=[^,]*)?,(?P<bare>n=(?P<user>[^,]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,(?P<more>.*))?)",
    re.DOTALL,
)
_TOKEN = "tokenauth=true"
_CLIENT_FINAL = re.compile(
    r"(?P<unproved>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[^,]+)(?:,.*)?),p=(?P<proof>[A-Za-z0-9+/=]+)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The data that a broker stores instead of a password. A client can't log in with it."""

    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def of(
        cls, mechanism: str, password: str, salt: bytes, iterations: int = MIN_ITERATIONS
    ) -> ScramCredential:
        """Derive the credential from a password."""
        salted = hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)
        return cls.salted(mechanism, salted, salt, iterations)

    @classmethod
    def salted(cls, mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
        """Derive the credential from the hash of a password (KIP-554)."""
        name = _HASHES[mechanism]
        client_key = hmac.digest(salted, b"Client Key", name)
        return cls(
            salt,
            iterations,
            hashlib.new(name, client_key).digest(),
            hmac.digest(salted, b"Server Key", name),
        )


class ScramClient(ClientMechanism):
    """The client's side.

    Args:
        mechanism: ``"SCRAM-SHA-256"`` or ``"SCRAM-SHA-512"``.
        nonce: random visible ASCII characters other than a comma; for one use.
        is_token: True if user name and password are the id and the HMAC of a delegation token
            (KIP-48).
    """

    def __init__(
        self, mechanism: str, username: str, password: str, nonce: str, *, is_token: bool = False
    ) -> None:
        self.name = mechanism
        self._hash = _HASHES[mechanism]
        self._password = password
        self._nonce = nonce
        extension = f",{_TOKEN}" if is_token else ""
        self._bare = f"n={_escape(username)},r={nonce}{extension}".encode()
        self._server_signature: bytes | None = None

    def first_message(self) -> bytes:
        return _NO_BINDING + self._bare

    def _secrets(self) -> tuple[str, ...]:
        return (self._password,)

    def answer(self, challenge: bytes) -> bytes | None:
        if self._server_signature is None:
            return self._prove(challenge)
        self._check_server(challenge, self._server_signature)
        return None

    def _prove(self, challenge: bytes) -> bytes:
        found = _FIRST.fullmatch(_text(challenge))
        if found is None:
            raise self._error(f"the broker's first message is not valid{self._named(challenge)}")
        if not found["nonce"].startswith(self._nonce) or len(found["nonce"]) == len(self._nonce):
            raise self._error("the broker's nonce does not begin with the client's")
        iterations = int(found["iterations"])
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise self._error(
                f"the broker requires {iterations} iterations: must be {MIN_ITERATIONS} to "
                f"{MAX_ITERATIONS}"
            )
        unproved = b"c=%b,r=%b" % (b64encode(_NO_BINDING), found["nonce"].encode())
        signed = b",".join((self._bare, challenge, unproved))
        salted = hashlib.pbkdf2_hmac(
            self._hash, self._password.encode(), self._decode(found["salt"]), iterations
        )
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), signed, self._hash)
        self._server_signature = hmac.digest(
            hmac.digest(salted, b"Server Key", self._hash), signed, self._hash
        )
        return b"%b,p=%b" % (unproved, b64encode(_exclusive_or(client_key, signature)))

    def _check_server(self, challenge: bytes, expected: bytes) -> None:
        kind, _, value = _text(challenge).partition(",")[0].partition("=")
        if kind != "v":
            raise self._error(f"the broker's last message is not valid{self._named(challenge)}")
        if not hmac.compare_digest(self._decode(value), expected):
            raise self._error("the broker does not know the password: its signature is wrong")

    def _decode(self, text: str) -> bytes:
        decoded = _from_base64(text)
        if decoded is None:
            raise self._error("the broker's message is not in base64")
        return decoded

    def _named(self, challenge: bytes) -> str:
        """Return the broker's error in parentheses, if the message contains one (``e=``)."""
        text = _text(challenge)
        said = text[2:].partition(",")[0] if text.startswith("e=") else ""
        return f" ({self.reason(said)})" if said else ""

    def _error(self, text: str) -> AuthenticationError:
        return AuthenticationError(f"{self.name}: {text}")


class ScramServer(ServerMechanism):
    """The broker's side, for the embedded broker.

    Args:
        find_credential: returns a user's credential for this mechanism, or None for an unknown
            user.
        nonce: random characters to append to the client's nonce.
    """

    user: str

    def __init__(
        self, mechanism: str, find_credential: Callable[[str], ScramCredential | None], nonce: str
    ) -> None:
        self.name = mechanism
        self._hash = _HASHES[mechanism]
        self._find_credential = find_credential
        self._credential: ScramCredential | None = None
        self._nonce = nonce
        self._claimed = ""
        self._begun = b""  # the messages of both sides so far

    def respond(self, message: bytes) -> bytes:
        return (
            self._challenge(message)
            if self._credential is None
            else self._check_client(message, self._credential)
        )

    def _challenge(self, message: bytes) -> bytes:
        found = _CLIENT_FIRST.fullmatch(_text(message))
        if found is None:
            raise AuthenticationError("Invalid SCRAM client first message format")
        self._claimed = _unescape(found["user"])
        self._credential = credential = self._find_credential(self._claimed)
        if credential is None or _TOKEN in (found["more"] or "").split(","):
            raise self._refusal()  # the embedded broker has no delegation tokens
        self._nonce = found["nonce"] + self._nonce
        salt = b64encode(credential.salt).decode()
        first = f"r={self._nonce},s={salt},i={credential.iterations}".encode()
        self._begun = b"%b,%b" % (found["bare"].encode(), first)
        return first

    def _check_client(self, message: bytes, credential: ScramCredential) -> bytes:
        found = _CLIENT_FINAL.fullmatch(_text(message))
        proof = None if found is None else _from_base64(found["proof"])
        if (
            found is None
            or proof is None
            or _from_base64(found["binding"]) != _NO_BINDING
            or found["nonce"] != self._nonce
        ):
            raise AuthenticationError("Invalid SCRAM client final message format")
        signed = b"%b,%b" % (self._begun, found["unproved"].encode())
        signature = hmac.digest(credential.stored_key, signed, self._hash)
        if len(proof) != len(signature):
            raise self._refusal()
        client_key = _exclusive_or(proof, signature)
        if not hmac.compare_digest(
            hashlib.new(self._hash, client_key).digest(), credential.stored_key
        ):
            raise self._refusal()
        self.user = self._claimed
        return b"v=" + b64encode(hmac.digest(credential.server_key, signed, self._hash))

    def _refusal(self) -> AuthenticationError:
        return AuthenticationError(
            "Authentication failed during authentication due to invalid credentials with "
            f"SASL mechanism {self.name}"
        )


def _escape(username: str) -> str:
    return username.replace("=", "=3D").replace(",", "=2C")


def _unescape(username: str) -> str:
    return username.replace("=2C", ",").replace("=3D", "=")


def _exclusive_or(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _from_base64(text: str) -> bytes | None:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return None


def _text(message: bytes) -> str:
    return message.decode(errors="replace")
