"""A task's report to the driver, in the commit message that it returns to Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import WriterCommitMessage

from aioprod.spark.exactly_once.ids import NUMBERS, Sink
from aioprod.types import PreparedTransaction

MODULUS: Final = 1 << 64
"""Digests are sums modulo this number."""


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """An attempt of a task.

    Attributes:
        run: the run of the query, in the form of `ids.short_run`.
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

    Spark's attempt number within a stage is not unique: it restarts at 0 if Spark runs a stage
    again, while attempts of the first run may still be running.
    """
    return task_attempt_id % NUMBERS


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The result of an attempt.

    Attributes:
        transaction: the prepared transaction to commit; None if there were no rows, or the batch
            was written before.
        rows, payload_bytes: the number of the task's rows, and the size of their keys and values in
            bytes, even if they were not written.
        digest: the digest of these rows, from `digest.RowDigest`.
        topics: the topics of the rows.
        started_at: the start of the transaction, in seconds since 1970 by the worker's clock.
        decided: True if the task found that the batch was written before.
    """

    attempt: TaskAttempt
    transaction: PreparedTransaction | None = None
    rows: int = 0
    payload_bytes: int = 0
    digest: int = 0
    topics: frozenset[str] = frozenset()
    started_at: float = 0.0
    decided: bool = False


@dataclass
class Written(WriterCommitMessage):
    """The result of one write task.

    Attributes:
        rows: the number of acknowledged records.
        payload_bytes: the size of their keys and values in bytes.
        report: the data that the driver needs to make them visible; None if they are already
            visible (``delivery=at-least-once``).
    """

    rows: int
    payload_bytes: int
    report: TaskReport | None = None
