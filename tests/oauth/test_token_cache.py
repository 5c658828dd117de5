"""A token is renewed in time, and callers get an error only if no valid one is left."""

from __future__ import annotations

import asyncio
import random

import pytest

from aioprod.errors import KafkaError
from aioprod.oauth.cache import Stopwatch, Token, TokenCache


class Source:
    """Numbered tokens, or failures, by a clock that tests set."""

    def __init__(self, lifetime_s: float | None = 100) -> None:
        self.lifetime_s = lifetime_s
        self.now = 1000.0
        self.today = 1_700_000_000.0
        self.asked = 0
        self.fails = False
        self.gate: asyncio.Event | None = None
        self.cache = self.make_cache(1)

    def make_cache(self, seed: int) -> TokenCache:
        def stopwatch() -> Stopwatch:
            return Stopwatch(lambda: self.now, lambda: self.today)

        return TokenCache(self.fetch, stopwatch=stopwatch, rng=random.Random(seed))

    async def get(self) -> str:
        return (await self.cache.get({})).value

    async def fetch(self) -> Token:
        self.asked += 1
        number = self.asked
        if self.gate is not None:
            await self.gate.wait()
        if self.fails:
            raise KafkaError(f"refused {number}")
        return Token(f"token-{number}", self.lifetime_s)


async def test_a_token_is_kept_for_most_of_its_lifetime_and_then_renewed() -> None:
    source = Source()
    assert await source.get() == "token-1"
    source.now += 79
    assert await source.get() == "token-1"
    source.now += 7
    assert await source.get() == "token-2"
    assert source.asked == 2


async def test_moments_of_renewal_differ_between_clients() -> None:
    renewed = set()
    for seed in range(20):
        source = Source(lifetime_s=1000)
        source.cache = source.make_cache(seed)
        await source.get()
        while await source.get() == "token-1":
            source.now += 1
        renewed.add(source.now - 1000)
    assert 800 <= min(renewed) < max(renewed) <= 851
    assert len(renewed) > 10


async def test_a_token_that_expired_while_the_machine_was_suspended_is_not_used() -> None:
    source = Source()
    assert await source.get() == "token-1"
    source.today += 90  # the other clock stops meanwhile
    assert await source.get() == "token-2"
    source.today -= 3600  # set back by hand: the other clock goes on
    source.now += 90
    assert await source.get() == "token-3"


async def test_a_token_that_can_not_be_renewed_is_not_used_after_a_suspension() -> None:
    source = Source()
    await source.get()
    source.fails = True
    source.today += 91
    with pytest.raises(KafkaError, match="refused 2"):
        await source.get()


async def test_a_token_that_a_broker_refuses_is_not_used_again() -> None:
    source = Source()
    first, again = await source.cache.get({}), await source.cache.get({})
    assert first.on_refused is not None
    assert again.on_refused is not None
    first.on_refused()
    assert await source.get() == "token-2"
    again.on_refused()  # of the old token: the new one is kept
    assert await source.get() == "token-2"
    assert "token" not in repr(first.on_refused)


@pytest.mark.parametrize("lifetime_s", [None, 0.0, 5.0])
async def test_a_token_that_does_not_last_is_used_once(lifetime_s: float | None) -> None:
    source = Source(lifetime_s)
    assert [await source.get() for _ in range(3)] == ["token-1", "token-2", "token-3"]


async def test_a_token_that_can_not_be_renewed_is_used_until_it_expires(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = Source()
    await source.get()
    source.fails = True
    source.now += 86
    assert await source.get() == "token-1"
    assert "renewing the token failed; it is valid for another 14 s: refused 2" in caplog.text
    assert await source.get() == "token-1"
    assert source.asked == 2  # not at each login
    source.now += 4
    with pytest.raises(KafkaError, match="refused 3"):
        await source.get()
    source.fails = False
    assert await source.get() == "token-4"


async def test_concurrent_callers_share_a_request() -> None:
    source = Source()
    source.gate = asyncio.Event()
    calls = [asyncio.create_task(source.get()) for _ in range(10)]
    await asyncio.sleep(0)
    source.gate.set()
    assert await asyncio.gather(*calls) == ["token-1"] * 10
    assert source.asked == 1


async def test_concurrent_callers_share_a_failure_and_a_later_one_asks_again() -> None:
    source = Source()
    source.gate, source.fails = asyncio.Event(), True
    calls = [asyncio.create_task(source.get()) for _ in range(10)]
    await asyncio.sleep(0)
    source.gate.set()
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert [str(error) for error in errors] == ["refused 1"] * 10
    assert len({id(error) for error in errors}) == 10
    source.now += 1
    with pytest.raises(KafkaError, match="refused 2"):
        await source.get()


async def test_a_caller_that_is_cancelled_leaves_the_request_to_the_next() -> None:
    source = Source()
    source.gate = asyncio.Event()
    first = asyncio.create_task(source.get())
    second = asyncio.create_task(source.get())
    await asyncio.sleep(0)
    first.cancel()
    source.gate.set()
    assert await second == "token-2"
    assert first.cancelled()


def test_event_loops_share_the_token() -> None:
    source = Source()
    assert asyncio.run(source.get()) == asyncio.run(source.get()) == "token-1"
