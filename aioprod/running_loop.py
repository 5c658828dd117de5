"""The running event loop, or an error that says why there is none."""

from __future__ import annotations

import asyncio
import sys

from aioprod.errors import WrongEventLoopError


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


def _is_in_trio() -> bool:
    trio = sys.modules.get("trio")
    try:
        return trio is not None and trio.lowlevel.current_trio_token() is not None
    except RuntimeError:  # trio is imported, and does not run
        return False
