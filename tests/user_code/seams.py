"""Rows of the table of places that call users' code: their rules, and how they run.

A seam is a place at which a client calls users' code. Its row runs such code, which raises one kind
of error, with bystanders: other records, partitions, calls and clients, whose outcomes it checks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

# Far more than it takes: the machine may be busy, and the process be stopped for seconds.
LIMIT_S = 60.0
ENDS_PROGRAM = (KeyboardInterrupt, SystemExit)


class OwnError(BaseException):
    """An error of users' code that is not an Exception, as some libraries have them."""


KINDS: dict[str, Callable[[], BaseException]] = {
    "Exception": lambda: ValueError("raised by users' code"),
    "CancelledError": asyncio.CancelledError,
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": lambda: SystemExit(3),
    "GeneratorExit": GeneratorExit,
    "OwnError": OwnError,
}


@dataclass
class Run:
    """One run of a row.

    Attributes:
        error: raised by the users' code.
        raised: how often it did.
        armed: whether it does now.
        reported: errors that calls of the application raised.
        surfaced: errors that the event loop raised.
        logged: errors in the log.
    """

    error: BaseException
    raised: int = 0
    armed: bool = True
    reported: list[BaseException] = field(default_factory=list)
    surfaced: list[BaseException] = field(default_factory=list)
    logged: list[BaseException] = field(default_factory=list)

    def fail(self, *_: object) -> Any:
        """The users' code."""
        if self.armed:
            self.raised += 1
            raise self.error

    async def note(self, call: Awaitable[object]) -> object:
        """Return the result of a call, or note its error."""
        try:
            return await call
        except BaseException as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the time limit
            self.reported.append(error)
            return None

    @property
    def ends(self) -> list[BaseException]:
        """Return the errors that the event loop must raise."""
        return [self.error] if isinstance(self.error, ENDS_PROGRAM) else []

    def caused(self, error: BaseException | None) -> bool:
        """Return whether the users' error is this one, or among its causes."""
        while error is not None and error is not self.error:
            error = error.__cause__
        return error is not None


Rule = Callable[[Run], None]


def logged(run: Run) -> None:
    """No call raises it, the log has it, and the event loop raises what ends a program."""
    assert run.reported == []
    assert run.error in run.logged
    assert run.surfaced == run.ends


def absorbed(run: Run) -> None:
    """Like ``logged``, but the call is retried, and the log has only the client's own words."""
    assert run.reported == []
    assert run.surfaced == run.ends


def logged_in_thread(run: Run) -> None:
    """Like ``logged``, in a thread without an event loop."""
    assert (run.reported, run.surfaced) == ([], [])
    assert run.error in run.logged


def caused(wrapper: type[BaseException], *, may_surface: bool = False) -> Rule:
    """The call for which it was made raises ``wrapper``, or what ends a program as it is.

    Args:
        may_surface: the event loop may raise that too, where the call has something to return.
    """

    def check(run: Run) -> None:
        assert run.reported and all(map(run.caused, run.reported)), run.reported
        expected = type(run.error) if run.ends else wrapper
        assert {type(error) for error in run.reported} == {expected}
        assert not run.surfaced or (may_surface and set(run.surfaced) == set(run.ends))

    return check


def passed(cancelled: type[BaseException]) -> Rule:
    """The call for which it was made raises it as it is; CancelledError is the cause of another."""

    def check(run: Run) -> None:
        assert len(run.reported) == 1 and run.caused(run.reported[0]), run.reported
        if isinstance(run.error, asyncio.CancelledError):
            assert type(run.reported[0]) is cancelled
        else:
            assert run.reported[0] is run.error
        assert run.surfaced == []

    return check


def unchanged(run: Run) -> None:
    """The synchronous call for which it was made raises it as it is."""
    assert run.reported == [run.error] and run.surfaced == []


def provided(wrapper: type[BaseException], *, plain: bool = False) -> Rule:
    """The client's tasks asked for it: a call raises ``wrapper``, and the loop what ends a program.

    Args:
        plain: an Exception is raised as it is.
    """

    def check(run: Run) -> None:
        assert run.reported and all(map(run.caused, run.reported)), run.reported
        expected = type(run.error) if plain and isinstance(run.error, Exception) else wrapper
        assert {type(error) for error in run.reported} == {expected}
        assert run.surfaced == run.ends

    return check


@dataclass(frozen=True)
class Seam:
    """A row.

    Attributes:
        name: ``Class.method``, or ``Class(parameter)`` for a function that is given.
        way: one of several ways that lead to it.
        rule: checks the effect of an error.
        scenario: has it called, and checks the bystanders.
    """

    name: str
    rule: Rule
    scenario: Callable[[Run], Awaitable[None]]
    way: str = ""

    def __str__(self) -> str:
        return f"{self.name}-{self.way}" if self.way else self.name


class _Log(logging.Handler):
    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self._run.logged.append(record.exc_info[1])


def run_seam(seam: Seam, error: BaseException) -> None:
    """Run a row with one error, on an event loop that goes on after what ends a program."""
    run = Run(error)
    faults: list[dict[str, Any]] = []
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _, context: faults.append(context))
    handler = _Log(run)
    logging.getLogger("aioprod").addHandler(handler)

    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await seam.scenario(run)

    try:
        task = loop.create_task(limited())
        while not task.done():
            try:
                loop.run_until_complete(task)
            except ENDS_PROGRAM as ending:
                run.surfaced.append(ending)
        task.result()
        left = asyncio.all_tasks(loop)
        assert not left, f"tasks are left: {left}"
    finally:
        logging.getLogger("aioprod").removeHandler(handler)
        loop.close()
    assert run.raised, "the row does not reach its seam"
    assert faults == []
    seam.rule(run)
