"""Writes each micro-batch's delays to Kafka and to Parquet, once each, even if it is repeated after
a failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from aioprod.demo.pipeline.delays import (
    MEASURES,
    CarrierHourDelay,
    RouteDelay,
    carrier_hours,
    delay_records,
    routes,
    worst_routes,
)
from aioprod.demo.pipeline.options import PipelineOptions
from aioprod.spark.foreach_batch import query_id, write_once

# Names the second directory, used if the first write was not completed.
_NOTHING_WRITTEN = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")


@dataclass(frozen=True, slots=True)
class Outputs:
    """The topic and the directories of the delays."""

    spark: SparkSession
    options: PipelineOptions

    @property
    def delays_path(self) -> str:
        """Parquet of the delays by carrier and hour."""
        return f"{self.options.out_dir}/delays"

    @property
    def routes_path(self) -> str:
        """Parquet of the worst routes."""
        return f"{self.options.out_dir}/routes"

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write one micro-batch: delays by carrier and hour to the topic, all to Parquet."""
        # It is used twice; without this the aggregation would run twice.
        batch.persist()
        try:
            settings = {**self.options.client, "topic": self.options.sink_topic}
            records = delay_records(carrier_hours(batch))
            if self.options.source_format == "aioprod":
                write_once(records, batch, batch_id, settings)
            else:
                records.write.format("kafka").options(**settings).mode("append").save()
            # A batch repeated after a failure overwrites its own files.
            batch.write.mode("overwrite").parquet(
                f"{self._updates_path(query_id(batch))}/batch={batch_id}"
            )
        finally:
            batch.unpersist()

    def compact(self, query: str) -> None:
        """Keep only the last update of each carrier and hour, and of each route."""
        updates = self._read(self._updates_path(query))
        if updates is None:
            return
        group = ("carrier", "time_hour", "origin", "dest")
        newest = F.max_by(F.struct(*MEASURES), "batch").alias("last")
        last = updates.groupBy(*group).agg(newest).select(*group, "last.*").persist()
        try:
            # One file, so it is sorted as one partition: without a shuffle.
            delays = carrier_hours(last).coalesce(1).sortWithinPartitions("time_hour", "carrier")
            self._replace(delays, self.delays_path)
            self._replace(worst_routes(routes(last)).coalesce(1), self.routes_path)
        finally:
            last.unpersist()

    def _replace(self, frame: DataFrame, path: str) -> None:
        frame.write.mode("overwrite").parquet(path)

    def delays(self) -> list[CarrierHourDelay]:
        """Return the compacted delays, by hour and carrier."""
        rows = self._rows(self.delays_path, "carrier", F.unix_seconds("time_hour").alias("second"))
        hours = {
            row["second"]: f"{datetime.fromtimestamp(row['second'], UTC):%Y-%m-%dT%H:%M:%SZ}"
            for row in rows
        }
        found = [
            CarrierHourDelay(
                row["carrier"], hours[row.pop("second")], *(row[name] for name in MEASURES)
            )
            for row in rows
        ]
        return sorted(found, key=lambda delay: delay.place)

    def routes(self) -> list[RouteDelay]:
        """Return the worst routes, worst first."""
        found = [RouteDelay(**row) for row in self._rows(self.routes_path, "origin", "dest")]
        return sorted(found, key=lambda route: route.place)

    def _updates_path(self, query: str) -> str:
        # Batch numbers restart with a new checkpoint, whose updates must win over old ones.
        return f"{self.options.out_dir}/updates/query={query}"

    def _read(self, path: str) -> DataFrame | None:
        try:
            return self.spark.read.option("basePath", path).parquet(path)
        except AnalysisException as error:
            if error.getCondition() not in _NOTHING_WRITTEN:
                raise
            return None

    def _rows(self, path: str, *columns: str | Column) -> list[dict[str, Any]]:
        frame = self._read(path)
        if frame is None:
            return []
        rows: list[dict[str, Any]] = frame.select(*columns, *MEASURES).toArrow().to_pylist()
        return rows
