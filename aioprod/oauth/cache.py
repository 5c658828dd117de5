"""A token that is kept until it is due for renewal."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from aioprod.errors import KafkaError, copy_of

log = logging.getLogger(__name__)

# Parts of a token's lifetime after which it is renewed: as Java's sasl.login.refresh.window.factor
# and .jitter. Clients log in again after 85 % of a session, so they get a new token then.
_EARLIEST, _LATEST = 0.8, 0.85
# A token that expires within this time is not used for another login: the broker's clock differs.
_MARGIN_S = 10.0
# After a failed renewal the present token is used for this long before the next attempt.
_PAUSE_S = 10.0


@dataclass(frozen=True, slots=True)
class Token:
    """An access token.

    Attributes:
        value: its text.
        lifetime_s: from now on; None if it is unknown, and the token is used once.
    """

    value: str = field(repr=False)
    lifetime_s: float | None


class TokenCache:
    """Keeps the newest token. Concurrent callers share one request; if it fails, each gets the
    error.

    May be used by clients in several event loops: they share the token, not the request.

    Args:
        fetch: requests a new token.
        clock: returns seconds.
        rng: source of jitter, so that not all clients renew at the same moment.
    """

    def __init__(
        self,
        fetch: Callable[[], Awaitable[Token]],
        *,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._rng = rng or random.Random()
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )
        self._value: str | None = None
        self._renew_at = self._expires_at = 0.0
        self._failures = 0
        self._failure: KafkaError | None = None

    async def get(self) -> str:
        """Return a token that is valid for some time.

        Raises:
            KafkaError: if there is none, and the request for a new one fails.
        """
        if self._value is not None and self._clock() < self._renew_at:
            return self._value
        failures = self._failures
        lock = self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        async with lock:
            if self._value is not None and self._clock() < self._renew_at:
                return self._value
            if self._failure is not None and self._failures > failures:
                raise copy_of(self._failure)  # of the request that this caller waited for
            return await self._renew()

    async def _renew(self) -> str:
        try:
            token = await self._fetch()
        except KafkaError as error:
            now = self._clock()
            if self._value is not None and now < self._expires_at - _MARGIN_S:
                left = self._expires_at - now
                log.warning("the token is not renewed yet; it is valid for %.0f s: %s", left, error)
                self._renew_at = min(now + _PAUSE_S, self._expires_at - _MARGIN_S)
                return self._value
            self._value = None
            self._failures += 1
            self._failure = copy_of(error)
            raise
        now = self._clock()
        self._failure = None
        lifetime_s = token.lifetime_s or 0.0
        self._expires_at = now + lifetime_s
        self._renew_at = now + min(
            lifetime_s * self._rng.uniform(_EARLIEST, _LATEST), max(lifetime_s - _MARGIN_S, 0.0)
        )
        self._value = token.value
        return token.value
