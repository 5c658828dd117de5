"""Writes in ``foreachBatch``: updates of aggregations, and additional outputs of a query."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from aioprod.errors import ConfigError
from aioprod.spark.options import lower_keys
from aioprod.spark.sink_columns import check_columns
from aioprod.spark.sink_options import EXACTLY_ONCE, parse_sink_options

_CHECKPOINT = "checkpointLocation"


def write_updates(frame: DataFrame, options: Mapping[str, str]) -> DataStreamWriter:
    """Return a writer of a stream in output mode update, which Spark does not support for Python
    sinks.

    Add a trigger and a name, and start it. It writes the rows that changed in each micro-batch to
    Kafka, by default exactly once if a micro-batch that Spark repeats has the same rows.

    Args:
        frame: a stream with the columns of the sink.
        options: the options of a write, and ``checkpointLocation`` unless the session sets it.

    Raises:
        ConfigError: if an option or a column is invalid.
    """
    settings = {str(name): str(value) for name, value in options.items()}
    if not frame.isStreaming:
        raise ConfigError("write_updates is for streams; write other frames with frame.write")
    sink = parse_sink_options(settings, streaming=True)
    if sink.registry is None:
        check_columns(frame.schema, sink.topic)

    def write(batch: DataFrame, batch_id: int) -> None:
        if sink.delivery == EXACTLY_ONCE:
            write_once(batch, batch, batch_id, settings)
        else:
            batch.write.format("aioprod").options(**settings).mode("append").save()

    writer = frame.writeStream.outputMode("update").foreachBatch(write)
    checkpoint = lower_keys(settings).get(_CHECKPOINT.lower())
    return writer if checkpoint is None else writer.option(_CHECKPOINT, checkpoint)


def write_once(
    rows: DataFrame, batch: DataFrame, batch_id: int, options: Mapping[str, str]
) -> None:
    """Write rows of a micro-batch in ``foreachBatch`` to Kafka. A micro-batch that Spark repeats is
    not written again.

    Args:
        rows: the rows to write, which must be derived from the micro-batch.
        batch, batch_id: the arguments of the function that ``foreachBatch`` calls.
        options: the sink's options.
    """
    once = {"txnAppId": query_id(batch), "txnVersion": str(batch_id)}
    rows.write.format("aioprod").options(**options, **once).mode("append").save()


def query_id(batch: DataFrame) -> str:
    """Return the id of the query that calls ``foreachBatch`` with this micro-batch."""
    found = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    assert found is not None, "Spark sets it in foreachBatch"
    return found
