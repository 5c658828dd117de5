"""Between Kafka records and Arrow columns, both ways, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from aioprod.protocol.record_reader import RecordColumns
from aioprod.types import Header

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
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
_SCHEMA_WITH_HEADERS = pa.schema([*_FIELDS, ("headers", _HEADERS)])


def arrow_schema(*, include_headers: bool) -> pa.Schema:
    """The columns of a read; Spark refuses a batch whose schema differs in anything from the declared one."""
    return _SCHEMA_WITH_HEADERS if include_headers else _SCHEMA


class SourceRows:
    """Collects decoded batches and makes one Arrow batch of them."""

    def __init__(self, *, include_headers: bool) -> None:
        self._schema = arrow_schema(include_headers=include_headers)
        self._include_headers = include_headers
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._offsets: list[int] = []
        self._timestamps: list[int] = []
        self._timestamp_types: list[pa.Array] = []
        self._headers: list[tuple[Header, ...]] = []

    def extend(self, columns: RecordColumns, wanted: slice, timestamp_type: int) -> None:
        """Add the wanted rows of one Kafka batch."""
        offsets = columns.offsets[wanted]
        self._offsets += offsets
        self._keys += columns.keys[wanted]
        self._values += columns.values[wanted]
        self._timestamps += columns.timestamps[wanted]
        self._timestamp_types.append(pa.repeat(pa.scalar(timestamp_type, pa.int32()), len(offsets)))
        if self._include_headers:
            self._headers += columns.headers[wanted]

    def record_batch(self, topic: str, partition: int) -> pa.RecordBatch:
        """All rows so far."""
        count = len(self._offsets)
        # Arrow's milliseconds to Spark's microseconds: a multiplication in C.
        timestamps = pa.array(self._timestamps, pa.int64()).cast(pa.timestamp("ms", "UTC")).cast(_SCHEMA.field("timestamp").type)
        arrays = [
            pa.array(self._keys, pa.binary()),
            pa.array(self._values, pa.binary()),
            pa.repeat(pa.scalar(topic, pa.string()), count),
            pa.repeat(pa.scalar(partition, pa.int32()), count),
            pa.array(self._offsets, pa.int64()),
            timestamps,
            pa.concat_arrays(self._timestamp_types) if self._timestamp_types else pa.array([], pa.int32()),
        ]
        if self._include_headers:
            arrays.append(_header_array(self._headers))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _header_array(rows: Sequence[tuple[Header, ...]]) -> pa.Array:
    # A record without headers has null, as in Spark's own source.
    return pa.array([[{"key": key, "value": value} for key, value in row] if row else None for row in rows], _HEADERS)


class NoTopicError(ValueError):
    """A row does not say which topic it is for; its number is the argument."""


def by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, Sequence[int], pa.RecordBatch]]:
    """The rows for each topic, in their order: topic, the rows' numbers in the batch, and their columns as ``Producer.send_arrow`` takes them.

    Other columns than the sink's are ignored, as Spark's own sink does.

    Args:
        topic: of all rows; None: the column ``topic`` says it.

    Raises:
        NoTopicError: the column has a null.
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
    """Bytes of all keys and values."""
    columns = [batch.column(name) for name in ("key", "value") if name in batch.schema.names]
    return sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in columns)
