"""Runs the program of a seed in a simulated loop, with what it logs and leaves behind in the
history, and checks the history.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import traceback
import warnings
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from aioprod.testing.simulation.loop import SimulatedLoop
from aioprod.testing.simulation.trace import SimulationError
from tests.simulation.history import Finding, History

_TIME_LIMIT_SECONDS = 3_600.0
_MAX_LINES = 60


class Drawn(Protocol):
    """The decisions that a seed makes before its run. Its text is for reports."""

    @property
    def seed(self) -> int:
        """The seed."""


@dataclass(slots=True)
class SimulationResult:
    """The result of a seed.

    Attributes:
        clients: the kind of clients, as ``--clients`` of the command names it, and its options.
        virtual_seconds: the virtual time that the run took.
        digest: the digest of all events: equal whenever the seed is run again.
    """

    clients: str
    scenario: Drawn
    history: History
    findings: list[Finding]
    virtual_seconds: float
    digest: str
    hostile: bool = False

    @property
    def seed(self) -> int:
        """The seed."""
        return self.scenario.seed

    def full_trace(self) -> str:
        """Return the whole history as text."""
        return "\n".join(
            [str(self.scenario), *map(str, self.history.lines), f"digest {self.digest}"]
        )

    def report(self) -> str:
        """Return the seed, its settings, the findings, and the lines of the history that show
        them.
        """
        lines = [str(self.scenario)]
        for finding in self.findings:
            lines.append(f"  {finding}")
        for finding in self.findings[:3]:
            lines.append(f"  -- history of: {finding}")
            about = [f"  {line}" for line in self.history.about((*finding.subjects, "fault"))]
            if len(about) > _MAX_LINES:
                half = _MAX_LINES // 2
                about[half:-half] = [f"  ... {len(about) - 2 * half} lines ..."]
            lines += about
        clients = "" if self.clients == "producers" else f"--clients {self.clients} "
        options = f"{clients}--seed {self.seed}"
        hostile = " --hostile" if self.hostile else ""
        lines.append(f"  replay: python -m tests.simulation {options}{hostile} --trace")
        return "\n".join(lines)


def run_seed(
    clients: str,
    scenario: Drawn,
    history: History,
    program: Callable[[SimulatedLoop], Coroutine[Any, Any, None]],
    check: Callable[[], Sequence[Finding]],
    *,
    hostile: bool,
) -> SimulationResult:
    """Run the program of a seed and check its history.

    Args:
        clients: the kind of clients, for the report.
        program: runs the cluster, its clients and the faults.
        check: returns the anomalies of the history.
        hostile: run ready tasks in random order.
    """
    loop = SimulatedLoop(scenario.seed, hostile=hostile, time_limit_seconds=_TIME_LIMIT_SECONDS)
    history.clock = loop.time
    begun = loop.time()
    failed = True
    with _captured_logs(history):
        try:
            loop.run(_run(loop, history, program))
            failed = False
        except SimulationError as error:
            history.leftovers.append(f"the run can't continue: {error}")
        except Exception as error:
            # Report it with the seed, whether the library or the test raised it.
            history.unexpected_log.append(
                "the run failed: " + "".join(traceback.format_exception(error))
            )
    ended = loop.time()
    history.clock = lambda: ended
    result = SimulationResult(
        clients,
        scenario,
        history,
        list(check()),
        ended - begun,
        f"{history.digest()}-{loop.digest()}",
        hostile,
    )
    if failed:
        # Its clients were not closed: collect them here, without their warnings.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            del loop
            gc.collect()
    return result


async def _run(
    loop: SimulatedLoop,
    history: History,
    program: Callable[[SimulatedLoop], Coroutine[Any, Any, None]],
) -> None:
    loop.set_exception_handler(lambda _, context: history.leftovers.append(_describe(context)))
    await program(loop)
    this_task = asyncio.current_task()
    await asyncio.sleep(1.0)
    for task in asyncio.all_tasks() - {this_task}:
        history.leftovers.append(f"task {task.get_name()} is still running")
    gc.collect(0)  # reports errors of futures that were never retrieved


def _describe(context: dict[str, Any]) -> str:
    error = context.get("exception")
    return (
        f"{context.get('message')}: {error!r}" if error is not None else str(context.get("message"))
    )


class _LogCapture(logging.Handler):
    """Records log lines; those with a traceback, and asyncio's, report bugs of the library."""

    def __init__(self, history: History) -> None:
        super().__init__(logging.WARNING)
        self._history = history

    def emit(self, record: logging.LogRecord) -> None:
        is_bug = record.exc_info is not None or record.name.startswith("asyncio")
        if is_bug:
            error = record.exc_info[1] if record.exc_info else None
            self._history.unexpected_log.append(f"{record.name}: {record.getMessage()} {error!r}")
        self._history.note(f"log: {record.name}: {record.getMessage()}", "log")


@contextmanager
def _captured_logs(history: History) -> Iterator[None]:
    """Record what is logged instead of printing it."""
    handler = _LogCapture(history)
    loggers = [logging.getLogger("aioprod"), logging.getLogger("asyncio")]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.WARNING)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate
