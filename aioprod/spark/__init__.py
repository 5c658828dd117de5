"""Kafka topics as a Spark data source in pure Python: ``format("aioprod")``, without a jar.

    spark = spark_session_builder().getOrCreate()
    events = spark.readStream.format("aioprod").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "events").load()

Needs ``aioprod[spark]``: PySpark 4.0 or newer (4.2 for ``maxOffsetsPerTrigger``), pyarrow, and Java 17 or newer.
"""

from aioprod.spark import _versions as _versions  # the first: it tells what is missing
from aioprod.spark.errors import LostTransactionsError, NewerDecisionError, ReplayMismatchError, SinkError, TransactionTimedOutError
from aioprod.spark.offsets import DataLossError
from aioprod.spark.progress import ProgressListener, QueryProgress
from aioprod.spark.session import configure, register, spark_session_builder
from aioprod.spark.source import KafkaDataSource

__all__ = [
    "DataLossError",
    "KafkaDataSource",
    "LostTransactionsError",
    "NewerDecisionError",
    "ProgressListener",
    "QueryProgress",
    "ReplayMismatchError",
    "SinkError",
    "TransactionTimedOutError",
    "configure",
    "register",
    "spark_session_builder",
]
