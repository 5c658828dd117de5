"""Applies the changes of a database's table, which Debezium writes to a topic, to an Iceberg or
Delta table.

pip install "aioprod[spark,schema-registry]" "pyspark==4.1.4"
python spark_changes.py shop.public.customers iceberg lake.shop.customers --key id \
    --warehouse ./lake --checkpoint ./checkpoint --once

pip install "aioprod[spark,schema-registry]" "pyspark==4.2.1"
python spark_changes.py shop.public.customers delta 'delta.`/data/customers`' --key id \
    --checkpoint ./checkpoint --once

Each change has its effect exactly once. If the job is killed after a commit of the table, the next
run gets the same micro-batch again. It applies the newest change of each row, so the second time
changes nothing. Debezium writes all changes of a row to one partition, in order; do not change the
topic's number of partitions.

The columns are those of the newest schema in the registry: a column that the database gets is added
when the job starts the next time. Records that can't be decoded go to a topic of dead letters.
Truncations are not applied; Debezium leaves them out by default.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from aioprod.spark import spark_session_builder

APPLIED = ("c", "r", "u", "d")  # create, read by the first snapshot, update, delete
SETTINGS = {
    "iceberg": {  # for Spark 4.1: a catalog `lake`, with tables in a directory
        "spark.jars.packages": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
    },
    "delta": {  # for Spark 4.2
        "spark.jars.packages": "io.delta:delta-spark_2.13:4.4.0",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
}
# Iceberg then writes the rows that changed, not all files that contain them.
PROPERTIES = {"iceberg": "TBLPROPERTIES ('write.merge.mode'='merge-on-read')", "delta": ""}


def session(table_format: str, warehouse: str) -> SparkSession:
    """Return a session for tables of this format."""
    builder = spark_session_builder(app_name="changes")
    for name, value in SETTINGS[table_format].items():
        builder = builder.config(name, value)
    return builder.config("spark.sql.catalog.lake.warehouse", warehouse).getOrCreate()


def read_changes(spark: SparkSession, servers: str, registry: str, topic: str) -> DataFrame:
    """Read the changes as a stream: the row, whether it was deleted, and the offset."""
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "value.format": "avro",
        "schema.registry.url": registry,
        "deadLetterTopic": f"{topic}.dead-letters",
    }
    records = spark.readStream.format("aioprod").options(**options).load()
    # A deleted row is in `before`. The tombstone that follows has no value, and no operation.
    row = F.coalesce("value.after", "value.before").alias("row")
    deleted = (F.col("value.op") == "d").alias("deleted")
    return records.where(F.col("value.op").isin(*APPLIED)).select(row, deleted, "offset")


def prepare(spark: SparkSession, table: str, table_format: str, columns: StructType) -> None:
    """Create the table, or add the columns that it does not have yet."""
    types = {field.name: f"`{field.name}` {field.dataType.simpleString()}" for field in columns}
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(types.values())}) "
        f"USING {table_format} {PROPERTIES[table_format]}"
    )
    existing = spark.table(table).columns
    new = [text for name, text in types.items() if name not in existing]
    if new:
        spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({', '.join(new)})")


def merge(batch: DataFrame, table: str, key: Sequence[str]) -> None:
    """Apply the newest change of each row in a micro-batch."""
    newest = F.max_by(F.struct("row", "deleted"), "offset").alias("newest")
    changes = batch.groupBy(*(f"row.{name}" for name in key)).agg(newest)
    rows = changes.select("newest.row.*", F.col("newest.deleted").alias("_deleted")).persist()
    rows.createOrReplaceTempView("changes")
    columns = [f"`{name}`" for name in rows.columns if name != "_deleted"]
    same_row = " AND ".join(f"t.`{name}` = c.`{name}`" for name in key)
    try:
        batch.sparkSession.sql(
            f"MERGE INTO {table} t USING changes c ON {same_row} "
            "WHEN MATCHED AND c._deleted THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {', '.join(f'{each} = c.{each}' for each in columns)} "
            f"WHEN NOT MATCHED AND NOT c._deleted THEN INSERT ({', '.join(columns)}) "
            f"VALUES ({', '.join(f'c.{each}' for each in columns)})"
        )
    finally:
        rows.unpersist()


def compact(spark: SparkSession, table: str, table_format: str) -> None:
    """Write small files, and those with deleted rows, as fewer large ones."""
    if table_format == "delta":
        spark.sql(f"OPTIMIZE {table}")
        return
    catalog = table.partition(".")[0]
    options = (
        "map('min-input-files', '2', 'delete-file-threshold', '1', "
        "'remove-dangling-deletes', 'true')"
    )
    spark.sql(f"CALL {catalog}.system.rewrite_data_files(table => '{table}', options => {options})")
    # Those that are older than 5 days.
    spark.sql(f"CALL {catalog}.system.expire_snapshots(table => '{table}')")


def start(changes: DataFrame, options: argparse.Namespace) -> StreamingQuery:
    """Start the query."""

    def apply(batch: DataFrame, batch_id: int) -> None:
        merge(batch, options.table, options.key)
        # In the same query, since a merge and a compaction at the same time would conflict.
        if (batch_id + 1) % options.compact_every == 0:
            compact(batch.sparkSession, options.table, options.format)

    writer = changes.writeStream.foreachBatch(apply)
    writer = writer.option("checkpointLocation", options.checkpoint)
    return (writer.trigger(availableNow=True) if options.once else writer).start()


def run(spark: SparkSession, options: argparse.Namespace) -> None:
    """Apply changes until the query ends."""
    changes = read_changes(spark, options.bootstrap_servers, options.schema_registry, options.topic)
    prepare(spark, options.table, options.format, changes.select("row.*").schema)
    start(changes, options).awaitTermination()


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Apply Debezium's changes to a table.")
    parser.add_argument("topic", help="Debezium's topic of a table, with values in Avro")
    parser.add_argument("format", choices=SETTINGS)
    parser.add_argument("table", help="an Iceberg table in the catalog `lake`, or a Delta table")
    parser.add_argument("--key", nargs="+", required=True, help="columns of the primary key")
    parser.add_argument("--warehouse", default="lake", help="directory or URL of Iceberg's tables")
    parser.add_argument("--checkpoint", required=True, help="a directory that survives restarts")
    parser.add_argument("--once", action="store_true", help="stop when all changes are applied")
    parser.add_argument("--compact-every", type=int, default=100, metavar="MICRO-BATCHES")
    parser.add_argument("--schema-registry", default="http://localhost:8081")
    parser.add_argument(
        "--bootstrap-servers",
        default=os.environ.get("AIOPROD_BOOTSTRAP_SERVERS", "localhost:9092"),
    )
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    run(session(options.format, options.warehouse), options)


if __name__ == "__main__":
    main()
