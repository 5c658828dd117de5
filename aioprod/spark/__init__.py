"""Kafka topics as a Spark data source in pure Python: ``format("aioprod")``, without a jar.

    spark = spark_session_builder().getOrCreate()
    events = spark.readStream.format("aioprod").option("kafka.bootstrap.servers",
    "localhost:9092").option("subscribe", "events").load()

Requires ``aioprod[spark]``: PySpark 4.0 or newer (4.2 for ``maxOffsetsPerTrigger``), pyarrow, and
Java 17 or newer.
"""

import typing as _typing

from aioprod.lazy_names import lazy_names as _lazy_names
from aioprod.spark import _versions as _versions  # it tells what is missing

if _typing.TYPE_CHECKING:
    from aioprod.spark.errors import (
        CopiedCheckpointError,
        LostTransactionsError,
        NewerDecisionError,
        ReplayMismatchError,
        SinkError,
        TransactionTimedOutError,
    )
    from aioprod.spark.offsets import DataLossError
    from aioprod.spark.progress import ProgressListener, QueryProgress
    from aioprod.spark.session import configure, register, spark_session_builder
    from aioprod.spark.signs import QuerySigns
    from aioprod.spark.source import KafkaDataSource

__all__ = [
    "CopiedCheckpointError",
    "DataLossError",
    "KafkaDataSource",
    "LostTransactionsError",
    "NewerDecisionError",
    "ProgressListener",
    "QueryProgress",
    "QuerySigns",
    "ReplayMismatchError",
    "SinkError",
    "TransactionTimedOutError",
    "configure",
    "register",
    "spark_session_builder",
]

# Lazy: Spark starts a Python process for each step of a read or write, which needs few of these.
_HOMES = {
    "CopiedCheckpointError": "aioprod.spark.errors",
    "DataLossError": "aioprod.spark.offsets",
    "KafkaDataSource": "aioprod.spark.source",
    "LostTransactionsError": "aioprod.spark.errors",
    "NewerDecisionError": "aioprod.spark.errors",
    "ProgressListener": "aioprod.spark.progress",
    "QueryProgress": "aioprod.spark.progress",
    "QuerySigns": "aioprod.spark.signs",
    "ReplayMismatchError": "aioprod.spark.errors",
    "SinkError": "aioprod.spark.errors",
    "TransactionTimedOutError": "aioprod.spark.errors",
    "configure": "aioprod.spark.session",
    "register": "aioprod.spark.session",
    "spark_session_builder": "aioprod.spark.session",
}

if not _typing.TYPE_CHECKING:
    __getattr__, __dir__ = _lazy_names(globals(), _HOMES)
