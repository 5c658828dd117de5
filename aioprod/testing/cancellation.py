"""Cancels a coroutine at each of its suspension points in turn, and checks the result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Generator
from typing import Any, Generic, TypeVar

from aioprod.running_loop import start_task

T = TypeVar("T")

_MOST_POINTS = 500
_RUN_LIMIT_S = 30


class _CancelledAt(Generic[T]):
    """Runs a coroutine and cancels its task when it is suspended for the n-th time.

    Attributes:
        reached: True if it was suspended n times.
    """

    def __init__(
        self, coroutine: Coroutine[Any, Any, T], numbers: Collection[int], promptly: bool
    ) -> None:
        self._coroutine = coroutine
        self._numbers = numbers
        self._promptly = promptly
        self._suspensions = 0
        self.reached = False

    def __await__(self) -> Generator[Any, Any, T]:
        step: Callable[[], Any] = lambda: self._coroutine.send(None)  # noqa: E731
        while True:
            try:
                waited = step()
            except StopIteration as stop:
                result: T = stop.value
                return result
            self._suspensions += 1
            if self._suspensions in self._numbers:
                self.reached = True
                task = asyncio.current_task()
                assert task is not None
                if self._promptly:
                    task.cancel()
                else:
                    asyncio.get_running_loop().call_soon(task.cancel)
            try:
                yield waited
            except BaseException as error:
                step = lambda error=error: self._coroutine.throw(error)  # type: ignore[misc]  # noqa: E731
            else:
                step = lambda: self._coroutine.send(None)  # noqa: E731


async def cancel_at_each_point(
    scenario: Callable[[int], Coroutine[Any, Any, object]],
    check: Callable[[int, bool], Coroutine[Any, Any, None]],
    *,
    again_after: int = 0,
    promptly: bool = False,
) -> int:
    """Run ``scenario(n)`` and cancel it at its n-th suspension, for n = 1, 2, ... until it ends
    before its n-th suspension.

    Use it for code that must survive cancellation at any point.

    Args:
        scenario: the coroutine function to run.
        check: a coroutine function that is called after each run as ``check(n, cancelled)``;
            ``cancelled`` is True if the cancellation ended the scenario.
        again_after: cancel a second time, this many suspensions later, while the scenario cleans
            up. With 0, cancel once.
        promptly: cancel before anything that was just scheduled runs, such as the first step of a
            task. A timer that fires in the same iteration of the loop has this effect.

    Returns:
        The number of suspensions.

    Raises:
        TimeoutError: if a run, or its cleanup after the cancellation, takes longer than 30 seconds.
        AssertionError: if there are more than 500 suspensions.
        Exception: if the scenario or the check raises it.
    """
    for number in range(1, _MOST_POINTS):
        run = _CancelledAt(scenario(number), {number, number + again_after}, promptly)
        task = start_task(_await(run), name="aioprod-scenario")
        cancelled = False
        try:
            async with asyncio.timeout(_RUN_LIMIT_S):
                await asyncio.wait([task])
            task.result()
        except asyncio.CancelledError:
            if not task.cancelled():  # the cancellation came from here
                task.cancel()
                raise
            cancelled = True
        except TimeoutError:
            task.cancel()
            raise
        await check(number, cancelled)
        if not run.reached:
            return number - 1
    raise AssertionError(f"the scenario has more than {_MOST_POINTS} suspensions")


async def _await(run: _CancelledAt[T]) -> T:
    return await run
