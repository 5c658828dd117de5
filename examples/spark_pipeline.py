"""A Spark pipeline to start from: it validates and converts orders from a Kafka topic, and writes
them to two other topics.

pip install "aioprod[spark]"
python spark_pipeline.py --checkpoint ./checkpoint --once

Orders are JSON: {"customer": "42", "item": "tea", "quantity": 3, "price": 4.5}. Valid orders are
written to the topic orders-priced with their total, all others unchanged to orders-rejected. Each
row is written exactly once, even if the pipeline is killed: restart it with the same checkpoint,
and read the topics with isolation_level="read_committed".
"""

from __future__ import annotations

import argparse
import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from aioprod.spark import spark_session_builder

SCHEMA = "customer STRING, item STRING, quantity INT, price DOUBLE"


def parse(records: DataFrame) -> DataFrame:
    """Add the column `order`, which is null if a record is not a valid order."""
    order = F.from_json(F.col("value").cast("string"), SCHEMA)
    valid = (order["customer"].isNotNull()) & (order["quantity"] > 0) & (order["price"] >= 0)
    return records.withColumn("order", F.when(valid, order))


def priced(parsed: DataFrame) -> DataFrame:
    """Return the rows of orders-priced, with the customer as the key."""
    total = F.round(F.col("order.quantity") * F.col("order.price"), 2)
    return parsed.where("order IS NOT NULL").select(
        F.col("order.customer").cast("binary").alias("key"),
        F.to_json(F.struct("order.customer", "order.item", total.alias("total")))
        .cast("binary")
        .alias("value"),
    )


def rejected(parsed: DataFrame) -> DataFrame:
    """Return the rows of orders-rejected."""
    return parsed.where("order IS NULL").select("key", "value")


def start(
    spark: SparkSession, servers: str, checkpoint: str, once: bool
) -> tuple[StreamingQuery, ...]:
    """Start both queries."""
    records = (
        spark.readStream.format("aioprod")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    parsed = parse(records)
    queries = []
    for topic, rows in (("orders-priced", priced(parsed)), ("orders-rejected", rejected(parsed))):
        writer = (
            rows.writeStream.format("aioprod")
            .queryName(topic)
            .option("kafka.bootstrap.servers", servers)
            .option("topic", topic)
            .option("checkpointLocation", f"{checkpoint}/{topic}")
        )
        queries.append((writer.trigger(availableNow=True) if once else writer).start())
    return tuple(queries)


def main() -> None:
    parser = argparse.ArgumentParser(description="Price orders with Spark.")
    parser.add_argument("--checkpoint", required=True, help="a directory that survives restarts")
    parser.add_argument("--once", action="store_true", help="stop when all orders are processed")
    parser.add_argument(
        "--bootstrap-servers",
        default=os.environ.get("AIOPROD_BOOTSTRAP_SERVERS", "localhost:9092"),
    )
    options = parser.parse_args()
    spark = spark_session_builder(app_name="orders").getOrCreate()
    for query in start(spark, options.bootstrap_servers, options.checkpoint, options.once):
        query.awaitTermination()


if __name__ == "__main__":
    main()
