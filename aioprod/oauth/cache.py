"""A cached token, which is renewed before it expires."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakKeyDictionary

from aioprod.errors import KafkaError, copy_of
from aioprod.logs import Logger, get_logger
from aioprod.oauth.errors import TokenRequestError
from aioprod.oauth_token import OAuthToken
from aioprod.running_loop import running_loop

log: Logger = get_logger(__name__)

# Fractions of a token's lifetime after which it is renewed, as sasl.login.refresh.window.factor and
# .jitter of the Java client. Clients authenticate again after 85 % of a session, and then
# get a new token.
_EARLIEST, _LATEST = 0.8, 0.85
# A token that expires within this time is not used for another login: the broker's clock differs.
_MARGIN_S = 10.0
# After a failed renewal, the current token is used for this long before the next attempt.
_PAUSE_S = 10.0


@dataclass(frozen=True, slots=True)
class Token:
    """An access token.

    Attributes:
        value: its text.
        lifetime_s: seconds until it expires; None if that is unknown: the token is used once.

    Raises:
        TokenRequestError: if the value is not one or more printable ASCII characters (RFC 6749).
    """

    value: str = field(repr=False)
    lifetime_s: float | None

    def __post_init__(self) -> None:
        value = self.value
        if not isinstance(value, str) or not value or not value.isascii():
            raise TokenRequestError("the access token is not a string of ASCII characters", 0)
        if not value.isprintable() or " " in value:
            raise TokenRequestError("the access token contains control characters or spaces", 0)
        if self.lifetime_s is not None and not math.isfinite(self.lifetime_s):
            object.__setattr__(self, "lifetime_s", None)


class Stopwatch:
    """Measures the time since its creation, including time in which the machine was suspended:
    ``time.monotonic`` may stop then, and the wall clock can be set back.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._clocks = (clock, wall_clock)
        self._begun = [clock() for clock in self._clocks]

    @property
    def seconds(self) -> float:
        """The elapsed time, by the clock that shows more."""
        return max(clock() - begun for clock, begun in zip(self._clocks, self._begun, strict=True))


class TokenCache:
    """Caches the newest token. Concurrent callers share one request; if it fails, each caller gets
    the error.

    May be used by clients in several event loops: they share the token, not the request.

    Args:
        fetch: requests a new token.
        stopwatch: creates a stopwatch that starts now.
        rng: source of jitter, so that not all clients renew at the same moment.
    """

    def __init__(
        self,
        fetch: Callable[[], Awaitable[Token]],
        *,
        stopwatch: Callable[[], Stopwatch] = Stopwatch,
        rng: random.Random | None = None,
    ) -> None:
        self._fetch = fetch
        self._stopwatch = stopwatch
        self._rng = rng or random.Random()
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )
        self._value: str | None = None
        self._number = 0  # of the token; :meth:`_discard` gets it instead of the token
        self._age = stopwatch()
        self._renew_after_s = self._expires_after_s = 0.0
        self._failures = 0
        self._failure: KafkaError | None = None

    async def get(self, extensions: Mapping[str, str]) -> OAuthToken:
        """Return a token that does not expire soon. If a broker refuses it, the next caller gets a
        new one.

        Raises:
            KafkaError: if no token is cached, and the request for a new one fails.
        """
        value = await self._get()
        return OAuthToken(value, extensions, partial(self._discard, self._number))

    def _discard(self, number: int) -> None:
        if number == self._number:
            self._value = None

    async def _get(self) -> str:
        if self._value is not None and self._age.seconds < self._renew_after_s:
            return self._value
        failures = self._failures
        lock = self._locks.setdefault(running_loop(), asyncio.Lock())
        async with lock:
            if self._value is not None and self._age.seconds < self._renew_after_s:
                return self._value
            if self._failure is not None and self._failures > failures:
                raise copy_of(self._failure)  # of the request that this caller waited for
            return await self._renew()

    async def _renew(self) -> str:
        try:
            token = await self._fetch()
        except KafkaError as error:
            usable_s = self._expires_after_s - _MARGIN_S
            age_s = self._age.seconds
            if self._value is not None and age_s < usable_s:
                left_s = self._expires_after_s - age_s
                log.warning(
                    "renewing the token failed; it is valid for another %.0f s: %s", left_s, error
                )
                self._renew_after_s = min(age_s + _PAUSE_S, usable_s)
                return self._value
            self._value = None
            self._failures += 1
            self._failure = copy_of(error)
            raise
        self._failure = None
        lifetime_s = token.lifetime_s or 0.0
        self._age = self._stopwatch()
        self._expires_after_s = lifetime_s
        self._renew_after_s = min(
            lifetime_s * self._rng.uniform(_EARLIEST, _LATEST), max(lifetime_s - _MARGIN_S, 0.0)
        )
        self._value = token.value
        self._number += 1
        return token.value
