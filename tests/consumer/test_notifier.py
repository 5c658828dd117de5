"""The call that waits for records is woken in time, with few timers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioprod.consumer.notifier import Notifier

pytestmark = pytest.mark.virtual_time


def timers_of(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.Handle]:
    """Return a list of the timers that are set from now on."""
    timers: list[asyncio.Handle] = []
    loop = asyncio.get_running_loop()
    call_at = loop.call_at

    def noted(*args: Any, **keywords: Any) -> asyncio.TimerHandle:
        timer = call_at(*args, **keywords)
        timers.append(timer)
        return timer

    monkeypatch.setattr(loop, "call_at", noted)
    return timers


async def test_waits_with_later_deadlines_share_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    notifier = Notifier()
    loop = asyncio.get_running_loop()
    timers = timers_of(monkeypatch)
    for number in range(10):
        loop.call_soon(notifier.notify)
        assert await notifier.wait(loop.time() + 5 + number)
    assert len(timers) == 1


@pytest.mark.parametrize("deadline_s", [2.0, 5.0, 8.0])
async def test_a_wait_ends_at_its_own_deadline(deadline_s: float) -> None:
    notifier = Notifier()
    loop = asyncio.get_running_loop()
    began = loop.time()
    loop.call_soon(notifier.notify)
    assert await notifier.wait(began + 5.0)
    assert loop.time() - began < 1
    assert await notifier.wait(began + deadline_s)
    assert loop.time() - began == pytest.approx(deadline_s, abs=0.01)
    assert notifier.resumed_at == loop.time()
    assert not await notifier.wait(began + deadline_s)


async def test_no_timer_is_left_after_the_client_was_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notifier = Notifier()
    loop = asyncio.get_running_loop()
    timers = timers_of(monkeypatch)
    loop.call_soon(notifier.notify)
    assert await notifier.wait(loop.time() + 5)
    notifier.stop()
    assert [timer.cancelled() for timer in timers] == [True]


async def test_a_timer_without_a_waiter_is_not_set_again(monkeypatch: pytest.MonkeyPatch) -> None:
    notifier = Notifier()
    loop = asyncio.get_running_loop()
    loop.call_soon(notifier.notify)
    assert await notifier.wait(loop.time() + 5)
    loop.call_soon(notifier.notify)
    assert await notifier.wait(loop.time() + 50)
    timers = timers_of(monkeypatch)
    await asyncio.sleep(100)
    assert len(timers) == 1, "the sleep's"
