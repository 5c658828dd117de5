"""A digest of rows that shows whether two writes of a batch wrote the same rows, regardless of
their order and their distribution over tasks.

All numbers are modulo 2^64, and `mix` is the last step of SplitMix64: each bit of its argument
changes half of all bits of the result.

- of bytes: mix(place + LENGTH * (length + 1) + sum of mix(word * (2 i + 1) * STEP)). Words have
  eight bytes in little-endian order, the last padded with zeros; null has length -1. Zeros do not
  change the sum, so a column can be padded to any width.
- of headers: sum of mix(number of the name + number of the value + STEP * (number of headers
  before it))
- of a row: mix(number of topic, key and value + mix(PARTITION + partition + 1) + number of the
  headers); no partition counts as -1
- the digest: the sum over rows

`protocol/arrow_digest.py` computes the numbers of keys and values.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from aioprod.protocol.arrow_buffers import is_null, lengths
from aioprod.protocol.arrow_columns import as_binary, name_and_value
from aioprod.protocol.arrow_digest import STEP, Numbers, mix, mixed, of_bytes, row_digest
from aioprod.spark.exactly_once.reports import MODULUS

# One for each field of a row, so that swapping key and value changes the digest.
_TOPIC: Final = 0x8CB92BA72F3D8DD7
_PARTITION: Final = 0x5851F42D4C957F2D
_HEADER_NAME: Final = 0xC2B2AE3D27D4EB4F
_HEADER_VALUE: Final = 0x165667B19E3779F9
# A column of type binary has offsets of 32 bits.
_MOST_BYTES: Final = 1 << 30


class RowDigest:
    """Computes the digest of rows.

    Attributes:
        rows: the number of rows.
        value: the sum over rows.
    """

    def __init__(self) -> None:
        self.rows: int = 0
        self.value: int = 0

    def add(self, topic: str, batch: pa.RecordBatch) -> None:
        """Add rows of a topic, with the columns that `Producer.send_arrow` accepts."""
        if batch.nbytes > _MOST_BYTES and batch.num_rows > 1:
            half = batch.num_rows // 2
            self.add(topic, batch.slice(0, half))
            self.add(topic, batch.slice(half))
            return
        names = batch.schema.names
        others = of_bytes(_one(topic.encode()), _TOPIC)
        others = others + (
            _of_partitions(batch.column("partition")) if "partition" in names else mixed(_PARTITION)
        )
        if "headers" in names:
            others = others + _of_headers(batch.column("headers"))
        keys = as_binary(batch.column("key")) if "key" in names else None
        value = row_digest(as_binary(batch.column("value")), keys, others)
        self.rows += batch.num_rows
        self.value = (self.value + value) % MODULUS


def _one(data: bytes) -> pa.Array:
    return pa.Array.from_buffers(
        pa.binary(), 1, [None, pa.py_buffer(np.array([0, len(data)], np.int32)), pa.py_buffer(data)]
    )


def _of_partitions(column: pa.Array) -> Numbers:
    whole = column.cast(pa.int64())
    numbers = np.frombuffer(whole.buffers()[1], np.uint64)[
        whole.offset : whole.offset + len(whole)
    ] + np.uint64(1)
    if column.null_count:
        numbers[is_null(column)] = 0
    numbers += np.uint64(_PARTITION)
    return mix(numbers)


def _of_headers(column: pa.Array) -> Numbers:
    """Return a number for each row's headers, dependent on their order; 0 without headers."""
    name_at, value_at = name_and_value(column.type.value_type)
    fields = column.flatten().flatten()
    counts = lengths(column)
    ends = np.cumsum(counts)
    place = (np.arange(len(fields[0])) - np.repeat(ends - counts, counts)).view(np.uint64)
    numbers = (
        of_bytes(fields[name_at], _HEADER_NAME)
        + of_bytes(fields[value_at], _HEADER_VALUE)
        + place * np.uint64(STEP)
    )
    totals = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mix(numbers))])
    numbers = totals[ends]
    numbers -= totals[ends - counts]
    return numbers
