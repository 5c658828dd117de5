"""Raises an exception in one call of a client's functions, as a bug would: whatever fails on the
way of a record or of an answer, no caller may wait forever.

A scenario runs once to list its calls, and then once for each of them, with a bug there.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import aioprod
from aioprod.testing.simulation import run

PACKAGE = str(Path(aioprod.__file__).parent) + os.sep
BROKER = str(Path(PACKAGE, "testing")) + os.sep
SIMULATION = str(Path(BROKER, "simulation")) + os.sep
# What the event loop does before a callback or a task's step belongs to neither side.
EVENTS = asyncio.events.__file__
TRUSTED = {
    "closing.py:all_in_turn",
    "producer/batch.py:_wake_waiters",
    "producer/batch.py:_call_back",
    "producer/batch.py:_call",
    "net/pending_requests.py:replied",
    "consumer/requests.py:_forward",
    "net/silence.py:__init__",
}
"""Functions that complete futures in their first statement, or only store their arguments."""


class Bug(Exception):
    """A planted bug."""


class Calls:
    """Lists the calls of a client's functions, and raises in one of them.

    Args:
        step: the number of the call that raises; None to list them only.
        without: folders whose calls do not count.

    Attributes:
        calls: each call: the function, and the one that calls it.
    """

    def __init__(self, step: int | None = None, without: tuple[str, ...] = ()) -> None:
        self.calls: list[str] = []
        self._without = without
        self._step = step
        self._seen: set[FrameType] = set()  # a coroutine is called once, however often it resumes

    @contextmanager
    def active(self) -> Iterator[None]:
        """List the calls in the block, and raise in one of them."""
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """See ``sys.setprofile``, which takes this function away when it raises."""
        caller = frame.f_back
        if (
            event != "call"
            or caller is None
            or not _is_of_client(frame.f_code)
            or not caller.f_code.co_filename.startswith(PACKAGE)  # the loop can call its callbacks
            or frame in self._seen
            or _is_work_of_broker(frame)
        ):
            return
        self._seen.add(frame)
        function = _name(frame.f_code)
        if function in TRUSTED or function.startswith(self._without):
            return
        self.calls.append(f"{function}, called by {_name(caller.f_code)}")
        if len(self.calls) - 1 == self._step:
            raise Bug(self.calls[-1])


@cache
def _name(code: CodeType) -> str:
    return f"{code.co_filename.removeprefix(PACKAGE)}:{code.co_name}"


@cache
def _is_of_client(code: CodeType) -> bool:
    file = code.co_filename
    # Comprehensions are calls in some versions of Python; the garbage collector calls __del__.
    return (
        file.startswith(PACKAGE)
        and not file.startswith(BROKER)
        and not code.co_name.startswith("<")
        and code.co_name != "__del__"
    )


def _is_work_of_broker(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != EVENTS:
        file = frame.f_code.co_filename
        if file.startswith(BROKER) and not file.startswith(SIMULATION):
            return True
        frame = frame.f_back
    return False


Scenario = Callable[[Calls], Coroutine[Any, Any, list[str]]]
"""Runs a client, with ``Calls.active`` in one part, and returns what waits forever."""


def waiting_after_bugs(
    scenario: Scenario, *, everywhere: bool, without: tuple[str, ...] = ()
) -> list[str]:
    """Run a scenario with a bug at each call, and return where something waits forever.

    Args:
        everywhere: True for each call; False for the first one of each function by each caller.
        without: folders without bugs.
    """
    calls = Calls(None, without)
    assert run(scenario(calls), 0) == []
    steps = {call: number for number, call in reversed([*enumerate(calls.calls)])}.values()
    found = []
    with _quiet():
        for step in range(len(calls.calls)) if everywhere else sorted(steps):
            with_bug = Calls(step, without)
            waiting = run(_unreported(scenario(with_bug)), 0)
            found += [f"{with_bug.calls[-1]}: {each}" for each in waiting]
    return found


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep planted bugs out of the log and the warnings, including those of later tests.

    A bug between the creation of a coroutine and its first step leaves the coroutine in a cycle
    with the traceback: the garbage collector would warn of it in the test that is then running.
    """
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            yield
            gc.collect()
    finally:
        logging.disable(logging.NOTSET)


async def _unreported(waiting: Coroutine[Any, Any, list[str]]) -> list[str]:
    """Run a scenario whose bugs reach the event loop."""
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    return await waiting
