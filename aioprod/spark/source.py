"""The data source ``aioprod``: the classes that Spark calls. What they do is in planning.py, reading.py and sink.py."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
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
from aioprod.spark._versions import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from aioprod.spark.offsets import OffsetRange, Offsets, offsets_from_json, offsets_to_json
from aioprod.spark.planning import initial_offsets, latest_offsets, next_offsets, plan_batch, plan_stream
from aioprod.spark.reading import read_range
from aioprod.spark.sink import KafkaStreamWriter, KafkaWriter, check_columns
from aioprod.spark.sink_options import parse_sink_options
from aioprod.spark.source_options import SourceOptions, parse_source_options, wants_headers

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
    ``subscribePattern`` and ``assign``, ``startingOffsets``, ``endingOffsets`` (batch), ``maxOffsetsPerTrigger`` (stream), ``minPartitions``,
    ``failOnDataLoss``, ``includeHeaders``. Writing: ``kafka.bootstrap.servers``, ``topic``. Further ``kafka.*`` options go to the client.

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
        options = parse_sink_options(self.options)
        check_columns(schema, options.topic)
        return KafkaStreamWriter(options)


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
        return [RangePartition(item) for item in asyncio.run(plan_batch(self._options))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes one empty partition of an empty list.
        return read_range(self._options, partition.item) if isinstance(partition, RangePartition) else iter(())


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reads. One object serves a query on the driver; each task gets a copy."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._target: Offsets | None = None

    def initialOffset(self) -> dict[str, Any]:
        return offsets_to_json(asyncio.run(initial_offsets(self._options)))

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = asyncio.run(latest_offsets(self._options))

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        if start is None:
            if self._options.max_offsets_per_trigger is not None:
                raise ConfigError("option maxOffsetsPerTrigger needs Spark 4.2 or newer: older versions don't limit Python sources")
            return offsets_to_json(asyncio.run(latest_offsets(self._options)))
        max_offsets = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = asyncio.run(next_offsets(self._options, offsets_from_json(start), self._target, max_offsets))
        return offsets_to_json(end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = asyncio.run(plan_stream(self._options, offsets_from_json(start), offsets_from_json(end)))
        return [RangePartition(item) for item in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return read_range(self._options, partition.item)
