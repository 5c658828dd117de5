"""What a task tells the driver."""

from __future__ import annotations

from dataclasses import dataclass

from aioprod.spark.exactly_once.ids import NUMBERS, Sink
from aioprod.types import PreparedTransaction


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """Who writes.

    Attributes:
        run: which run of the query, as `ids.short_run` has it.
        version: the number of the batch.
        partition: the task's number.
        number: of the attempt; no two that are alive at the same time have the same.
    """

    sink: Sink
    run: str
    version: int
    partition: int
    number: int

    @property
    def transactional_id(self) -> str:
        """The id of this attempt's transaction."""
        return self.sink.transactional_id(self.run, self.version, self.number)


def stream_number(task_attempt_id: int) -> int:
    """The number of a stream's task attempt: Spark's own, which is new for each attempt of a whole
    application, modulo `ids.NUMBERS`.

    Its attempt number is none: it begins at 0 again where Spark runs a stage a second time, beside
        what is left of the first.
    """
    return task_attempt_id % NUMBERS


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What an attempt did.

    Attributes:
        transaction: what waits to be committed; None where there were no rows, or the batch was
            written before.
        rows, payload_bytes: how many rows the task had, and the bytes of their keys and values;
            counted also where they were not written.
        digest: of these rows, as `digest.RowDigest` has it.
        topics: where the rows went.
        started_at: when the transaction began, in seconds since 1970 by the worker's clock.
        decided: whether the task found the batch written before.
    """

    attempt: TaskAttempt
    transaction: PreparedTransaction | None = None
    rows: int = 0
    payload_bytes: int = 0
    digest: int = 0
    topics: frozenset[str] = frozenset()
    started_at: float = 0.0
    decided: bool = False
