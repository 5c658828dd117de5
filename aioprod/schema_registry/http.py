"""Requests to a registry: several URLs, retries, credentials and limits."""

from __future__ import annotations

import base64
import json
import random
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import aiohttp

from aioprod.cluster.retry import RetryLimit, retry
from aioprod.config.redaction import HidesArguments
from aioprod.errors import ConfigError, KafkaError
from aioprod.net.backoff import Backoff
from aioprod.schema_registry.schemas import SchemaRegistryError

_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_MAX_RESPONSE_BYTES = 16 * 1024 * 1024

TokenProvider = Callable[[], Awaitable[str]]


@dataclass(frozen=True, kw_only=True)
class HttpSettings(metaclass=HidesArguments):
    """How a registry is reached; see :class:`aioprod.schema_registry.SchemaRegistry`."""

    urls: str | Iterable[str]
    basic_auth: tuple[str, str] | None = field(default=None, repr=False)
    bearer_token: str | TokenProvider | None = field(default=None, repr=False)
    ssl_context: ssl.SSLContext | None = None
    request_timeout_ms: float = 10_000
    timeout_ms: float = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 2_000
    max_connections: int = 20

    def __post_init__(self) -> None:
        urls = (self.urls,) if isinstance(self.urls, str) else tuple(self.urls)
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
        for name in ("request_timeout_ms", "timeout_ms", "max_connections", "retry_backoff_ms"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ConfigError(f"{name}={value!r}: must be a number above 0")
        object.__setattr__(self, "urls", tuple(clean))
        object.__setattr__(self, "basic_auth", credentials)


def _without_credentials(url: str) -> tuple[str, tuple[str, str] | None]:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError("url: must begin with http:// or https:// and name a host")
    own = None
    if parts.username is not None:
        own = unquote(parts.username), unquote(parts.password or "")
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")), own


class RegistryHttp:
    """Sends requests, and keeps the connections.

    Args:
        settings: checked settings.
        rng: source of the jitter.
    """

    def __init__(self, settings: HttpSettings, rng: random.Random) -> None:
        self._settings = settings
        self._urls = tuple(settings.urls)
        self._first = 0  # the URL that answered last
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
        """Make a request, and return the JSON of the response.

        A DELETE is repeated only if no registry could be reached: its first attempt may have had
        its effect. All other requests are repeated after errors that may pass.

        Raises:
            SchemaRegistryError: if the registry refuses, or can't be reached.
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
        # Another URL is asked at once; then all have failed.
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
        data = None if body is None else json.dumps(body).encode()
        # Raised below, without the frames of the HTTP library: they have the credentials.
        failure: SchemaRegistryError | None = None
        status, content = 0, b""
        try:
            async with self._opened().request(
                method, url + path, params=query, data=data, headers=headers, allow_redirects=False
            ) as response:
                status = response.status
                content = await response.content.read(_MAX_RESPONSE_BYTES + 1)
                while not response.content.at_eof() and len(content) <= _MAX_RESPONSE_BYTES:
                    content += await response.content.read(_MAX_RESPONSE_BYTES + 1 - len(content))
        except aiohttp.ClientConnectorError as error:
            failure = NotReachedError(f"{what}: not reached: {error}", subject=subject)
        except TimeoutError:
            limit = f"request_timeout_ms={self._settings.request_timeout_ms:g}"
            failure = SchemaRegistryError(f"{what}: no response within {limit}", subject=subject)
        except (aiohttp.ClientError, OSError) as error:
            reason = f"{type(error).__name__}: {error}"
            failure = SchemaRegistryError(f"{what}: {reason}", subject=subject)
        finally:
            del headers, credentials
        if failure is not None:
            raise failure
        return self._result(url, what, status, content, subject)

    async def _credentials(self) -> str | None:
        if self._settings.basic_auth is not None:
            return (
                f"Basic {base64.b64encode(':'.join(self._settings.basic_auth).encode()).decode()}"
            )
        token = self._settings.bearer_token
        if token is None or isinstance(token, str):
            return None if token is None else f"Bearer {token}"
        return f"Bearer {await token()}"

    def _result(self, url: str, what: str, status: int, content: bytes, subject: str | None) -> Any:
        if len(content) > _MAX_RESPONSE_BYTES:
            raise SchemaRegistryError(
                f"{what}: the response has more than {_MAX_RESPONSE_BYTES} bytes",
                status=status,
                subject=subject,
            )
        try:
            result = json.loads(content) if content else None
        except ValueError:
            result = None
            if 200 <= status < 300:
                raise SchemaRegistryError(
                    f"{what}: {status}, and the response is not JSON", status=500, subject=subject
                ) from None
        if 200 <= status < 300:
            self._first = self._urls.index(url)
            return result
        given = result if isinstance(result, dict) else {}
        code = given.get("error_code")
        raise SchemaRegistryError(
            f"{what}: {status}{f' ({code})' if code else ''}: "
            f"{given.get('message') or 'no reason given'}",
            status=status,
            code=code if isinstance(code, int) else None,
            subject=subject,
        )

    def _opened(self) -> aiohttp.ClientSession:
        if self._closed:
            raise SchemaRegistryError("the schema registry's client is closed", status=0)
        if self._session is None:
            settings = self._settings
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=settings.request_timeout_ms / 1000),
                connector=aiohttp.TCPConnector(
                    limit=settings.max_connections,
                    ssl=settings.ssl_context if settings.ssl_context is not None else True,
                ),
            )
        return self._session


class NotReachedError(SchemaRegistryError):
    """No connection was made, so the registry has not seen the request."""


def _may_be_repeated(error: KafkaError) -> bool:
    return isinstance(error, SchemaRegistryError) and error.retriable


def _was_not_sent(error: KafkaError) -> bool:
    return isinstance(error, NotReachedError)
