"""Requests to the token endpoint of an identity provider (RFC 6749)."""

from __future__ import annotations

import base64
import json
import math
import random
import ssl
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard
from urllib.parse import unquote_plus, urlencode

from aioprod.cluster.retry import RetryLimit, retry
from aioprod.config.redaction import HidesArguments
from aioprod.errors import ConfigError, KafkaError
from aioprod.foreign_text import reason_of
from aioprod.logs import Logger, get_logger
from aioprod.net.backoff import Backoff
from aioprod.net.http import (
    HttpFailure,
    HttpOptions,
    HttpRequest,
    HttpResponse,
    check_proxy,
    check_ssl_context,
    exchange,
    http_url,
    new_session,
)
from aioprod.oauth.cache import Token
from aioprod.oauth.errors import TokenRequestError
from aioprod.secret_forms import secret_forms

_MAX_RESPONSE_BYTES = 1024 * 1024
_MAX_TEXT = 200
_MAX_LIFETIME_S = 1e9  # 30 years
_MAX_TIME_S = 1e15
_MAX_DIGITS = 10
_REASONS = ("error", "error_description")
_SHORT_PART = 8  # of an assertion
_PUBLIC = ("grant_type", "scope", "audience", "resource")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

log: Logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Grant:
    """The parameters of a request and its header ``Authorization``. The repr shows neither."""

    form: Mapping[str, str] = field(repr=False)
    authorization: str | None = field(default=None, repr=False)

    def secrets(self) -> tuple[str, ...]:
        """Return the secrets to remove from errors: an identity provider may repeat them."""
        coded = (self.authorization or "").partition(" ")[2]
        # The header was made here: user name, colon, secret.
        password = base64.b64decode(coded).decode().partition(":")[2]
        hidden = [value for name, value in self.form.items() if name not in _PUBLIC]
        parts = [part for value in hidden for part in value.split(".") if len(part) > _SHORT_PART]
        return secret_forms(coded, password, unquote_plus(password), *hidden, *parts)


@dataclass(frozen=True, kw_only=True)
class TokenEndpoint(metaclass=HidesArguments):
    """Address and limits of an identity provider.

    Attributes:
        url: URL of the token endpoint: ``https``, or ``http`` for tests on the same machine.
        ssl_context: TLS context; None uses the system's trusted certificates.
        proxy: URL of an HTTP proxy; None uses ``HTTPS_PROXY`` and ``NO_PROXY`` of the environment.
            Errors do not show it, as it may contain a password.
        request_timeout_ms: limit on one request.
        timeout_ms: limit on all attempts together. Should be below ``request_timeout_ms`` of the
            Kafka client, whose login fails after that time.
        retry_backoff_ms: the first pause between attempts.
        retry_backoff_max_ms: the longest pause.

    Raises:
        ConfigError: if a value is invalid.
    """

    url: str
    ssl_context: ssl.SSLContext | None = None
    proxy: str | None = field(default=None, repr=False)
    request_timeout_ms: float = 10_000
    timeout_ms: float = 20_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000

    def __post_init__(self) -> None:
        parts = http_url(self.url)
        if parts is None:
            raise ConfigError(
                f"token_endpoint_url={self.url!r}: must begin with https:// and name a host"
            )
        if parts.username is not None:
            raise ConfigError("token_endpoint_url: must not contain a user name or password")
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            log.warning(
                "the client's secret and tokens are sent to %s unencrypted: use https", self.url
            )
        check_ssl_context(self.ssl_context)
        check_proxy(self.proxy)
        for name in ("request_timeout_ms", "timeout_ms", "retry_backoff_ms"):
            value = getattr(self, name)
            if not _is_number(value) or not 0 < value < math.inf:
                raise ConfigError(f"{name}={value!r}: must be a finite number above 0")

    async def request(self, grant: Grant) -> Token:
        """Request a token, and retry after temporary failures.

        Raises:
            TokenRequestError: if the identity provider refuses the request or can't be reached.
            KafkaTimeoutError: if it does not respond within ``timeout_ms``.
        """
        backoff = Backoff(self.retry_backoff_ms, self.retry_backoff_max_ms, random.Random())

        async def attempt() -> Token:
            return await self._attempt(grant)

        return await retry(
            attempt,
            backoff.seconds,
            is_retriable=_may_pass,
            limit=RetryLimit(self.timeout_ms, f"a token of {self.url}", "timeout_ms"),
        )

    async def _attempt(self, grant: Grant) -> Token:
        headers = {
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        if grant.authorization is not None:
            headers["Authorization"] = grant.authorization
        request = HttpRequest(
            "POST", self.url, headers, urlencode(grant.form).encode(), grant.secrets()
        )
        try:
            # A session for each request: tokens last for minutes, so a connection is not worth
            # keeping.
            async with new_session() as session:
                outcome = await exchange(session, request, self._options())
            refusal = _refusal(outcome, request.secrets)
        finally:
            del headers, request
        what = f"token endpoint {self.url}:"
        if refusal is not None:
            del outcome  # its content may contain the secret
            raise TokenRequestError(f"{what} {refusal[0]}", *refusal[1:])
        assert isinstance(outcome, HttpResponse)
        return _token(what, outcome)

    def _options(self) -> HttpOptions:
        return HttpOptions(
            ssl_context=self.ssl_context,
            proxy=self.proxy,
            timeout_ms=self.request_timeout_ms,
            max_bytes=_MAX_RESPONSE_BYTES,
        )


def basic_authorization(client_id: str, client_secret: str) -> str:
    """Return the header of HTTP's basic authentication."""
    return f"Basic {base64.b64encode(f'{client_id}:{client_secret}'.encode()).decode()}"


def lifetime_of(value: str) -> float | None:
    """Return the seconds for which a JSON Web Token is valid; None if it has no such claim."""
    claims = _claims(value)
    expires, issued = claims.get("exp"), claims.get("iat")
    if not _is_number(expires) or not -_MAX_TIME_S < expires < _MAX_TIME_S:
        return None  # a larger one can't be added to a time
    if not _is_number(issued) or not -_MAX_TIME_S < issued < _MAX_TIME_S:
        issued = time.time()  # less exact: the clocks may differ
    return _lifetime(expires - issued)


def _claims(value: str) -> Mapping[str, Any]:
    parts = value.split(".")
    if len(parts) != 3:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _lifetime(seconds: object) -> float | None:
    """Return a number of seconds; None if it can't be added to a time."""
    return float(seconds) if _is_number(seconds) and abs(seconds) < _MAX_LIFETIME_S else None


def _answer(content: bytes) -> Mapping[str, Any]:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _refusal(
    outcome: HttpResponse | HttpFailure, secrets: Iterable[str]
) -> tuple[str, int | None, str | None] | None:
    """Return text, status and error code of a refusal; None if the response may have a token."""
    if isinstance(outcome, HttpFailure):
        return outcome.text, outcome.status, None
    if outcome.status == 200:
        return None
    given = _answer(outcome.content[:_MAX_RESPONSE_BYTES])
    said = [reason_of(given.get(name), secrets, _MAX_TEXT) for name in _REASONS]
    reason = " ".join(filter(None, said)) or outcome.reason or "no reason given"
    return f"{outcome.status} {reason}", outcome.status, said[0] or None


def _token(what: str, response: HttpResponse) -> Token:
    what = f"{what} {response.status}, but the response"
    if len(response.content) > _MAX_RESPONSE_BYTES:
        raise TokenRequestError(f"{what} has more than {_MAX_RESPONSE_BYTES} bytes", 200)
    given = _answer(response.content)
    value = given.get("access_token")
    value = value.strip() if isinstance(value, str) else ""
    if not value:
        raise TokenRequestError(f"{what} contains no access_token", 200)
    lifetime = given.get("expires_in")
    if isinstance(lifetime, str) and lifetime.isdecimal() and len(lifetime) < _MAX_DIGITS:
        lifetime = int(lifetime)  # a string in Azure's first version
    lifetime = _lifetime(lifetime) if _is_number(lifetime) else lifetime_of(value)
    try:
        return Token(value, lifetime)
    except TokenRequestError as error:
        fault = str(error)
    finally:
        del value, given, response
    raise TokenRequestError(f"{what} is invalid: {fault}", 200)


def _may_pass(error: KafkaError) -> bool:
    return isinstance(error, TokenRequestError) and error.retriable
