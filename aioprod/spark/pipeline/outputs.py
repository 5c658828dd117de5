"""Where the figures go: each micro-batch to Kafka and to Parquet, once each, also when it runs
again after a failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from aioprod.spark.pipeline.figures import FIGURE_NAMES, CarrierHourDelay, RouteDelay, delay_records
from aioprod.spark.pipeline.options import PipelineOptions

_DELAYS, _ROUTES = "updates", "route-updates"
# The second one of a directory whose first write was not finished.
_NOTHING_WRITTEN = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")


@dataclass(frozen=True, slots=True)
class Outputs:
    """The figures' topic and directories."""

    spark: SparkSession
    options: PipelineOptions

    @property
    def delays_path(self) -> str:
        """Parquet of the figures by carrier and hour."""
        return f"{self.options.out_dir}/delays"

    @property
    def routes_path(self) -> str:
        """Parquet of the worst routes."""
        return f"{self.options.out_dir}/routes"

    def write_delays(self, delays: DataFrame, batch_id: int) -> None:
        """One micro-batch's figures to the topic and to Parquet."""
        query_id = _query_of(delays)
        # Used twice; without it the aggregation would run twice.
        delays.persist()
        try:
            settings = {
                **self.options.client,
                "topic": self.options.sink_topic,
                **self._once(query_id, batch_id),
            }
            delay_records(delays).write.format(self.options.source_format).options(**settings).mode(
                "append"
            ).save()
            # A batch that runs again after a failure overwrites its own files.
            delays.write.mode("overwrite").parquet(
                f"{self._updates_path(_DELAYS, query_id)}/batch={batch_id}"
            )
        finally:
            delays.unpersist()

    def write_routes(self, routes: DataFrame, batch_id: int) -> None:
        """All routes anew: the query's output mode is complete."""
        # Not over those of the last batch: a run that is stopped meanwhile would have none.
        routes.coalesce(1).write.mode("overwrite").parquet(
            f"{self._updates_path(_ROUTES, _query_of(routes))}/batch={batch_id}"
        )

    def compact(self, delays_query: str, routes_query: str) -> None:
        """Of all updates keep the last one of each carrier and hour, and the last one of the
        routes.
        """
        self._compact_delays(delays_query)
        updates = self._read(self._updates_path(_ROUTES, routes_query))
        if updates is not None:
            newest = updates.agg(F.max("batch").alias("batch")).collect()[0]["batch"]
            updates.where(F.col("batch") == F.lit(newest)).drop("batch").coalesce(1).write.mode(
                "overwrite"
            ).parquet(self.routes_path)

    def _compact_delays(self, query_id: str) -> None:
        updates = self._read(self._updates_path(_DELAYS, query_id))
        if updates is None:
            return
        last = updates.groupBy("carrier", "time_hour").agg(
            F.max_by(F.struct(*FIGURE_NAMES), "batch").alias("last")
        )
        flat = last.select("carrier", "time_hour", "last.*").orderBy("time_hour", "carrier")
        flat.coalesce(1).write.mode("overwrite").parquet(self.delays_path)

    def delays(self) -> list[CarrierHourDelay]:
        """The compacted figures, by hour and carrier."""
        rows = self._rows(self.delays_path, "carrier", F.unix_seconds("time_hour").alias("second"))
        hours = {
            row["second"]: f"{datetime.fromtimestamp(row['second'], UTC):%Y-%m-%dT%H:%M:%SZ}"
            for row in rows
        }
        found = [
            CarrierHourDelay(
                row["carrier"], hours[row.pop("second")], *(row[name] for name in FIGURE_NAMES)
            )
            for row in rows
        ]
        return sorted(found, key=lambda delay: delay.place)

    def routes(self) -> list[RouteDelay]:
        """The worst routes, worst first."""
        found = [RouteDelay(**row) for row in self._rows(self.routes_path, "origin", "dest")]
        return sorted(found, key=lambda route: route.place)

    def _once(self, query_id: str, batch_id: int) -> Mapping[str, str]:
        """What makes a write of this library's sink exactly-once inside ``foreachBatch``: the same
        pair again is not written again.
        """
        if self.options.source_format != "aioprod":
            return {}
        return {"txnAppId": query_id, "txnVersion": str(batch_id)}

    def _updates_path(self, kind: str, query_id: str) -> str:
        # Batch numbers begin anew with a new checkpoint, and old updates must not win over its own.
        return f"{self.options.out_dir}/{kind}/query={query_id}"

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
        rows: list[dict[str, Any]] = frame.select(*columns, *FIGURE_NAMES).toArrow().to_pylist()
        return rows


def _query_of(batch: DataFrame) -> str:
    """The id of the query that a micro-batch is of."""
    query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    assert query_id is not None, "Spark sets it in foreachBatch"
    return query_id
