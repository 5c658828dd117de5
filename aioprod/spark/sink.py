"""The classes that Spark calls for a write. The work is done in writing.py in tasks, and in
committing.py at the end. They are imported only there, because planning a write needs neither.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from aioprod.spark._versions import DataSourceStreamArrowWriter, stream_batches
from aioprod.spark.errors import SinkError
from aioprod.spark.exactly_once.ids import Sink, short_run
from aioprod.spark.exactly_once.reports import TaskAttempt, stream_number
from aioprod.spark.sink_options import EXACTLY_ONCE, SinkOptions
from aioprod.spark.worker_process import TaskPart, freeze_modules, postpone_pandas

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

# The properties in which Spark passes the ids of query and batch.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_RUN_ID = "spark.jobGroup.id"


class KafkaWriter(TaskPart, DataSourceArrowWriter):
    """Writes batches. Spark creates one object for each write and copies it to tasks and driver."""

    def __init__(self, options: SinkOptions) -> None:
        freeze_modules()
        self.options = options
        self._sink = Sink(options.transactional_id_prefix, options.txn_app_id or uuid.uuid4().hex)
        self._run = short_run(uuid.uuid4().hex)
        self._version = options.txn_version or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        postpone_pandas()
        from aioprod.spark import writing

        freeze_modules()
        if self.options.delivery != EXACTLY_ONCE:
            return writing.write_batches(self.options, iterator)
        context = _task_context()
        attempt = TaskAttempt(
            self._sink, self._run, self._version, context.partitionId(), context.taskAttemptId()
        )
        return writing.write_attempt(self.options, attempt, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        from aioprod.spark import committing

        committing.commit(self.options, messages, self._version)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        from aioprod.spark import committing

        committing.abort(
            self.options,
            messages,
            "the write",
            TaskAttempt(self._sink, self._run, self._version, 0, 0),
        )


class KafkaStreamWriter(TaskPart, DataSourceStreamArrowWriter):
    """Writes streams. Spark creates one object for each micro-batch and its tasks, and another one
    for the commit or abort.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        freeze_modules()
        self.options = options
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        postpone_pandas()
        from aioprod.spark import writing

        freeze_modules()
        batches = stream_batches(iterator, self._schema)
        if self.options.delivery != EXACTLY_ONCE:
            return writing.write_batches(self.options, batches)
        context = _task_context()
        query, batch, run = (
            context.getLocalProperty(name) for name in (_QUERY_ID, _BATCH_ID, _RUN_ID)
        )
        if query is None or batch is None or run is None:
            raise SinkError(
                f"Spark does not say which batch this is ({_QUERY_ID}={query}, "
                f"{_BATCH_ID}={batch}): use delivery=at-least-once"
            )
        sink = Sink(self.options.transactional_id_prefix, query)
        number = stream_number(context.taskAttemptId())
        return writing.write_attempt(
            self.options,
            TaskAttempt(sink, short_run(run), int(batch), context.partitionId(), number),
            batches,
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        from aioprod.spark import committing

        committing.commit(self.options, messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        from aioprod.spark import committing

        # Only the tasks have the query's id.
        known = next((report.attempt for report in committing.reports_of(messages)), None)
        committing.abort(self.options, messages, f"micro-batch {batchId}", known)


def _task_context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark calls this in tasks only"
    return context
