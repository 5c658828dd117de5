"""What a write task does: send its rows with a producer, and answer only when each is acknowledged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, ByteType, DataType, IntegerType, LongType, ShortType, StringType, StructType

from aioprod import Deliveries, Producer
from aioprod.errors import ConfigError, KafkaError
from aioprod.spark.arrow import NoTopicError, by_topic, payload_bytes
from aioprod.spark.reading import event_loop_factory
from aioprod.spark.sink_options import SinkOptions

log = logging.getLogger(__name__)

_COLUMN_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "value": (StringType, BinaryType),
    "key": (StringType, BinaryType),
    "topic": (StringType,),
    "partition": (IntegerType, ShortType, ByteType, LongType),
}


class SinkError(KafkaError):
    """Rows that could not be written: the task fails, and Spark retries it or fails the query."""


@dataclass
class Written(WriterCommitMessage):
    """What one task wrote.

    Attributes:
        rows: records that the brokers acknowledged.
        payload_bytes: bytes of their keys and values.
    """

    rows: int
    payload_bytes: int


class KafkaWriter(DataSourceArrowWriter):
    """Batch writes."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_batches(self.options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        log.info("%s", summary(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        log.warning("the write failed; already written and not taken back: %s", summary(messages))


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """Stream writes."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_batches(self.options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log.info("micro-batch %d: %s", batchId, summary(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log.warning("micro-batch %d failed; already written and not taken back: %s", batchId, summary(messages))


def summary(messages: Sequence[WriterCommitMessage | None]) -> str:
    """What the tasks wrote, in words."""
    written = [message for message in messages if isinstance(message, Written)]
    rows = sum(message.rows for message in written)
    return f"{rows} rows of {sum(message.payload_bytes for message in written)} bytes written by {len(written)} of {len(messages)} tasks"


def check_columns(schema: StructType, topic: str | None) -> None:
    """Check the columns of a write, on the driver and before anything is sent.

    Raises:
        ConfigError: ``value`` is missing, there is neither column nor option ``topic``, or a column has the wrong type.
    """
    types = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        raise ConfigError(f"the column value (string or binary) is required; the data has {', '.join(types) or 'no columns'}")
    if topic is None and "topic" not in types:
        raise ConfigError("where to write? Set the option topic, or add a string column topic")
    for name, allowed in _COLUMN_TYPES.items():
        if name in types and not isinstance(types[name], allowed):
            wanted = " or ".join(kind().simpleString() for kind in allowed[:2])
            raise ConfigError(f"the column {name} must be {wanted}, it is {types[name].simpleString()}")
    headers = types.get("headers")
    if headers is not None and not _is_header_type(headers):
        raise ConfigError(f"the column headers must be array<struct<key:string,value:binary>>, it is {headers.simpleString()}")


def write_batches(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """Send all rows and wait until each is acknowledged.

    Raises:
        SinkError: a row could not be sent; the text says which one and why.
    """
    with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
        return runner.run(_write(options, batches))


async def _write(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    written = Written(0, 0)
    producer = Producer(**options.producer)
    await producer.start()
    try:
        before: list[Deliveries] = []
        # Spark hands out batches over a blocking socket, so that a thread has to wait for them.
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            sent = await _send(producer, options.topic, batch, written)
            # One batch behind: the brokers work on this one while Spark makes the next.
            await _check(before)
            before = sent
        await producer.flush()
        await _check(before)
    except BaseException:
        await producer.close(timeout_ms=0)
        raise
    await producer.close()
    return written


async def _send(producer: Producer, topic: str | None, batch: pa.RecordBatch, written: Written) -> list[Deliveries]:
    sent: list[Deliveries] = []
    try:
        for row_topic, numbers, rows in by_topic(batch, topic):
            try:
                deliveries = await producer.send_arrow(row_topic, rows)
            except KafkaError as error:
                raise SinkError(f"rows {written.rows} to {written.rows + batch.num_rows - 1} of this task, for topic {row_topic}: {error}") from error
            # What can't be sent at all is known at once, and by its row.
            for number, refusal in deliveries.exceptions().items():
                raise SinkError(f"row {written.rows + numbers[number]} of this task, for topic {row_topic}: {refusal}") from refusal
            sent.append(deliveries)
    except NoTopicError as error:
        row = written.rows + int(error.args[0])
        raise SinkError(f"row {row} of this task: topic is null; set the option topic or fill the column") from None
    written.rows += batch.num_rows
    written.payload_bytes += payload_bytes(batch)
    return sent


async def _check(sent: Sequence[Deliveries]) -> None:
    """Wait for each acknowledgement; the first failure ends the task."""
    for deliveries in sent:
        try:
            await deliveries.wait()
        except KafkaError as error:
            raise SinkError(f"a row was not acknowledged: {error}") from error


def _is_header_type(given: DataType) -> bool:
    if not isinstance(given, ArrayType) or not isinstance(given.elementType, StructType):
        return False
    fields = [(field.name, field.dataType) for field in given.elementType.fields]
    return fields == [("key", StringType()), ("value", BinaryType())]
