"""The readers that Spark calls, on the driver and in tasks.

The work is done in planning.py, stream_offsets.py and reading.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from aioprod.errors import ConfigError
from aioprod.spark._versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from aioprod.spark.driver_client import DriverClient
from aioprod.spark.filters import EVERYTHING, push
from aioprod.spark.offsets import OffsetRange, share_tasks
from aioprod.spark.planning import plan_batch
from aioprod.spark.positions import position_from_json, position_to_json
from aioprod.spark.source_options import SourceOptions
from aioprod.spark.stream_offsets import StreamOffsets
from aioprod.spark.worker_process import TaskPart, freeze_modules, postpone_pandas

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql.datasource import Filter  # since 4.1


class RangePartition(InputPartition):
    """One task's ranges of offsets."""

    def __init__(self, items: tuple[OffsetRange, ...]) -> None:
        super().__init__([(item.topic, item.partition, item.start, item.end) for item in items])
        self.items = items


def _tasks(options: SourceOptions, ranges: list[OffsetRange]) -> list[RangePartition]:
    minimum, maximum = options.min_records_per_partition, options.max_records_per_partition
    return [RangePartition(items) for items in share_tasks(ranges, minimum, maximum)]


class KafkaReader(TaskPart, DataSourceReader):
    """Batch reads."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._wanted = EVERYTHING

    def partitions(self) -> Sequence[InputPartition]:
        freeze_modules()
        with DriverClient(self._options) as brokers:
            ranges = brokers.run(lambda client: plan_batch(client, self._options, self._wanted))
        return _tasks(self._options, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        postpone_pandas()
        from aioprod.spark.reading import read_ranges  # only tasks need it

        freeze_modules()
        # Spark converts an empty list to one empty partition.
        return (
            read_ranges(self._options, partition.items)
            if isinstance(partition, RangePartition)
            else iter(())
        )


class FilteringReader(KafkaReader):
    """Batch reads with filters that Spark pushes down; `KafkaReader` must not have this method."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        self._wanted, remaining = push(filters)
        return remaining


class KafkaStreamReader(TaskPart, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads streams. One object serves a query on the driver; each task gets its own copy."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._stream = StreamOffsets(options)

    def initialOffset(self) -> dict[str, Any]:
        return position_to_json(self._stream.initial())

    def prepareForTriggerAvailableNow(self) -> None:
        self._stream.end_at_present()

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark passes it back to latestOffset, or passes ReadAllAvailable to read everything in one
        # micro-batch.
        limits = self._options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        return ReadAllAvailable() if limits.min_offsets is None else ReadMinRows(limits.min_offsets)

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        if start is None:
            if self._options.limits.limited:
                raise ConfigError(
                    "maxOffsetsPerTrigger and minOffsetsPerTrigger need PySpark 4.2 or "
                    f"newer, this is {pyspark.__version__}"
                )
            return position_to_json(self._stream.latest())
        return position_to_json(
            self._stream.next(
                position_from_json(start), limited=not isinstance(limit, ReadAllAvailable)
            )
        )

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._stream.last_seen is None else position_to_json(self._stream.last_seen)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = self._stream.plan(position_from_json(start), position_from_json(end))
        return _tasks(self._options, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        postpone_pandas()
        from aioprod.spark.reading import read_ranges  # only tasks need it

        freeze_modules()
        assert isinstance(partition, RangePartition)
        return read_ranges(self._options, partition.items)

    def commit(self, end: dict[str, Any]) -> None:
        self._stream.processed(position_from_json(end))

    def stop(self) -> None:
        self._stream.close()
