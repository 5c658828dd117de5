"""Between Kafka records and Arrow columns, both ways, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from aioprod.protocol.record_reader import RecordColumns
from aioprod.types import Header, Headers

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


@dataclass(frozen=True, slots=True)
class SinkRows:
    """The rows of one batch as Python values, column by column; None for a column that is not there."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    topics: Sequence[str | None] | None
    partitions: Sequence[int | None] | None
    headers: Sequence[Headers | None] | None
    payload_bytes: int

    def rows(self, topic: str | None) -> Iterator[tuple[str | None, bytes | None, bytes | None, int | None, Headers]]:
        """Topic, value, key, partition and headers of each row."""
        count = len(self.values)
        topics = [topic] * count if topic is not None else self.topics or [None] * count
        headers = [given or () for given in self.headers] if self.headers is not None else [()] * count
        return zip(topics, self.values, self.keys or [None] * count, self.partitions or [None] * count, headers, strict=True)


def sink_rows(batch: pa.RecordBatch) -> SinkRows:
    """Take the columns of the sink out of a batch; others are ignored, as Spark's own sink does."""
    names = batch.schema.names
    partitions = batch.column("partition").to_pylist() if "partition" in names else None
    return SinkRows(
        payload_bytes=sum(_text_bytes(batch.column(name)) for name in ("key", "value") if name in names),
        values=_bytes_column(batch, "value") or [],
        keys=_bytes_column(batch, "key"),
        topics=batch.column("topic").to_pylist() if "topic" in names else None,
        partitions=partitions,
        headers=[_header_tuples(row) for row in batch.column("headers").to_pylist()] if "headers" in names else None,
    )


def _bytes_column(batch: pa.RecordBatch, name: str) -> list[bytes | None] | None:
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    if not pa.types.is_binary(column.type):
        # UTF-8 text and bytes have the same layout in Arrow: nothing is copied.
        column = column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary())
    values: list[bytes | None] = column.to_pylist()
    return values


def _text_bytes(column: pa.Array) -> int:
    return pc.sum(pc.binary_length(column)).as_py() or 0


def _header_tuples(row: list[dict[str, object] | None] | None) -> Headers | None:
    if not row:
        return None
    headers = []
    for header in row:
        if header is None or header["key"] is None:
            raise ValueError("a header without a key; Kafka's header keys can't be null")
        headers.append((header["key"], header["value"]))
    return headers  # type: ignore[return-value]
