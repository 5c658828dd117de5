"""Runs blocking code in threads that never delay the end of the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(function: Callable[[], T]) -> T:
    """Run a blocking function in a new thread. Unlike with ``asyncio.to_thread``, neither the end
    of the loop nor that of the process waits for it.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def complete(result: T | None, error: BaseException | None) -> None:
        if future.done():  # cancelled
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = function()
        except BaseException as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(complete, result, error)
        except RuntimeError:
            pass  # the loop has ended

    threading.Thread(
        target=run, name=f"aioprod-{getattr(function, '__name__', 'work')}", daemon=True
    ).start()
    return await future
