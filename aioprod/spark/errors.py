"""Errors of a write.

KafkaError
└── SinkError                     rows could not be written: the task or the batch fails
    ├── TransactionTimedOutError  a transaction timed out; no row of the batch is visible
    ├── ReplayMismatchError       the batch was written before, with other rows
    ├── NewerDecisionError        a later batch was written: the checkpoint is stale or shared
    │   └── CopiedCheckpointError the checkpoint was copied from a query that writes elsewhere
    └── LostTransactionsError     rows of a batch that was decided are gone
"""

from __future__ import annotations

from aioprod.errors import KafkaError


class SinkError(KafkaError):
    """Rows could not be written: the task fails, and Spark retries it or fails the query."""


class TransactionTimedOutError(SinkError):
    """A transaction is too old to be committed within ``kafka.transaction.timeout.ms``, or the
    broker has aborted it: no row of the batch is visible, and the next run writes it again.
    """


class ReplayMismatchError(SinkError):
    """The batch was written before, and Spark now provides other rows for it. The rows that were
    written stay; the new ones are not written.
    """


class NewerDecisionError(SinkError):
    """A batch with a higher number was written already: the checkpoint is older than the topic, or
    another query uses it.
    """


class CopiedCheckpointError(NewerDecisionError):
    """This batch or a later one was written to another topic: the checkpoint was copied from
    another query, the option ``topic`` was changed, or two outputs have one ``txnAppId``. Nothing
    is written.
    """


class LostTransactionsError(SinkError):
    """A batch was decided, but some (not all) of its transactions were aborted before they were
    committed, so the decision can't be taken back. Their rows are lost; the others are visible.

    Attributes:
        version: the batch's number.
        rows: the number of lost rows.
    """

    def __init__(self, text: str, version: int, rows: int) -> None:
        super().__init__(text)
        self.version = version
        self.rows = rows
