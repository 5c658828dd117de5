"""Conversion between Kafka records and Arrow columns, both ways, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from aioprod.errors import CorruptRecordError
from aioprod.protocol.arrow_building import numbers_column, repeated_column
from aioprod.protocol.arrow_reader import HEADERS_TYPE, RecordArrays

_FIELDS: list[tuple[str, pa.DataType]] = [
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", "UTC")),
    ("timestampType", pa.int32()),
]
_SINK_COLUMNS = ("value", "key", "partition", "headers")
_SCHEMA = pa.schema(_FIELDS)
_SCHEMA_WITH_HEADERS = pa.schema([*_FIELDS, ("headers", HEADERS_TYPE)])


def arrow_schema(*, include_headers: bool) -> pa.Schema:
    """Return the columns of a read. Spark rejects a batch whose schema differs from the declared
    one.
    """
    return _SCHEMA_WITH_HEADERS if include_headers else _SCHEMA


def source_rows(records: RecordArrays, topic: str, partition: int) -> pa.RecordBatch:
    """Return records of a partition as rows of the source, with the column ``headers`` if they
    were read.

    Raises:
        CorruptRecordError: if a timestamp exceeds Spark's range of 292,000 years from 1970.
    """
    count = len(records.offsets)
    try:
        # Converts Arrow's milliseconds to Spark's microseconds: a multiplication in C.
        timestamps = numbers_column(pa.timestamp("ms", "UTC"), records.timestamps).cast(
            _SCHEMA.field("timestamp").type
        )
    except pa.ArrowInvalid as error:
        raise CorruptRecordError(
            f"{topic}-{partition}, offsets {records.offsets[0]} to {records.offsets[-1]}: {error}"
        ) from None
    columns = [
        records.keys,
        records.values,
        repeated_column(topic, count),
        numbers_column(pa.int32(), np.full(count, partition, np.int32)),
        numbers_column(pa.int64(), records.offsets),
        timestamps,
        numbers_column(pa.int32(), records.timestamp_types),
    ]
    if records.headers is None:
        return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
    return pa.RecordBatch.from_arrays([*columns, records.headers], schema=_SCHEMA_WITH_HEADERS)


class NoTopicError(ValueError):
    """A row has no topic; the argument is the row's number."""


def by_topic(
    batch: pa.RecordBatch, topic: str | None
) -> Iterator[tuple[str, Sequence[int], pa.RecordBatch]]:
    """Yield each topic's rows in order: the topic, the rows' numbers in the batch, and their
    columns in the form that ``Producer.send_arrow`` accepts.

    Columns unknown to the sink are ignored, as Spark's own sink does.

    Args:
        topic: the topic of all rows; None to use the column ``topic``.

    Raises:
        NoTopicError: if the column has a null.
    """
    names = batch.schema.names
    columns = batch.select([name for name in _SINK_COLUMNS if name in names])
    if topic is not None:
        yield topic, range(batch.num_rows), columns
        return
    topics = batch.column("topic")
    if topics.null_count:
        raise NoTopicError(pc.index(topics.is_null(), pa.scalar(value=True)).as_py())
    different = topics.unique().to_pylist()
    for name in different:
        if len(different) == 1:
            yield name, range(batch.num_rows), columns
        else:
            numbers = pc.indices_nonzero(pc.equal(topics, name))
            yield name, numbers.to_pylist(), columns.take(numbers)


def payload_bytes(batch: pa.RecordBatch) -> int:
    """Return the size of all keys and values in bytes."""
    columns = [batch.column(name) for name in ("key", "value") if name in batch.schema.names]
    return sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in columns)
