"""Fetched records as columns of Arrow. Imports pyarrow and numpy, which are optional: import this
module late.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from aioprod.header_names import encode_name, name_in_column
from aioprod.protocol.arrow_building import bytes_column, numbers_column, repeated_column
from aioprod.protocol.arrow_reader import HEADERS_TYPE, RecordArrays, headers_column, read_arrays
from aioprod.protocol.batch_cursor import Batch
from aioprod.types import ConsumerRecord, Header, TopicPartition

SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("timestamp_type", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS_TYPE),
    ]
)


def table_of(parts: Sequence[pa.RecordBatch]) -> pa.Table:
    """Return record batches as a table; deserializers may have changed the types of keys and
    values.
    """
    return pa.Table.from_batches(parts, schema=parts[0].schema if parts else SCHEMA)


def records_of_rows(rows: pa.RecordBatch, epoch: int) -> list[ConsumerRecord]:
    """Return rows as records.

    Args:
        epoch: their leader epoch, which rows do not have.
    """
    columns = {name: rows.column(name) for name in SCHEMA.names}
    columns["timestamp"] = columns["timestamp"].cast(pa.int64())
    lists = {name: column.to_pylist() for name, column in columns.items()}
    lists["headers"] = [
        tuple((name_in_column(each["key"]), each["value"]) for each in entries or ())
        for entries in lists["headers"]
    ]
    rows_of_lists = zip(*lists.values(), strict=True)
    return [ConsumerRecord._make((*each, epoch)) for each in rows_of_lists]


def rows_of_records(records: Iterable[ConsumerRecord]) -> pa.RecordBatch:
    """Return records of one partition as rows, at least one: the opposite of
    :func:`records_of_rows`.
    """
    topics, partitions, offsets, stamps, stamp_types, keys, values, headers, _ = zip(
        *records, strict=True
    )
    arrays = RecordArrays(
        np.array(offsets, np.int64),
        np.array(stamps, np.int64),
        np.array(stamp_types, np.int32),
        bytes_column(keys),
        bytes_column(values),
        _headers_of(headers),
    )
    return _rows(TopicPartition(topics[0], partitions[0]), arrays)


def _headers_of(headers: Sequence[Sequence[Header]]) -> pa.ListArray:
    entries = [entry for of_one in headers for entry in of_one]
    return headers_column(
        np.array([*map(len, headers)], np.int64),
        bytes_column([encode_name(name) for name, _ in entries]),
        bytes_column([value for _, value in entries]),
    )


def rows_of_batches(
    tp: TopicPartition, data: bytes, batches: Iterable[Batch], start: int
) -> Iterator[pa.RecordBatch]:
    """Return the records of batches from offset ``start`` on, in portions of about 4 MiB.

    Raises:
        CorruptRecordError: if a batch is not valid; after the portions before it were returned.
    """
    for arrays in read_arrays(data, batches):
        rows = _rows(tp, arrays)
        first = int(np.searchsorted(arrays.offsets, start)) if arrays.offsets[0] < start else 0
        if first < rows.num_rows:  # compaction may have removed all records from there on
            yield rows.slice(first)


def _rows(tp: TopicPartition, arrays: RecordArrays) -> pa.RecordBatch:
    count = len(arrays.offsets)
    return pa.RecordBatch.from_arrays(
        [
            repeated_column(tp.topic, count),
            numbers_column(pa.int32(), np.full(count, tp.partition, np.int32)),
            numbers_column(pa.int64(), arrays.offsets),
            numbers_column(pa.timestamp("ms", "UTC"), arrays.timestamps),
            numbers_column(pa.int32(), arrays.timestamp_types),
            arrays.keys,
            arrays.values,
            arrays.headers,
        ],
        schema=SCHEMA,
    )
