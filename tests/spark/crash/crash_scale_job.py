"""The driver of the run on a cluster: copies a topic exactly once, from its checkpoint on. ``python
-m tests.spark.crash.crash_scale_job SPEC``.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from aioprod.spark import register, spark_session_builder

_LIMIT_S = 3_600


@dataclass(frozen=True)
class ScaleSpec:
    """The parameters of the job.

    Attributes:
        directory: for the checkpoint and files of Spark.
        master: Spark's master URL.
        rows_per_batch: ``maxOffsetsPerTrigger``.
        python_path: path of the executors' Python.
    """

    directory: str
    master: str
    servers: str
    source: str
    target: str
    rows_per_batch: int
    python_path: str

    @property
    def checkpoint(self) -> Path:
        return Path(self.directory) / "checkpoint"

    @property
    def batches(self) -> Path:
        """The file for the progress of the job's micro-batches, a line of JSON each."""
        return Path(self.directory) / "batches.jsonl"

    def save(self) -> Path:
        path = Path(self.directory) / "spec.json"
        path.write_text(json.dumps(asdict(self)))
        return path


def run(spec: ScaleSpec) -> None:
    """Copy what there is.

    Raises:
        StreamingQueryException: the query failed.
    """
    builder = spark_session_builder(spec.master, app_name="aioprod-scale", shuffle_partitions=2)
    for name, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "640m",
        "spark.executor.memory": "768m",
        "spark.executor.cores": "1",
        "spark.executorEnv.PYTHONPATH": spec.python_path,
        "spark.ui.enabled": "false",
        "spark.local.dir": f"{spec.directory}/local",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.sql.warehouse.dir": f"{spec.directory}/sql",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    rows = (
        spark.readStream.format("aioprod")
        .option("kafka.bootstrap.servers", spec.servers)
        .option("subscribe", spec.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", spec.rows_per_batch)
        .load()
    )
    query = (
        rows.select("key", "value")
        .writeStream.format("aioprod")
        .option("kafka.bootstrap.servers", spec.servers)
        .option("topic", spec.target)
        .option("checkpointLocation", str(spec.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(_LIMIT_S), "the query did not end"
    finally:
        with spec.batches.open("a") as file:
            for progress in query.recentProgress:
                file.write(progress.json.replace("\n", " ") + "\n")


if __name__ == "__main__":
    run(ScaleSpec(**json.loads(Path(sys.argv[1]).read_text())))
