"""Takes steps one after another, even if one of them fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable


def all_in_turn(steps: Iterable[Callable[[], object]]) -> None:
    """Take each step, even if one before it fails; then raise the first error.

    For the ends of several batches or calls: an error at one of them, which is a bug, must not keep
    the others from ending.
    """
    failure: BaseException | None = None
    for step in steps:
        try:
            step()
        except BaseException as error:
            failure = failure or error
    if failure is not None:
        raise failure


async def close_in_turn(*steps: Callable[[], Awaitable[object]]) -> None:
    """Run each step, even if one before it fails or is cancelled; then raise the first error.

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
