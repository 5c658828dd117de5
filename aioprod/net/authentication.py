"""The SASL login of a client: SaslHandshake, then SaslAuthenticate until it is complete.

The stack frames of an error contain no secrets: some tools print local variables in a traceback.
"""

from __future__ import annotations

import asyncio
import inspect
import secrets
from typing import cast

from aioprod.config.client import ClientConfig
from aioprod.config.security import READABLE_SECRETS
from aioprod.error_codes import ErrorCode
from aioprod.errors import AuthenticationError, KafkaError
from aioprod.foreign_text import reason_of
from aioprod.logs import Logger, get_logger
from aioprod.net.connection import Connection
from aioprod.net.kerberos import kerberos_login
from aioprod.oauth_token import OAuthToken, TokenProvider
from aioprod.protocol.framing import encode_request
from aioprod.protocol.message import Message
from aioprod.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from aioprod.protocol.messages.sasl_handshake import SaslHandshakeRequest
from aioprod.protocol.sasl.gssapi import GssapiClient
from aioprod.protocol.sasl.mechanism import ClientMechanism
from aioprod.protocol.sasl.oauthbearer import OAuthBearerClient
from aioprod.protocol.sasl.plain import PlainClient
from aioprod.protocol.sasl.scram import ScramClient
from aioprod.user_code import is_cancelled, surface

# From version 1 on, the client sends SaslAuthenticate requests; with version 0 (Kafka 0.10), it
# sends bytes without a header.
_HANDSHAKE_VERSION = 1

# Secrets and servers for which the warning has been logged.
_warned: set[tuple[str, str]] = set()

log: Logger = get_logger(__name__)


async def new_mechanism(config: ClientConfig, host: str) -> ClientMechanism:
    """Prepare a login: request a token from the token provider, or a Kerberos ticket, if needed.

    Args:
        host: the host that the client connects to.

    Raises:
        AuthenticationError: if the token provider fails or exceeds ``request_timeout_ms``, or if
            the Kerberos server refuses a ticket.
        BrokerConnectionError: if no Kerberos server responds.
    """
    _warn_if_readable(config)
    if config.sasl_mechanism == GssapiClient.name:
        return await kerberos_login(config, host, config.request_timeout_ms)
    token = None
    if config.sasl_oauth_token_provider is not None:
        token = await _ask_token(config.sasl_oauth_token_provider, config.request_timeout_ms)
    try:
        return _mechanism(config, token)
    except Exception as error:
        fault = _safe_text(error)
    raise AuthenticationError(
        f"{'sasl_mechanism' if token is None else 'sasl_oauth_token_provider'}: {fault}"
    )


def _mechanism(config: ClientConfig, token: OAuthToken | None) -> ClientMechanism:
    if token is not None:
        return OAuthBearerClient(token.value, token.extensions, token.on_refused)
    name, username, password = config.sasl_mechanism, config.sasl_username, config.sasl_password
    assert name is not None and username is not None and password is not None
    if name == PlainClient.name:
        return PlainClient(username, password)
    nonce = secrets.token_urlsafe(24)
    return ScramClient(name, username, password, nonce, is_token=config.sasl_delegation_token)


def _warn_if_readable(config: ClientConfig) -> None:
    """Log a warning for a secret that is sent unencrypted, once for each cluster."""
    secret = READABLE_SECRETS.get(config.sasl_mechanism or "")
    servers = ",".join(config.bootstrap_servers)
    if secret is None or config.uses_tls or (secret, servers) in _warned:
        return
    _warned.add((secret, servers))
    log.warning(
        "the %s is sent to %s unencrypted (sasl_mechanism=%r, security_protocol=%r): "
        "use security_protocol='SASL_SSL'",
        secret, servers, config.sasl_mechanism, config.security_protocol,
    )  # fmt: skip


def _safe_text(error: Exception) -> str:
    """Return a text for an error. The text of other libraries' errors may contain secrets."""
    if isinstance(error, KafkaError):
        return str(error)
    return f"credentials of a wrong type or encoding ({type(error).__name__})"


async def _ask_token(provider: TokenProvider, limit_ms: int) -> OAuthToken:
    try:
        async with asyncio.timeout(limit_ms / 1000):
            answer = await _call(provider)
    except TimeoutError as error:
        raise AuthenticationError(
            f"sasl_oauth_token_provider returned no token within request_timeout_ms={limit_ms}"
        ) from error
    except BaseException as error:
        if _is_end_of_caller(error):
            raise
        surface(error)
        # The text of other errors may contain secrets, so such an error is only the cause.
        reason = f": {error}" if isinstance(error, KafkaError) else ""
        raise AuthenticationError(
            f"sasl_oauth_token_provider failed with {type(error).__name__}{reason}"
        ) from error
    if isinstance(answer, OAuthToken):
        return answer
    raise AuthenticationError(f"sasl_oauth_token_provider must {answer}")


async def _call(provider: TokenProvider) -> OAuthToken | str:
    """Return the token, or if the provider is faulty, what it must do instead.

    Raises no error for that: its frame would contain the provider's result, perhaps a token as
    text.
    """
    answer = provider()
    if not inspect.isawaitable(answer):
        return "be an async function"
    token = await answer
    if isinstance(token, OAuthToken):
        return token
    return f"return an OAuthToken, not {type(token).__name__}"


def _is_end_of_caller(error: BaseException) -> bool:
    """Return True if the caller was cancelled or its coroutine was closed."""
    if isinstance(error, asyncio.CancelledError):
        return is_cancelled()
    # Python raises GeneratorExit in the coroutine's frame, the provider's code in a frame below it.
    raised = error.__traceback__
    return isinstance(error, GeneratorExit) and raised is not None and raised.tb_next is None


async def authenticate(connection: Connection, mechanism: ClientMechanism, timeout_ms: int) -> int:
    """Log in. Works even while other requests are deferred (:meth:`Connection.defer`).

    Args:
        timeout_ms: limit on the wait for each reply, in milliseconds.

    Returns:
        The lifetime of the session in milliseconds; 0 if it does not expire.

    Raises:
        AuthenticationError: if the broker refuses the login, or can't be authenticated.
        BrokerConnectionError, RequestTimedOutError: if the connection is closed.
        UnsupportedVersionError: if the broker is older than Kafka 1.0.
    """
    connection.pick_version(SaslAuthenticateRequest)
    await _choose(connection, mechanism, timeout_ms)
    pending = _send_response(connection, mechanism, None, timeout_ms)
    lifetime_ms = 0
    while pending is not None:
        reply = cast("SaslAuthenticateResponse", await pending)
        if reply.error_code:
            _report_refused(mechanism)
            raise _refusal(
                connection,
                mechanism,
                mechanism.reason(reply.error_message) or ErrorCode.of(reply.error_code).description,
            )
        lifetime_ms = reply.session_lifetime_ms
        pending = _send_response(connection, mechanism, reply.auth_bytes, timeout_ms)
    return lifetime_ms


def _report_refused(mechanism: ClientMechanism) -> None:
    """Call ``on_refused`` of the token, whose provider then discards it."""
    if mechanism.on_refused is None:
        return
    try:
        mechanism.on_refused()
    except BaseException as error:
        surface(error)
        # The text of the error may contain secrets.
        log.error("on_refused of the OAuthToken failed with %s", type(error).__name__)


def _send_response(
    connection: Connection, mechanism: ClientMechanism, challenge: bytes | None, timeout_ms: int
) -> asyncio.Future[Message] | None:
    """Send the first message or the response to a challenge; return None if the login is complete.

    Raises:
        AuthenticationError: if the mechanism raises any error.
    """
    try:
        return _send_next(connection, mechanism, challenge, timeout_ms)
    except Exception as error:
        fault = _safe_text(error)
    raise _refusal(connection, mechanism, fault)


def _send_next(
    connection: Connection, mechanism: ClientMechanism, challenge: bytes | None, timeout_ms: int
) -> asyncio.Future[Message] | None:
    message = mechanism.first_message() if challenge is None else mechanism.answer(challenge)
    return None if message is None else _send(connection, message, timeout_ms)


def _send(connection: Connection, message: bytes, timeout_ms: int) -> asyncio.Future[Message]:
    # Not Connection.request: the traceback of a timeout would contain its frame, with the message.
    version = connection.pick_version(SaslAuthenticateRequest)
    correlation_id = connection.next_correlation_id()
    frame = encode_request(
        SaslAuthenticateRequest(message), version, correlation_id, connection.client_id
    )
    return connection.send(
        [frame], SaslAuthenticateRequest, version, correlation_id, timeout_ms, at_once=True
    )


def _refusal(
    connection: Connection, mechanism: ClientMechanism, reason: str
) -> AuthenticationError:
    return AuthenticationError(f"{connection.address}: {mechanism.name}: {reason}")


async def _choose(connection: Connection, mechanism: ClientMechanism, timeout_ms: int) -> None:
    request = SaslHandshakeRequest(mechanism=mechanism.name)
    connection.pick_version(SaslHandshakeRequest)
    reply = await connection.request(
        request, version=_HANDSHAKE_VERSION, timeout_ms=timeout_ms, at_once=True
    )
    code = ErrorCode.of(reply.error_code)
    if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = reason_of(", ".join(reply.mechanisms)) or "none"
        raise AuthenticationError(
            f"{connection.address}: the broker does not offer "
            f"sasl_mechanism={mechanism.name!r} on this port, but {offered}"
        )
    if code == ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationError(
            f"{connection.address}: this port does not use SASL; check security_protocol"
        )
    if code:
        raise AuthenticationError(
            f"{connection.address}: SaslHandshake: {code.name}: {code.description}"
        )
