"""Kafka topics as a Spark data source in pure Python: ``format("aioprod")``, without a jar.

    spark = spark_session_builder().getOrCreate()
    register(spark)
    events = spark.readStream.format("aioprod").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "events").load()

Needs ``aioprod[spark]``: PySpark 4.1 or newer (4.2 for ``maxOffsetsPerTrigger``), pyarrow, and Java 17 or newer.
"""

from aioprod.spark.offsets import DataLossError
from aioprod.spark.session import configure, register, spark_session_builder
from aioprod.spark.sink import SinkError
from aioprod.spark.source import KafkaDataSource

__all__ = ["DataLossError", "KafkaDataSource", "SinkError", "configure", "register", "spark_session_builder"]
