"""The data source under test, with a watch on the calls of its stream writer. Workers import it by
its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from aioprod.spark.source import KafkaDataSource

from .crash_points import watch


class WatchedDataSource(KafkaDataSource):
    """``format("aioprod_watched")``."""

    @classmethod
    def name(cls) -> str:
        return "aioprod_watched"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return WatchedWriter(super().streamWriter(schema, overwrite))


class WatchedWriter(DataSourceStreamArrowWriter):
    """The sink's own writer, whose calls are phases."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        with watch().during("write", batch, context.partitionId(), context.attemptNumber()):
            message: WriterCommitMessage = self._writer.write(iterator)
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with watch().during("commit", batchId):
            self._writer.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with watch().during("abort", batchId):
            self._writer.abort(messages, batchId)
