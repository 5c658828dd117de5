"""The data source under test, with a watch on the calls of its writers. Workers import it by its
name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from aioprod.spark.source import KafkaDataSource

from .crash_points import watch
from .crash_stacks import answer_stacks

VERSION = "txnversion"


class WatchedDataSource(KafkaDataSource):
    """``format("aioprod_watched")``."""

    @classmethod
    def name(cls) -> str:
        return "aioprod_watched"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        version = next(value for name, value in self.options.items() if name.lower() == VERSION)
        return WatchedBatchWriter(super().writer(schema, overwrite), int(version))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return WatchedWriter(super().streamWriter(schema, overwrite))


def _write(writer: Any, iterator: Iterator[Any], batch: int | None = None) -> WriterCommitMessage:
    answer_stacks()
    context = TaskContext.get()
    assert context is not None
    if batch is None:
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
    with watch().during("write", batch, context.partitionId(), context.attemptNumber()):
        message: WriterCommitMessage = writer.write(iterator)
    return message


class WatchedBatchWriter(DataSourceArrowWriter):
    """The sink's own writer of ``df.write`` in ``foreachBatch``, whose calls are phases."""

    def __init__(self, writer: Any, batch: int) -> None:
        self._writer = writer
        self._batch = batch

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _write(self._writer, iterator, self._batch)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with watch().during("commit", self._batch):
            self._writer.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        with watch().during("abort", self._batch):
            self._writer.abort(messages)


class WatchedWriter(DataSourceStreamArrowWriter):
    """The sink's own writer, whose calls are phases."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _write(self._writer, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with watch().during("commit", batchId):
            self._writer.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with watch().during("abort", batchId):
            self._writer.abort(messages, batchId)
