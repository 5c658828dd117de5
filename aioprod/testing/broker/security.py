"""TLS and SASL of the embedded broker: which users can log in, and which requests a connection may
send before and after authentication.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from aioprod.config.settings.security import PASSWORD_MECHANISMS
from aioprod.errors import AuthenticationError, ConfigError, ProtocolError
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.request_headers import decode_request_header
from aioprod.protocol.sasl.mechanism import ServerMechanism
from aioprod.protocol.sasl.oauthbearer import OAuthBearerServer, TokenValidator
from aioprod.protocol.sasl.plain import PlainServer
from aioprod.protocol.sasl.scram import ScramCredential, ScramServer
from aioprod.public_module import set_module
from aioprod.testing.broker.access.client_access import Peer
from aioprod.testing.broker.access.scram_users import ScramUsers
from aioprod.testing.broker.actions import Answer, DropConnection
from aioprod.testing.broker.connection import Connection, ConnectionHandler

_SALT_BYTES = 16
_MECHANISMS = (*PASSWORD_MECHANISMS, OAuthBearerServer.name)


@set_module("aioprod.testing")
@dataclass(slots=True)
class BrokerSecurity:
    """The security settings of the embedded broker. Changes while the broker is running apply to
    the next login.

    Attributes:
        ssl_context: a server context with a certificate; the ports then use TLS. If its
            ``verify_mode`` is CERT_REQUIRED, clients need certificates.
        users: the passwords by user name, for PLAIN and SCRAM. Clients that are authorized to alter
            the cluster can add SCRAM users (KIP-554), and replace these users for SCRAM.
        token_validator: ``(token, extensions) -> user, or None to refuse``, for OAUTHBEARER.
        mechanisms: the SASL mechanisms to offer; None for all that ``users`` and
            ``token_validator`` allow. Without mechanisms, clients do not log in.
        session_lifetime_ms: the time in milliseconds after which clients must log in again (broker
            setting connections.max.reauth.ms, KIP-368); 0 for no limit.

    Raises:
        ConfigError: if a mechanism is unknown.
    """

    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    token_validator: TokenValidator | None = field(default=None, repr=False)
    mechanisms: tuple[str, ...] | None = None
    session_lifetime_ms: int = 0

    def __post_init__(self) -> None:
        unknown = [name for name in self.mechanisms or () if name not in _MECHANISMS]
        if unknown:
            raise ConfigError(
                f"mechanisms={self.mechanisms!r}: must be among {', '.join(_MECHANISMS)}"
            )

    @property
    def offered(self) -> tuple[str, ...]:
        """The SASL mechanisms that clients may use."""
        if self.mechanisms is not None:
            return self.mechanisms
        return (PASSWORD_MECHANISMS if self.users else ()) + (
            ("OAUTHBEARER",) if self.token_validator is not None else ()
        )

    def new_mechanism(self, name: str, created: ScramUsers) -> ServerMechanism:
        """Create the broker's side of one login. ``created`` are the users that requests have
        added.
        """
        if name == "PLAIN":
            return PlainServer(self.users)
        if name == "OAUTHBEARER":
            return OAuthBearerServer(self.token_validator or (lambda token, extensions: None))
        return ScramServer(
            name,
            lambda user: created.find(name, user) or self._credential(name, user),
            secrets.token_urlsafe(24),
        )

    def _credential(self, mechanism: str, user: str) -> ScramCredential | None:
        password = self.users.get(user)
        return (
            None
            if password is None
            else ScramCredential.of(mechanism, password, secrets.token_bytes(_SALT_BYTES))
        )


class ConnectionLogin:
    """The login of one connection.

    Attributes:
        user: the user that is logged in, or None.
        logins: the number of times that this connection has logged in.
        refused: True if a login failed, which ends the connection.
    """

    def __init__(self, security: BrokerSecurity, scram_users: ScramUsers) -> None:
        self.user: str | None = None
        self.logins: int = 0
        self.refused: bool = False
        self._security = security
        self._scram_users = scram_users
        self._mechanism: ServerMechanism | None = None  # of the current login
        self._used_mechanism = ""
        self._expires_at: float | None = None

    def admit(self, api_key: int) -> None:
        """Raise the error that ends the connection if this request is not allowed."""
        if self._mechanism is not None:
            allowed = api_key == ApiKey.SASL_AUTHENTICATE
        elif self.user is None:
            allowed = api_key in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE)
        else:
            if (
                api_key != ApiKey.SASL_HANDSHAKE
                and self._expires_at is not None
                and asyncio.get_running_loop().time() >= self._expires_at
            ):
                raise DropConnection
            allowed = True
        if self.refused or not allowed:
            raise ProtocolError(
                f"a request with API key {api_key} came "
                f"{'during' if self._mechanism else 'before'} authentication"
            )

    def choose(self, mechanism: str) -> bool:
        """Begin a login, the first or a later one (KIP-368). Return False if the mechanism is not
        offered.
        """
        if mechanism not in self._security.offered or self._used_mechanism not in ("", mechanism):
            self.refused = True
            return False
        self._mechanism = self._security.new_mechanism(mechanism, self._scram_users)
        return True

    @property
    def offered(self) -> tuple[str, ...]:
        """The mechanisms that a client can choose from."""
        return self._security.offered

    @property
    def choosing(self) -> bool:
        """True if a mechanism is chosen and the login is not complete."""
        return self._mechanism is not None

    def respond(self, message: bytes) -> tuple[bytes, int]:
        """Return the next message of the login, and the session's lifetime in milliseconds when the
        login is complete.

        Raises:
            AuthenticationError: if the login is refused; the text is for the client.
        """
        mechanism = self._mechanism
        assert mechanism is not None
        try:
            answer = mechanism.respond(message)
            if mechanism.user is None:
                return answer, 0
            if self.user not in (None, mechanism.user):
                raise AuthenticationError(
                    "Cannot change principals during re-authentication from "
                    f"User:{self.user} to User:{mechanism.user}"
                )
        except AuthenticationError:
            self.refused = True
            raise
        self.user, self._used_mechanism, self._mechanism = mechanism.user, mechanism.name, None
        self.logins += 1
        lifetime_ms = self._security.session_lifetime_ms
        self._expires_at = (
            asyncio.get_running_loop().time() + lifetime_ms / 1000 if lifetime_ms else None
        )
        return answer, lifetime_ms


class LoginGuard(ConnectionHandler):
    """Passes only those requests to the node that the connection's session allows."""

    def __init__(
        self,
        node: ConnectionHandler,
        answer: Callable[[bytes, asyncio.Future[None], Peer, ConnectionLogin], Awaitable[Answer]],
        session: ConnectionLogin,
    ) -> None:
        self._node = node
        self._answer = answer
        self._session = session
        self._connection: Connection | None = None

    def opened(self, connection: Connection) -> None:
        """Pass the call to the node."""
        self._connection = connection
        self._node.opened(connection)

    def closed(self, connection: Connection) -> None:
        """Pass the call to the node."""
        self._node.closed(connection)

    async def answer(self, frame: bytes, disconnected: asyncio.Future[None], peer: Peer) -> Answer:
        """Handle a request if the session allows it."""
        self._session.admit(decode_request_header(frame).api_key)
        answer = await self._answer(frame, disconnected, peer, self._session)
        if self._session.refused and self._connection is not None:
            self._connection.finish()
        return answer
