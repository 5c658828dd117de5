"""Writes orders from a Kafka topic to a Delta table and to another topic, both exactly once.

pip install "aioprod[spark]" "pyspark==4.2.1"
python spark_delta.py --table ./orders --checkpoint ./checkpoint --once

Delta and aioprod share the options `txnAppId` and `txnVersion`: data with a pair that was already
written is not written again. So if the job is killed between the two writes of a micro-batch, the
next run gets the same micro-batch again and writes only the missing part.

Delta's jars come from Maven when the session starts. Delta 4.4.0 is for Spark 4.2: with 4.3,
writing works, but reading does not.
"""

from __future__ import annotations

import argparse
import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from aioprod.spark import spark_session_builder

DELTA = "io.delta:delta-spark_2.13:4.4.0"
SCHEMA = "customer STRING, item STRING, quantity INT, price DECIMAL(9,2)"


def session() -> SparkSession:
    """Return a session with Delta."""
    catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    return (
        spark_session_builder(app_name="orders")
        .config("spark.jars.packages", DELTA)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", catalog)
        .getOrCreate()
    )


def start(
    spark: SparkSession, servers: str, table: str, checkpoint: str, *, once: bool
) -> StreamingQuery:
    """Start the query."""
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
        # The query's id, which is stored in the checkpoint: with a new checkpoint, the numbers of
        # micro-batches begin at 0 again.
        query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        once = {"txnAppId": f"{query_id}", "txnVersion": f"{batch_id}"}
        batch.persist()  # otherwise both writes read the topic
        try:
            # Columns that the table does not have yet are added.
            batch.write.format("delta").mode("append").options(**once).option(
                "mergeSchema", "true"
            ).save(table)
            batch.selectExpr(
                "customer AS key", "to_json(struct(customer, item, quantity, price)) AS value"
            ).write.format("aioprod").mode("append").options(**once).option(
                "kafka.bootstrap.servers", servers
            ).option("topic", "orders-clean").save()
        finally:
            batch.unpersist()

    writer = orders.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    return (writer.trigger(availableNow=True) if once else writer).start()


def main() -> None:
    parser = argparse.ArgumentParser(description="Store orders in a Delta table and a topic.")
    parser.add_argument("--table", required=True, help="directory or URL of the Delta table")
    parser.add_argument("--checkpoint", required=True, help="a directory that survives restarts")
    parser.add_argument("--once", action="store_true", help="stop when all orders are stored")
    parser.add_argument(
        "--bootstrap-servers",
        default=os.environ.get("AIOPROD_BOOTSTRAP_SERVERS", "localhost:9092"),
    )
    options = parser.parse_args()
    query = start(
        session(),
        options.bootstrap_servers,
        options.table,
        options.checkpoint,
        once=options.once,
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
