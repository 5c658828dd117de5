"""The data source ``aioprod``: the classes that Spark calls. What they do is in planning.py, reading.py and sink.py."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

from aioprod.errors import ConfigError
from aioprod.spark._versions import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows, SupportsTriggerAvailableNow
from aioprod.spark.driver_client import DriverClient
from aioprod.spark.offsets import OffsetRange, offsets_from_json, offsets_to_json
from aioprod.spark.planning import plan_batch
from aioprod.spark.reading import read_range
from aioprod.spark.sink import KafkaStreamWriter, KafkaWriter
from aioprod.spark.sink_columns import check_columns
from aioprod.spark.sink_options import parse_sink_options
from aioprod.spark.source_options import SourceOptions, parse_source_options, wants_headers
from aioprod.spark.stream_offsets import StreamOffsets

_COLUMNS = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
]
_HEADERS = StructField("headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])))


def source_columns(*, include_headers: bool) -> StructType:
    """The columns of Spark's own Kafka source, name by name and type by type."""
    return StructType([*_COLUMNS, _HEADERS] if include_headers else _COLUMNS)


class KafkaDataSource(DataSource):
    """Kafka topics for ``spark.read``, ``spark.readStream``, ``df.write`` and ``df.writeStream`` under ``format("aioprod")``.

    Options and columns are those of Spark's own Kafka connector. Reading: ``kafka.bootstrap.servers``, one of ``subscribe``,
    ``subscribePattern`` and ``assign``, ``startingOffsets`` and ``endingOffsets`` with their forms by timestamp, ``maxOffsetsPerTrigger``,
    ``minOffsetsPerTrigger``, ``minPartitions``, ``failOnDataLoss``, ``includeHeaders`` and more: see docs/spark.md. Writing:
    ``kafka.bootstrap.servers``, ``topic``. Further ``kafka.*`` options go to the client.

    Spark gives Python sinks the output modes append and complete, not update; write updates from ``foreachBatch`` with ``df.write``.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(dict(options))

    @classmethod
    def name(cls) -> str:
        return "aioprod"

    def schema(self) -> StructType:
        return source_columns(include_headers=wants_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        return KafkaReader(parse_source_options(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return KafkaStreamReader(parse_source_options(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise ConfigError('Kafka topics can only be appended to: use .mode("append")')
        options = parse_sink_options(self.options)
        check_columns(schema, options.topic)
        return KafkaWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        # Output mode complete asks for overwriting; as in Spark's own sink each result is appended.
        options = parse_sink_options(self.options, streaming=True)
        check_columns(schema, options.topic)
        return KafkaStreamWriter(options, schema)


class RangePartition(InputPartition):
    """One task's range of offsets."""

    def __init__(self, item: OffsetRange) -> None:
        super().__init__((item.topic, item.partition, item.start, item.end))
        self.item = item


class KafkaReader(DataSourceReader):
    """Batch reads."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        with DriverClient(self._options) as brokers:
            return [RangePartition(item) for item in brokers.run(lambda client: plan_batch(client, self._options))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes one empty partition of an empty list.
        return read_range(self._options, partition.item) if isinstance(partition, RangePartition) else iter(())


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reads. One object serves a query on the driver; each task gets a copy of one that was never asked anything."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._stream = StreamOffsets(options)

    def initialOffset(self) -> dict[str, Any]:
        return offsets_to_json(self._stream.initial())

    def prepareForTriggerAvailableNow(self) -> None:
        self._stream.end_at_present()

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark hands it back to latestOffset, or ReadAllAvailable for one micro-batch of everything.
        limits = self._options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        return ReadAllAvailable() if limits.min_offsets is None else ReadMinRows(limits.min_offsets)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        if start is None:
            if self._options.limits.limited:
                raise ConfigError(f"maxOffsetsPerTrigger and minOffsetsPerTrigger need PySpark 4.2 or newer, this is {pyspark.__version__}")
            return offsets_to_json(self._stream.latest())
        return offsets_to_json(self._stream.next(offsets_from_json(start), limited=not isinstance(limit, ReadAllAvailable)))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._stream.last_seen is None else offsets_to_json(self._stream.last_seen)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [RangePartition(item) for item in self._stream.plan(offsets_from_json(start), offsets_from_json(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return read_range(self._options, partition.item)

    def commit(self, end: dict[str, Any]) -> None:
        self._stream.processed(offsets_from_json(end))

    def stop(self) -> None:
        self._stream.close()
