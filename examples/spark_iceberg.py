"""Orders from a Kafka topic to an Iceberg table and to another topic, in both exactly once.

pip install "aioprod[spark]" "pyspark==4.1.4"
python spark_iceberg.py --warehouse ./warehouse --checkpoint ./checkpoint --once

Each append to the table stores the query's id and the number of the micro-batch in the snapshot
that it creates, and a micro-batch whose snapshot exists is not appended again. aioprod does the
same with `txnAppId` and `txnVersion`. So if the job is killed between both writes of a micro-batch,
the next run, which gets the same micro-batch again, writes only what is missing.

Iceberg's jar comes from Maven when the session starts. The newest Spark that Iceberg 1.12.0 has a
runtime for is 4.1.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from aioprod.spark import spark_session_builder

ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
SCHEMA = "customer STRING, item STRING, quantity INT, price DECIMAL(9,2)"
TABLE = "lake.sales.orders"
# The field of a snapshot's summary that names the micro-batch.
MICRO_BATCH = "orders.micro-batch"


def session(warehouse: str) -> SparkSession:
    """A session with a catalog of Iceberg tables in a directory."""
    return (
        spark_session_builder(app_name="orders")
        .config("spark.jars.packages", ICEBERG)
        .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.lake.type", "hadoop")
        .config("spark.sql.catalog.lake.warehouse", str(Path(warehouse).resolve()))
        .getOrCreate()
    )


def append(batch: DataFrame, micro_batch: str) -> None:
    """Append a micro-batch to the table, unless it is there."""
    snapshots = batch.sparkSession.table(f"{TABLE}.snapshots")
    if snapshots.where(F.col("summary")[MICRO_BATCH] == micro_batch).isEmpty():
        # A column that the table does not have yet is added to it.
        batch.writeTo(TABLE).option("mergeSchema", "true").option(
            f"snapshot-property.{MICRO_BATCH}", micro_batch
        ).append()


def start(spark: SparkSession, servers: str, checkpoint: str, *, once: bool) -> StreamingQuery:
    """Create the table if it is missing, and start the query."""
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {TABLE} ({SCHEMA}, partition INT, offset BIGINT) "
        "USING iceberg TBLPROPERTIES ('write.spark.accept-any-schema' = 'true')"
    )
    orders = (
        spark.readStream.format("aioprod")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("value.format", "json")
        .option("value.schema", SCHEMA)
        .load()
        .where("value.customer IS NOT NULL")
        .select("value.*", "partition", "offset")
    )

    def write(batch: DataFrame, batch_id: int) -> None:
        # The query's id, which the checkpoint keeps: with a new checkpoint the numbers of
        # micro-batches begin at 0 again.
        query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        batch.persist()  # otherwise both writes read the topic
        try:
            append(batch, f"{query_id} {batch_id}")
            clean = batch.selectExpr(
                "customer AS key", "to_json(struct(customer, item, quantity, price)) AS value"
            ).write.format("aioprod")
            clean.mode("append").options(
                txnAppId=f"{query_id}", txnVersion=f"{batch_id}", topic="orders-clean"
            ).option("kafka.bootstrap.servers", servers).save()
        finally:
            batch.unpersist()

    writer = orders.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    return (writer.trigger(availableNow=True) if once else writer).start()


def main() -> None:
    parser = argparse.ArgumentParser(description="Store orders in an Iceberg table and a topic.")
    parser.add_argument("--warehouse", required=True, help="directory of the Iceberg tables")
    parser.add_argument("--checkpoint", required=True, help="a directory that survives restarts")
    parser.add_argument("--once", action="store_true", help="stop when all orders are stored")
    parser.add_argument(
        "--bootstrap-servers", default=os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")
    )
    options = parser.parse_args()
    query = start(
        session(options.warehouse),
        options.bootstrap_servers,
        options.checkpoint,
        once=options.once,
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
