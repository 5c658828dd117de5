"""HTTP requests to a registry: several URLs, retries, credentials and limits."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import random
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlencode, urlunsplit

import aiohttp

from aioprod.cluster.retry import RetryLimit, retry
from aioprod.config.redaction import HidesArguments
from aioprod.errors import AuthenticationError, ConfigError, KafkaError
from aioprod.foreign_text import reason_of
from aioprod.net.backoff import Backoff
from aioprod.net.http import (
    HttpFailure,
    HttpOptions,
    HttpRequest,
    HttpResponse,
    check_header,
    check_proxy,
    check_ssl_context,
    exchange,
    http_url,
    new_session,
)
from aioprod.schema_registry.schemas import SchemaRegistryError
from aioprod.secret_forms import secret_forms
from aioprod.user_code import is_cancelled

_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_MAX_RESPONSE_BYTES = 16 * 1024 * 1024
_MAX_CODE = 10**6

TokenProvider = Callable[[], Awaitable[str]]


@dataclass(frozen=True, kw_only=True)
class HttpSettings(metaclass=HidesArguments):
    """The settings of a connection; see :class:`aioprod.schema_registry.SchemaRegistry`."""

    urls: str | Iterable[str]
    basic_auth: tuple[str, str] | None = field(default=None, repr=False)
    bearer_token: str | TokenProvider | None = field(default=None, repr=False)
    ssl_context: ssl.SSLContext | None = None
    proxy: str | None = field(default=None, repr=False)
    request_timeout_ms: float = 10_000
    timeout_ms: float = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 2_000
    max_connections: int = 20

    def __post_init__(self) -> None:
        given = (self.urls,) if isinstance(self.urls, str) else self.urls
        urls = tuple(given) if isinstance(given, Iterable) else (given,)
        if not all(isinstance(url, str) for url in urls):
            raise ConfigError("url: must be text, or a list of strings")
        urls = tuple(part.strip() for url in urls for part in url.split(",") if part.strip())
        if not urls:
            raise ConfigError("url is empty: give the address of a schema registry")
        credentials = self.basic_auth
        clean = []
        for url in urls:
            address, own = _without_credentials(url)
            clean.append(address)
            credentials = credentials or own
        if credentials is not None and self.bearer_token is not None:
            raise ConfigError("basic_auth and bearer_token are both set: set one of them")
        _check_credentials(credentials, self.bearer_token)
        check_ssl_context(self.ssl_context)
        check_proxy(self.proxy)
        for name in ("request_timeout_ms", "timeout_ms", "max_connections", "retry_backoff_ms"):
            value = getattr(self, name)
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not 0 < value < math.inf
            ):
                raise ConfigError(f"{name}={value!r}: must be a finite number above 0")
        object.__setattr__(self, "urls", tuple(clean))
        object.__setattr__(self, "basic_auth", credentials)


def _without_credentials(url: str) -> tuple[str, tuple[str, str] | None]:
    parts = http_url(url)
    if parts is None:
        raise ConfigError(
            "url: must begin with http:// or https:// and name a host; percent-encode special "
            "characters of a password in it"
        )
    if parts.query or parts.fragment:
        raise ConfigError("url: must be an address without ? and #, such as https://host/prefix")
    own = None
    if parts.username is not None:
        own = unquote(parts.username), unquote(parts.password or "")
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")), own


def _check_credentials(basic_auth: object, bearer_token: object) -> None:
    if basic_auth is not None and not (
        isinstance(basic_auth, tuple)
        and len(basic_auth) == 2
        and all(isinstance(part, str) for part in basic_auth)
    ):
        raise ConfigError("basic_auth: must be a tuple of user name and password")
    if bearer_token is not None and not callable(bearer_token):
        check_header("bearer_token", bearer_token)


class RegistryHttp:
    """Sends requests, and keeps connections open.

    Args:
        settings: checked settings.
        rng: the source of the backoff's jitter.
    """

    def __init__(self, settings: HttpSettings, rng: random.Random) -> None:
        self._settings = settings
        self._options = HttpOptions(
            ssl_context=settings.ssl_context,
            proxy=settings.proxy,
            timeout_ms=settings.request_timeout_ms,
            max_bytes=_MAX_RESPONSE_BYTES,
        )
        self._urls = tuple(settings.urls)
        self._first = 0  # the URL that responded last
        self._backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, rng)
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        subject: str | None = None,
    ) -> Any:
        """Send a request, and return the JSON of the response.

        A DELETE is retried only if no registry could be reached, because a failed attempt may have
        taken effect. All other requests are retried after errors that may be temporary.

        Raises:
            SchemaRegistryError: if the registry refuses the request, or can't be reached.
            KafkaTimeoutError: if no attempt succeeds within ``timeout_ms``.
        """
        limit = RetryLimit(
            self._settings.timeout_ms, f"{method} {path} at the schema registry", "timeout_ms"
        )
        attempts = 0

        async def attempt() -> Any:
            nonlocal attempts
            url = self._urls[(self._first + attempts) % len(self._urls)]
            attempts += 1
            return await self._attempt(url, method, path, query, body, subject)

        return await retry(
            attempt,
            self._pause_s,
            is_retriable=_may_be_repeated if method != "DELETE" else _was_not_sent,
            limit=limit,
        )

    async def close(self) -> None:
        """Close the connections; no further request is possible."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    def _pause_s(self, failures: int) -> float:
        # Another URL is used without a wait, until all have failed.
        rounds, others = divmod(failures, len(self._urls))
        return 0.0 if others else self._backoff.seconds(rounds)

    async def _attempt(
        self,
        url: str,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Any,
        subject: str | None,
    ) -> Any:
        what = f"schema registry {url}: {method} {path}"
        headers = {"Content-Type": _CONTENT_TYPE, "Accept": f"{_CONTENT_TYPE}, application/json"}
        credentials = await self._credentials()
        if credentials is not None:
            headers["Authorization"] = credentials
        request = HttpRequest(
            method,
            f"{url}{path}?{urlencode(query)}" if query else url + path,
            headers,
            None if body is None else json.dumps(body).encode(),
            self._secrets(credentials),
        )
        try:
            outcome = await exchange(self._opened(), request, self._options)
            refusal = _refusal(outcome, request.secrets)
        finally:
            del headers, credentials, request
        if isinstance(outcome, HttpFailure):
            kind = SchemaRegistryError if outcome.sent else NotReachedError
            raise kind(f"{what}: {outcome.text}", status=outcome.status, subject=subject)
        if refusal is not None:
            status, (code, reason) = outcome.status, refusal
            del outcome  # it may contain the password
            raise SchemaRegistryError(
                f"{what}: {status}{f' ({code})' if code else ''}: {reason}",
                status=status,
                code=code,
                subject=subject,
            )
        result = _json(what, outcome, subject)
        self._first = self._urls.index(url)
        return result

    async def _credentials(self) -> str | None:
        if self._settings.basic_auth is not None:
            return (
                f"Basic {base64.b64encode(':'.join(self._settings.basic_auth).encode()).decode()}"
            )
        token = self._settings.bearer_token
        if token is None or isinstance(token, str):
            return None if token is None else f"Bearer {token}"
        return f"Bearer {await _asked(token)}"

    def _secrets(self, credentials: str | None) -> tuple[str, ...]:
        password = (self._settings.basic_auth or ("", ""))[1]
        return secret_forms(password, (credentials or "").partition(" ")[2])

    def _opened(self) -> aiohttp.ClientSession:
        if self._closed:
            raise SchemaRegistryError("the schema registry's client is closed", status=0)
        if self._session is None:
            self._session = new_session(self._settings.max_connections)
        return self._session


def _json(what: str, response: HttpResponse, subject: str | None) -> Any:
    fault = "not JSON"
    try:
        if len(response.content) <= _MAX_RESPONSE_BYTES:
            return json.loads(response.content) if response.content else None
        fault = f"more than {_MAX_RESPONSE_BYTES} bytes"
    except RecursionError:
        fault = "JSON that is nested too deeply"
    except ValueError:
        pass
    raise SchemaRegistryError(
        f"{what}: {response.status}, and the response is {fault}",
        status=500 if fault == "not JSON" else response.status,  # perhaps from a proxy
        subject=subject,
    )


def _refusal(
    outcome: HttpResponse | HttpFailure, secrets: Iterable[str]
) -> tuple[int | None, str] | None:
    """Return the code and reason of a refusal; None if the registry did not refuse."""
    if isinstance(outcome, HttpFailure) or 200 <= outcome.status < 300:
        return None
    try:
        given = json.loads(outcome.content[:_MAX_RESPONSE_BYTES])
    except (ValueError, RecursionError):
        given = None
    given = given if isinstance(given, dict) else {}
    code = given.get("error_code")
    known = isinstance(code, int) and not isinstance(code, bool) and 0 < code < _MAX_CODE
    reason = reason_of(given.get("message"), secrets) or outcome.reason or "no reason given"
    return (code if known else None), reason


async def _asked(provider: TokenProvider) -> str:
    """Return the token of a provider.

    Raises:
        KafkaError: raised by the provider.
        AuthenticationError: if the provider fails with another error, or returns no token.
    """
    fault = "did not return a string of printable ASCII characters"
    try:
        token = await provider()
        check_header("bearer_token", token)
        return token
    except ConfigError:
        pass
    except KafkaError:
        raise
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        fault = "raised CancelledError, but nothing was cancelled"
    except Exception as error:
        fault = f"failed with {type(error).__name__}"  # its text may contain secrets
    finally:
        token = ""
    raise AuthenticationError(f"bearer_token {fault}")


class NotReachedError(SchemaRegistryError):
    """No connection was made, so the registry has not seen the request."""


def _may_be_repeated(error: KafkaError) -> bool:
    return isinstance(error, SchemaRegistryError) and error.retriable


def _was_not_sent(error: KafkaError) -> bool:
    return isinstance(error, NotReachedError)
