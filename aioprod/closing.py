"""Closes things one after another, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable


async def close_in_turn(*steps: Callable[[], Awaitable[object]]) -> None:
    """Run each step, also if one before it fails or is cancelled; then raise the first error.

    Each step begins within this task, unlike the coroutines of ``asyncio.gather``: a task that is
    cancelled before its first step does nothing.
    """
    failure: BaseException | None = None
    for step in steps:
        try:
            await step()
        except BaseException as error:
            failure = failure or error
    if failure is not None:
        raise failure
