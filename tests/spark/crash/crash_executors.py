"""Executors killed at random while a query runs; what a stalled run reports."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from .crash_foreach import stop_file
from .crash_report import ROWS
from .crash_spec import EventLog
from .crash_stacks import ASK_STACKS, answer, question, stacks_directory
from .crash_stage import Life, Run

MASTER = "local-cluster[2,1,1024]"
TASKS = 5
# Longer than Spark waits for an executor that does not answer (spark.network.timeout, 120 s).
HUNG_S = 300.0
# How long a micro-batch may take before the run is asked what it does.
SLOW_S = 60.0
START_LIMIT_S = 240.0
_STOP_LIMIT_S = 60.0
_ANSWER_LIMIT_S = 10.0
_POLL_S = 0.05
# An executor takes 4 to 8 s to start here: the next kill may meet the one that replaces the first.
_NEXT_KILL_S = 10.0


@dataclass
class Tally:
    """The results of the kills.

    Attributes:
        kills: executors killed.
        seconds: from the first kill of each round until all its rows were committed.
        failures: exceptions of queries that failed, each of which began again.
        slow: reports of rounds that took longer than `SLOW_S`.
        hung: reports of runs that were given up after `HUNG_S`.
    """

    kills: int = 0
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    slow: list[Path] = field(default_factory=list)
    hung: list[Path] = field(default_factory=list)

    def __str__(self) -> str:
        took = sorted(self.seconds)
        quantiles = (
            f"median {took[len(took) // 2]:.1f} s, longest {took[-1]:.1f} s" if took else "none"
        )
        return (
            f"{self.kills} executors killed in {len(took)} rounds ({quantiles}), "
            f"{len(self.failures)} queries failed, {len(self.slow)} rounds longer than "
            f"{SLOW_S:g} s, {len(self.hung)} hung"
        )


def kill_executors(life: Life, chance: random.Random, kills: int, reports: Path) -> Tally:
    """Feed two micro-batches, kill one to three executors at random moments, wait until the rows
    are committed; again until this number were killed.

    Args:
        reports: a directory for the reports of stalled runs.
    """
    tally = Tally()
    while True:
        with life.running(master=MASTER, repartition=TASKS) as run:
            if _Rounds(life, run, chance, tally, reports).go(kills):
                return tally


class _Rounds:
    """Those of one run."""

    def __init__(
        self, life: Life, run: Run, chance: random.Random, tally: Tally, reports: Path
    ) -> None:
        self._life = life
        self._run = run
        self._chance = chance
        self._tally = tally
        self._reports = reports

    def go(self, kills: int) -> bool:
        """Until this number were killed. False: the run has failed, or was ended, and its rows are
        left to the next one.
        """
        self._life.feed(ROWS)
        until_committed(self._life, self._run, START_LIMIT_S)
        self._life.feed(2 * ROWS)
        began = time.monotonic()
        until_committed(self._life, self._run, START_LIMIT_S)
        undisturbed_s = time.monotonic() - began
        while self._tally.kills < kills:
            self._life.feed(2 * ROWS)
            self._pause(self._chance.uniform(0, 1.5 * undisturbed_s))
            began = time.monotonic()
            self._kill_one()
            for _ in range(self._chance.choice((0, 0, 1, 2))):
                self._pause(self._chance.uniform(0, _NEXT_KILL_S))
                self._kill_one()
            if not self._survive():
                return False
            self._tally.seconds.append(time.monotonic() - began)
        stop(self._run)
        return True

    def _kill_one(self) -> None:
        executors = self._run.executors()
        if executors:
            before = self._run.kills
            self._run.kill(self._chance.choice(executors))
            self._tally.kills += self._run.kills - before

    def _survive(self) -> bool:
        """Wait until all rows are committed. False: the run has failed, or was given up."""
        if not until(self._committed, SLOW_S):
            self._tally.slow.append(self._report("slow"))
            if not until(self._committed, HUNG_S - SLOW_S):
                self._tally.hung.append(self._report("hung"))
                return False
        if self._run.ended():
            self._tally.failures.append(str(self._run.error()))
            return False
        return True

    def _committed(self) -> bool:
        return self._run.ended() or self._life.committed() == self._life.fed

    def _pause(self, seconds: float) -> None:
        until(self._run.ended, seconds)

    def _report(self, what: str) -> Path:
        name = f"run{self._run.spec.run}-{self._tally.kills}-kills-{what}"
        return report(self._life, self._run, self._reports / name)


def until(reached: Callable[[], bool], limit_s: float) -> bool:
    """Return whether it was reached within the limit."""
    deadline = time.monotonic() + limit_s
    while not reached():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def until_committed(life: Life, run: Run, limit_s: float) -> None:
    """Wait until all rows that were fed are committed.

    Raises:
        TimeoutError: with the end of the log.
    """
    if not until(lambda: run.ended() or life.committed() == life.fed, limit_s) or run.ended():
        raise TimeoutError(
            f"{life.committed()} of {life.fed} rows committed after {limit_s:g} s "
            f"({run.error()}); the log ends with:\n{run.log_tail()}"
        )


def stop(run: Run) -> None:
    """Stop the query in order."""
    stop_file(run.spec).touch()
    run.wait_for_end(_STOP_LIMIT_S)
    error = run.error()
    assert error is None, error


def report(life: Life, run: Run, directory: Path) -> Path:
    """Keep what a run says of itself: what Spark knows, the stacks of all its processes (those of
    JVMs are in their logs), the last steps of the sink.
    """
    spec = run.spec
    directory.mkdir(parents=True)
    question(spec).touch()
    stacks = stacks_directory(spec.directory)
    for pid in run.processes():
        with suppress(ProcessLookupError):
            if (stacks / str(pid)).exists():
                os.kill(pid, ASK_STACKS)
            elif _is_java(pid):
                os.kill(pid, signal.SIGQUIT)
    until(lambda: not question(spec).exists(), _ANSWER_LIMIT_S)
    shutil.copytree(stacks, directory / "stacks", dirs_exist_ok=True)
    for log in [answer(spec), *life.logs()]:
        if log.exists():
            shutil.copy(log, directory / "-".join(log.parts[-4:]).lstrip("/"))
    events = EventLog(spec.directory, spec.run).read_run()[-60:]
    (directory / "last-steps").write_text("".join(f"{event}\n" for event in events))
    return directory


def _is_java(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    except OSError:
        return False  # gone meanwhile
