"""The running event loop, or an error that says why there is none; tasks in it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, TypeVar

from aioprod.errors import WrongEventLoopError

T = TypeVar("T")


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the running event loop of asyncio.

    Raises:
        WrongEventLoopError: if none runs here, such as under trio.
    """
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        pass
    if _is_in_trio():
        raise WrongEventLoopError(
            "aioprod runs on asyncio, and this code runs on trio: use asyncio.run(), or with anyio "
            "anyio.run(main, backend='asyncio')"
        )
    raise WrongEventLoopError(
        "no event loop of asyncio runs here: call this in a coroutine that asyncio.run() runs"
    )


def start_task(
    work: Coroutine[Any, Any, T], *, name: str, context: Context | None = None
) -> asyncio.Task[T]:
    """Run a coroutine in a task of the running loop that begins after the caller's turn.

    A task factory may begin tasks at once, as ``asyncio.eager_task_factory`` does: before the
    caller has stored the task, and before it has changed what the task reads.
    """
    loop = asyncio.get_running_loop()
    if loop.get_task_factory() is None:
        return loop.create_task(work, name=name, context=context)
    return asyncio.Task(work, loop=loop, name=name, context=context)


def _is_in_trio() -> bool:
    trio = sys.modules.get("trio")
    try:
        return trio is not None and trio.lowlevel.current_trio_token() is not None
    except RuntimeError:  # trio is imported, and does not run
        return False
