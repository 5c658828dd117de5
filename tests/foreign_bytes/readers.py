"""All our readers of batches. Each returns the records of its bytes in the same form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from aioprod.consumer import records as batch_records
from aioprod.consumer.arrow_tables import records_of_rows, rows_of_batches
from aioprod.consumer.share.requests import AcquiredRange, read_acquired
from aioprod.header_names import name_in_column
from aioprod.native import python_sources
from aioprod.protocol import arrow_reader, record_reader
from aioprod.protocol.arrow_reader import read_arrays
from aioprod.protocol.batch_cursor import iter_batches
from aioprod.protocol.record_reader import read_records
from aioprod.types import TopicPartition

Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Offset, timestamp, key, value and headers."""

Reader = Callable[[bytes], list[Row]]

_TP = TopicPartition("topic", 0)


@contextmanager
def _without_accelerator() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module, name in (
            (record_reader, "parse_records"),
            (batch_records, "cut_records"),
            (arrow_reader, "record_starts"),
        ):
            patch.setattr(module, name, python_sources[name])
        yield


def _in_python(reader: Reader) -> Reader:
    def read(data: bytes) -> list[Row]:
        with _without_accelerator():
            return reader(data)

    return read


def _row(record: Any) -> Row:
    return record.offset, record.timestamp, record.key, record.value, tuple(record.headers)


def _records(data: bytes) -> list[Row]:
    return [_row(record) for record in read_records(data)]


def _consumer(data: bytes) -> list[Row]:
    found: list[Row] = []
    for header, place in iter_batches(data):
        batch = batch_records.open_batch(_TP, data, place, header, 0)
        found += [_row(record) for record in batch.take(batch.left)]
    return found


def _share_consumer(data: bytes) -> list[Row]:
    acquired = read_acquired(_TP, data, [AcquiredRange(0, 1 << 40, 1)], check_crcs=True)
    if acquired.error is not None:
        raise acquired.error
    return [_row(record) for record in acquired.records]


def _arrow(data: bytes) -> list[Row]:
    rows = rows_of_batches(_TP, data, list(iter_batches(data)), 0)
    return [_row(record) for each in rows for record in records_of_rows(each, -1)]


def _spark(data: bytes) -> list[Row]:
    from aioprod.spark.arrow import source_rows  # needs PySpark

    found: list[Row] = []
    for arrays in read_arrays(data, list(iter_batches(data))):
        rows = source_rows(arrays, *_TP)
        stamps = arrays.timestamps.tolist()  # those of Spark have a smaller range
        for row, stamp in zip(rows.drop_columns("timestamp").to_pylist(), stamps, strict=True):
            headers = tuple(
                (name_in_column(each["key"]), each["value"]) for each in row["headers"] or ()
            )
            found.append((row["offset"], stamp, row["key"], row["value"], headers))
    return found


READERS: dict[str, Reader] = {
    "records": _records,
    "records in Python": _in_python(_records),
    "consumer": _consumer,
    "consumer in Python": _in_python(_consumer),
    "share consumer": _share_consumer,
    "share consumer in Python": _in_python(_share_consumer),
    "getarrow": _arrow,
    "getarrow in Python": _in_python(_arrow),
}

SPARK: Reader = _spark
"""Needs PySpark."""

ALL_READERS = [
    *(pytest.param(reader, id=name) for name, reader in READERS.items()),
    pytest.param(SPARK, id="Spark", marks=pytest.mark.all_packages),
]
