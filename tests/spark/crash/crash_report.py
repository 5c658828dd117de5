"""A life under fire: feed, run, crash, again and again, then judge; and the table's row for each
crash.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

from .crash_spec import Event, Point
from .crash_stage import Life, Outcome
from .crash_tracebacks import tracebacks

ROWS = 60


@dataclass(frozen=True)
class Row:
    """A crash and what came of the rows that were fed for its run.

    Attributes:
        step: the step it was in.
        kills: processes killed.
        replayed: micro-batches that the run did again, as a run before it had begun them.
        duplicates, missing: number of these among the rows that were fed for this run, at the end
            of the life.
        rows: how many these were.
        master: Spark's master URL.
        seconds: how long the run took.
    """

    step: str
    kills: int
    replayed: int
    rows: int
    duplicates: int
    missing: int
    master: str
    seconds: float


COLUMNS = [each.name for each in fields(Row)]


@dataclass(frozen=True)
class _Crash:
    step: str
    master: str
    rows: range
    outcome: Outcome


#: Other numbers of cores, source tasks and shuffle partitions in each run that follows another.
SHAPES: list[tuple[str, int | None, int | None]] = [
    ("local[2]", None, None),
    ("local[4,4]", 7, None),
    ("local[3]", None, 5),
]


class Campaign:
    """The runs of one life, each with fresh rows, each shaped unlike the previous one."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self._crashes: list[_Crash] = []

    def crash(
        self,
        *points: Point,
        fresh: bool = True,
        rows: int = ROWS,
        master: str | None = None,
        tasks: int | None = None,
        kill_after_s: float | None = None,
        answer: Callable[[Event], int] | None = None,
        options: dict[str, str] | None = None,
    ) -> Outcome:
        """Feed rows and run into a crash.

        Args:
            fresh: ``from_batch`` of the points counts from the first micro-batch that no run has
                begun before; False: from the query's first.
            rows: how many to feed; ``ROWS`` are a micro-batch.
            master: Spark's master URL; None: another than the run before had.
            tasks: how many write; None: as many as Spark and the shape make them.
            kill_after_s, answer, options: as for `Life.run`.
        """
        usual_master, min_partitions, repartition = SHAPES[self.life.runs % len(SHAPES)]
        fed, first = self.life.fed, self.life.next_batch() if fresh else 0
        self.life.feed(rows)
        outcome = self.life.run(
            *(replace(point, from_batch=first + point.from_batch) for point in points),
            master=master or usual_master,
            min_partitions=min_partitions,
            repartition=tasks or repartition,
            kill_after_s=kill_after_s,
            answer=answer,
            options=options,
        )
        what = [point.name for point in points] or [
            "nothing" if kill_after_s is None else f"after {kill_after_s:.1f} s"
        ]
        self._crashes.append(
            _Crash(", ".join(what), master or usual_master, range(fed, self.life.fed), outcome)
        )
        return outcome

    def finish(self, options: dict[str, str] | None = None) -> list[Row]:
        """Make a last undisturbed run, and check all results. Raises AssertionError if it failed,
        open transactions are left, or a process has printed of objects that were left behind.
        """
        outcome = self.crash(options=options)
        assert outcome.error is None and not outcome.crashed, outcome.error
        ends = self.life.ends()
        try:
            ends.wait_for(ends.high())
        finally:
            ends.close()
        left = [each.text for each in tracebacks(self.life.logs()) if each.left_behind]
        assert not left, left
        verdict = self.life.judge()
        assert not verdict.wrong, verdict.wrong[:5]
        return [
            Row(
                step=crash.step,
                kills=crash.outcome.kills,
                replayed=len(crash.outcome.replayed),
                rows=len(crash.rows),
                duplicates=sum(number in crash.rows for number in verdict.duplicates),
                missing=sum(number in crash.rows for number in verdict.missing),
                master=crash.master,
                seconds=round(crash.outcome.seconds, 1),
            )
            for crash in self._crashes
        ]
