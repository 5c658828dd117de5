"""Requests to the token endpoint of an identity provider (RFC 6749)."""

from __future__ import annotations

import base64
import json
import logging
import math
import random
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard
from urllib.parse import SplitResult, urlsplit

import aiohttp

from aioprod.cluster.retry import RetryLimit, retry
from aioprod.config.redaction import HidesArguments
from aioprod.errors import ConfigError, KafkaError
from aioprod.net.backoff import Backoff
from aioprod.oauth.cache import Token
from aioprod.oauth.errors import TokenRequestError

_MAX_RESPONSE_BYTES = 1024 * 1024
_MAX_TEXT = 200
_MAX_LIFETIME_S = 1e9  # 30 years
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Grant:
    """What a request has: the parameters, and the header ``Authorization``. The repr has none."""

    form: Mapping[str, str] = field(repr=False)
    authorization: str | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class TokenEndpoint(metaclass=HidesArguments):
    """How an identity provider is reached.

    Attributes:
        url: of the token endpoint: ``https``, or ``http`` for tests on the same machine.
        ssl_context: TLS context; None trusts what the system trusts.
        proxy: URL of an HTTP proxy; None takes ``HTTPS_PROXY`` and ``NO_PROXY`` from the
            environment. No error shows it: it may have a password.
        request_timeout_ms: limit of one request.
        timeout_ms: limit of all attempts. Should be below ``request_timeout_ms`` of the Kafka
            client, which gives up otherwise.
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
        parts = _http_url(self.url)
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
        if self.ssl_context is not None and not isinstance(self.ssl_context, ssl.SSLContext):
            kind = type(self.ssl_context).__name__
            raise ConfigError(f"ssl_context: must be an ssl.SSLContext, not {kind}")
        if self.proxy is not None and _http_url(self.proxy) is None:
            raise ConfigError("proxy: must be the URL of an HTTP proxy, such as http://host:3128")
        for name in ("request_timeout_ms", "timeout_ms", "retry_backoff_ms"):
            value = getattr(self, name)
            if not _is_number(value) or not 0 < value < math.inf:
                raise ConfigError(f"{name}={value!r}: must be a finite number above 0")

    async def request(self, grant: Grant) -> Token:
        """Request a token, and repeat that after failures that may pass.

        Raises:
            TokenRequestError: if the identity provider refuses, or is not reached.
            KafkaTimeoutError: if it does not answer within ``timeout_ms``.
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
        headers = {"Accept": "application/json"}
        if grant.authorization is not None:
            headers["Authorization"] = grant.authorization
        # Raised below, without the frames of the HTTP library: they have the credentials.
        failure: str | None = None
        status: int | None = None
        content = b""
        # A session for each request: a token lasts for minutes, and the connection need not.
        timeout = aiohttp.ClientTimeout(total=self.request_timeout_ms / 1000)
        try:
            async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as session:
                async with session.post(
                    self.url,
                    data=dict(grant.form),
                    headers=headers,
                    ssl=self.ssl_context if self.ssl_context is not None else True,
                    proxy=self.proxy,
                    allow_redirects=False,
                ) as response:
                    status = response.status
                    content = await response.content.read(_MAX_RESPONSE_BYTES)
                    while not response.content.at_eof() and len(content) < _MAX_RESPONSE_BYTES:
                        content += await response.content.read(_MAX_RESPONSE_BYTES - len(content))
        except TimeoutError:
            failure = f"no response within request_timeout_ms={self.request_timeout_ms:g}"
        except aiohttp.ClientHttpProxyError as error:
            # Its text has the URL of the proxy with the password.
            status, failure = error.status, f"the proxy answers {error.status} {error.message}"
        except aiohttp.InvalidURL:  # the same, of HTTPS_PROXY
            status, failure = 0, "the proxy of HTTPS_PROXY is not the URL of an HTTP proxy"
        except (aiohttp.ClientError, OSError) as error:
            failure = f"{type(error).__name__}: {error}"
        finally:
            del headers
        if failure is not None:
            raise TokenRequestError(f"token endpoint {self.url}: {failure}", status)
        assert status is not None
        return _token(self.url, status, content)


def _http_url(text: object) -> SplitResult | None:
    """Return the parts of a URL of HTTP; None for other text."""
    try:
        parts = urlsplit(text) if isinstance(text, str) else None
        if parts is None or not parts.hostname or parts.port == 0:
            return None
    except ValueError:  # such as a port above 65535
        return None
    return parts if parts.scheme in ("http", "https") else None


def basic_authorization(client_id: str, client_secret: str) -> str:
    """Return the header of HTTP's basic authentication."""
    return f"Basic {base64.b64encode(f'{client_id}:{client_secret}'.encode()).decode()}"


def lifetime_of(value: str) -> float | None:
    """Return for how many seconds a JSON Web Token is valid; None if it does not tell."""
    claims = _claims(value)
    expires, issued = claims.get("exp"), claims.get("iat")
    if not _is_number(expires):
        return None
    # By the provider's clock if possible: that of this machine may differ.
    return _lifetime(expires - (issued if _is_number(issued) else time.time()))


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
    """Return seconds that can be added to a time; None if they can't."""
    return float(seconds) if _is_number(seconds) and abs(seconds) < _MAX_LIFETIME_S else None


def _token(url: str, status: int, content: bytes) -> Token:
    what = f"token endpoint {url}: {status}"
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        answer = None
    given = answer if isinstance(answer, dict) else {}
    if status != 200:
        code, reason = given.get("error"), given.get("error_description")
        parts = [part for part in (code, reason) if isinstance(part, str) and part]
        said = "".join(char if char.isprintable() else " " for char in " ".join(parts))
        raise TokenRequestError(
            f"{what} {said[:_MAX_TEXT] or 'no reason given'}",
            status,
            code if isinstance(code, str) else None,
        )
    value = given.get("access_token")
    if not isinstance(value, str) or not value.strip():
        raise TokenRequestError(f"{what}, but the response has no access_token", status)
    lifetime = given.get("expires_in")
    if isinstance(lifetime, str) and lifetime.isdecimal():
        lifetime = float(lifetime)  # as Azure's first version has it
    known = _is_number(lifetime)
    return Token(value.strip(), _lifetime(lifetime) if known else lifetime_of(value.strip()))


def _may_pass(error: KafkaError) -> bool:
    return isinstance(error, TokenRequestError) and error.retriable
