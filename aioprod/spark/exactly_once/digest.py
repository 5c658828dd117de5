"""A digest of rows that tells whether two writes of a batch wrote the same rows, in any order and
distributed over any tasks.

All numbers are modulo 2^64, and `mix` is the last step of SplitMix64: each bit of its argument
changes half of all bits of the result.

- of bytes: mix(place + LENGTH * (length + 1) + sum of mix(word * (2 i + 1) * STEP)). Words have
  eight bytes in little-endian order, the last padded with zeros; null has length -1. Zeros add
  nothing, so a column can be padded to any width.
- of headers: sum of mix(number of the name + number of the value + STEP * (number of headers
  before it))
- of a row: mix(number of topic, key and value + mix(PARTITION + partition + 1) + number of the
  headers); no partition counts as -1
- the digest: the sum over rows

No step runs row by row in Python: 90 ns for a row with a key and 100 bytes; a CRC of each row took
180 ns.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]

from aioprod.protocol.arrow_buffers import is_null, lengths, padded_words
from aioprod.protocol.arrow_columns import name_and_value
from aioprod.protocol.arrow_reader import numbers_column

MODULUS: Final = 1 << 64
_STEP: Final = 0x9E3779B97F4A7C15
_LENGTH: Final = 0xD1B54A32D192ED03
# One for each field of a row, so that swapping key and value changes the digest.
_TOPIC: Final = 0x8CB92BA72F3D8DD7
_KEY: Final = 0xABC98388FB8FAC03
_VALUE: Final = 0x139408DCBBF7A44D
_PARTITION: Final = 0x5851F42D4C957F2D
_HEADER_NAME: Final = 0xC2B2AE3D27D4EB4F
_HEADER_VALUE: Final = 0x165667B19E3779F9

_WORD: Final = np.dtype("<u8")
# The number of words mixed in one step: its result stays in the processor's cache for the next.
_WORDS_AT_ONCE: Final = 65_536
# Rows are padded with zeros to the longest, but at most to this multiple of the mean.
_PADDING: Final = 2

_Numbers = npt.NDArray[np.uint64]


class RowDigest:
    """Computes the digest of rows.

    Attributes:
        rows: the number of rows.
        value: the sum over rows.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.value = 0

    def add(self, topic: str, batch: pa.RecordBatch) -> None:
        """Add rows for a topic, with the columns that `Producer.send_arrow` takes."""
        names = batch.schema.names
        rows = _of_bytes(batch.column("value"), _VALUE)
        rows += _of_bytes(_one(topic.encode()), _TOPIC)
        rows += _of_bytes(batch.column("key"), _KEY) if "key" in names else _mixed(_KEY)
        rows += (
            _of_partitions(batch.column("partition"))
            if "partition" in names
            else _mixed(_PARTITION)
        )
        if "headers" in names:
            rows += _of_headers(batch.column("headers"))
        self.rows += batch.num_rows
        self.value = (self.value + int(_mix(rows).sum())) % MODULUS


def _one(data: bytes) -> pa.Array:
    return pa.Array.from_buffers(
        pa.binary(), 1, [None, pa.py_buffer(np.array([0, len(data)], np.int32)), pa.py_buffer(data)]
    )


def _mix(numbers: _Numbers) -> _Numbers:
    """Mix in place. SplitMix64, Steele et al. 2014: variant 13 of its last step."""
    shifted = np.empty_like(numbers)
    numbers ^= np.right_shift(numbers, 30, out=shifted)
    numbers *= np.uint64(0xBF58476D1CE4E5B9)
    numbers ^= np.right_shift(numbers, 27, out=shifted)
    numbers *= np.uint64(0x94D049BB133111EB)
    numbers ^= np.right_shift(numbers, 31, out=shifted)
    return numbers


def _mixed(number: int) -> _Numbers:
    return _mix(np.array([number], np.uint64))


def _of_bytes(column: pa.Array, place: int) -> _Numbers:
    """Return a number for each row of binary or text; text counts as its UTF-8."""
    sizes = lengths(column)
    numbers = (sizes + 1).view(np.uint64)
    if column.null_count:
        numbers[is_null(column)] = 0
    numbers *= np.uint64(_LENGTH)
    numbers += np.uint64(place)
    numbers += _sums_of_words(column, (sizes + 7) >> 3)
    return _mix(numbers)


def _sums_of_words(column: pa.Array, counts: npt.NDArray[np.int64]) -> _Numbers:
    """Return for each row the sum of its words, each mixed with its index.

    Args:
        counts: the number of words of each row.
    """
    sums = np.zeros(len(column), np.uint64)
    widest = int(counts.max(initial=0))
    limit = _PADDING * max(1, -(-int(counts.sum()) // max(1, len(column))))
    if widest > limit:
        for some in (counts <= limit, counts > limit):
            rows = np.flatnonzero(some)
            sums[rows] = _sums_of_words(column.take(numbers_column(pa.int64(), rows)), counts[rows])
    elif widest:
        factors = (np.arange(1, 2 * widest, 2, dtype=np.uint64) * np.uint64(_STEP))[:, np.newaxis]
        step = max(1, _WORDS_AT_ONCE // widest)
        for start in range(0, len(column), step):
            # One row for each word index: numpy is fast along rows.
            words = padded_words(column.slice(start, step), _WORD, widest).T
            np.sum(
                _mix(np.multiply(words, factors, order="C")), axis=0, out=sums[start : start + step]
            )
    return sums


def _of_partitions(column: pa.Array) -> _Numbers:
    whole = column.cast(pa.int64())
    numbers = np.frombuffer(whole.buffers()[1], np.uint64)[
        whole.offset : whole.offset + len(whole)
    ] + np.uint64(1)
    if column.null_count:
        numbers[is_null(column)] = 0
    numbers += np.uint64(_PARTITION)
    return _mix(numbers)


def _of_headers(column: pa.Array) -> _Numbers:
    """Return a number for each row's headers, dependent on their order; 0 without headers."""
    name_at, value_at = name_and_value(column.type.value_type)
    fields = column.flatten().flatten()
    counts = lengths(column)
    ends = np.cumsum(counts)
    place = (np.arange(len(fields[0])) - np.repeat(ends - counts, counts)).view(np.uint64)
    numbers = (
        _of_bytes(fields[name_at], _HEADER_NAME)
        + _of_bytes(fields[value_at], _HEADER_VALUE)
        + place * np.uint64(_STEP)
    )
    totals = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_mix(numbers))])
    numbers = totals[ends]
    numbers -= totals[ends - counts]
    return numbers
