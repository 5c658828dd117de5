"""What a task reports to the driver."""

from __future__ import annotations

from dataclasses import dataclass

from aioprod.spark.exactly_once.ids import NUMBERS, Sink
from aioprod.types import PreparedTransaction


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """An attempt of a task.

    Attributes:
        run: the query's run, as `ids.short_run` returns it.
        version: the number of the batch.
        partition: the task's number.
        number: the attempt's number; unique among running attempts.
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
    """Return the number of a stream's task attempt: Spark's own, which is unique in an application,
    modulo `ids.NUMBERS`.

    Spark's attempt number within a stage is not unique: it starts at 0 again if Spark runs a stage
    again, during running attempts of the first.
    """
    return task_attempt_id % NUMBERS


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What an attempt did.

    Attributes:
        transaction: the prepared transaction to commit; None if there were no rows, or the batch
            was written before.
        rows, payload_bytes: the number of the task's rows, and the bytes of their keys and values,
            even if they were not written.
        digest: of these rows, as `digest.RowDigest` computes it.
        topics: the topics of the rows.
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
