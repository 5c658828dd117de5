"""Ctrl-C inside the process, and threads that delay nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

from aioprod.interrupt import Interrupt, Interrupted
from aioprod.threads import in_thread


async def _answer() -> int:
    await asyncio.sleep(0)
    return 42


async def test_what_ends_before_ctrl_c_gives_its_result() -> None:
    interrupt = Interrupt()
    assert await interrupt.guard(_answer()) == 42
    assert not interrupt.arrived


async def test_ctrl_c_cancels_what_is_waited_for() -> None:
    interrupt = Interrupt()
    cancelled = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), signal.SIGINT)
    with pytest.raises(Interrupted):
        await interrupt.guard(work())
    assert interrupt.arrived
    assert cancelled.is_set()


async def test_errors_of_the_work_come_through() -> None:
    async def work() -> None:
        raise LookupError("x")

    with pytest.raises(LookupError):
        await Interrupt().guard(work())


async def test_a_thread_gives_its_result_or_its_error() -> None:
    async with asyncio.timeout(10):
        assert await in_thread(lambda: threading.current_thread().daemon) is True
        with pytest.raises(ZeroDivisionError):
            await in_thread(lambda: 1 // 0)


async def test_no_task_waits_for_a_thread_that_was_given_up() -> None:
    release = threading.Event()
    waiting = asyncio.ensure_future(in_thread(release.wait))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(10):
            await waiting
    release.set()
