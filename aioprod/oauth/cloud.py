"""The common part of the token providers for clouds: each one calls the vendor's library."""

from __future__ import annotations

import asyncio
import importlib.util
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import NamedTuple, TypedDict, TypeVar
from weakref import WeakKeyDictionary

from aioprod.errors import ConfigError
from aioprod.foreign_text import reason_of
from aioprod.oauth.cache import Stopwatch, Token, TokenCache
from aioprod.oauth.checks import check_options, check_texts
from aioprod.oauth.errors import TokenRequestError
from aioprod.oauth_token import OAuthToken

_MAX_TEXT = 300
TIMEOUT_MS = 20_000

T = TypeVar("T")


class CloudOptions(TypedDict, total=False):
    """Options of the token providers for clouds.

    Attributes:
        extensions: names and values that are sent to the broker with each token (KIP-342).
        timeout_ms: limit on one request for a token, in milliseconds; by default 20 s. Should be
            below ``request_timeout_ms`` of the Kafka client, whose login fails after that time.
    """

    extensions: Mapping[str, str]
    timeout_ms: float


class _AgedToken(NamedTuple):
    """A token, and its age."""

    token: Token
    age: Stopwatch


def _left_of(outcome: _AgedToken | TokenRequestError) -> Token | None:
    """Return the token with its remaining lifetime; None if it has expired."""
    if isinstance(outcome, TokenRequestError) or outcome.token.lifetime_s is None:
        return None
    left_s = outcome.token.lifetime_s - outcome.age.seconds
    return replace(outcome.token, lifetime_s=left_s) if left_s > 0 else None


class CloudTokens:
    """Requests tokens from a vendor's library, and caches them."""

    #: The module of the library, and the extra that installs it.
    _library: tuple[str, str]

    def __init__(self, options: CloudOptions) -> None:
        module, extra = self._library
        require(module, type(self).__name__, extra)
        check_options(type(self).__name__, CloudOptions, options)
        self._extensions = check_texts("extensions", options.get("extensions", {}))
        self._timeout_ms = options.get("timeout_ms", TIMEOUT_MS)
        value = self._timeout_ms
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 < value < math.inf
        ):
            raise ConfigError(f"timeout_ms={value!r}: must be a number above 0")
        self._cache = TokenCache(self._fetch)
        self._running: WeakKeyDictionary[
            asyncio.AbstractEventLoop, asyncio.Future[_AgedToken | TokenRequestError]
        ] = WeakKeyDictionary()

    async def __call__(self) -> OAuthToken:
        """Return a token: the cached one unless it is due for renewal.

        Raises:
            TokenRequestError: if the library has no credentials, fails, or does not return within
                ``timeout_ms``.
        """
        return await self._cache.get(self._extensions)

    async def _fetch(self) -> Token:
        raise NotImplementedError

    async def _in_thread(self, ask: Callable[[], Token]) -> Token:
        """Call a blocking library in a thread. A call that exceeds the limit continues in its
        thread, and the next request for a token waits for its token instead of starting another
        thread.
        """
        loop = asyncio.get_running_loop()
        running = self._running.get(loop)
        if running is None or (running.done() and _left_of(running.result()) is None):
            running = loop.run_in_executor(None, self._outcome, ask)
            self._running[loop] = running
        outcome = await self._limited(asyncio.shield(running))
        if isinstance(outcome, TokenRequestError):
            raise outcome
        del self._running[loop]
        return _left_of(outcome) or outcome.token

    async def _limited(self, answer: Awaitable[T]) -> T | TokenRequestError:
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                return await answer
        except TimeoutError:
            return TokenRequestError(
                f"{type(self).__name__}: no token within timeout_ms={self._timeout_ms:g}"
            )

    def _outcome(self, ask: Callable[[], Token]) -> _AgedToken | TokenRequestError:
        """Call the library. Return an error instead of raising it, as its frames contain the
        credentials.
        """
        try:
            return _AgedToken(ask(), Stopwatch())
        except Exception as error:
            return self._failure(error)

    def _failure(self, error: Exception) -> TokenRequestError:
        # Only the texts of the vendor's own errors are known to contain no secrets.
        name = type(error).__name__
        if isinstance(error, TokenRequestError):
            return TokenRequestError(f"{type(self).__name__}: {error}", error.status)
        if not isinstance(error, self._errors()):
            return TokenRequestError(f"{type(self).__name__}: {name}")
        shown = reason_of(" ".join(str(error).split()), limit=_MAX_TEXT)
        return TokenRequestError(f"{type(self).__name__}: {name}: {shown}")

    def _errors(self) -> tuple[type[Exception], ...]:
        """Return the exception types of the library."""
        raise NotImplementedError


def require(module: str, needed_by: str, extra: str) -> None:
    """Raise ConfigError, naming the extra, if a library is not installed."""
    try:
        found = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that has the module
        found = False
    if not found:
        raise ConfigError(f'{needed_by} needs {module}: pip install "aioprod[{extra}]"')
