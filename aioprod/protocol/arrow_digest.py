"""Hashes of the keys and values of an Arrow table's rows, as `spark/exactly_once/digest` defines
them. Imports pyarrow and numpy, which are optional, so import this module on demand.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]

from aioprod.native import accelerated
from aioprod.protocol.arrow_buffers import is_null, lengths, padded_words
from aioprod.protocol.arrow_building import numbers_column

#: Multiplies the position of a word or a header, so that their order matters.
STEP: Final = 0x9E3779B97F4A7C15
_LENGTH: Final = 0xD1B54A32D192ED03
_KEY: Final = 0xABC98388FB8FAC03
_VALUE: Final = 0x139408DCBBF7A44D

_WORD: Final = np.dtype("<u8")
# Number of words to mix in one step, so that the intermediate result stays in the CPU's cache.
_WORDS_AT_ONCE: Final = 65_536
# Rows are padded with zeros to the length of the longest, but at most to this multiple of the mean.
_PADDING: Final = 2

Numbers = npt.NDArray[np.uint64]


@accelerated
def row_digest(values: pa.Array, keys: pa.Array | None, others: Numbers, /) -> int:
    """Return the sum over rows of the mixed sum of their numbers, modulo 2^64.

    Args:
        values, keys: binary, of the same length; None counts as null in each row.
        others: the hash of each row's other fields, or one number for all rows.
    """
    rows = others + of_bytes(values, _VALUE)
    rows += mixed(_KEY) if keys is None else of_bytes(keys, _KEY)
    return int(mix(rows).sum())


def mix(numbers: Numbers) -> Numbers:
    """Mix in place, by variant 13 of the last step of SplitMix64 (Steele et al., 2014)."""
    shifted = np.empty_like(numbers)
    numbers ^= np.right_shift(numbers, 30, out=shifted)
    numbers *= np.uint64(0xBF58476D1CE4E5B9)
    numbers ^= np.right_shift(numbers, 27, out=shifted)
    numbers *= np.uint64(0x94D049BB133111EB)
    numbers ^= np.right_shift(numbers, 31, out=shifted)
    return numbers


def mixed(number: int) -> Numbers:
    """Return an array with one mixed number."""
    return mix(np.array([number], np.uint64))


def of_bytes(column: pa.Array, place: int) -> Numbers:
    """Return a hash of each row of a binary or text column; text is hashed as UTF-8.

    Args:
        place: a number that is different for each field of a row.
    """
    sizes = lengths(column)
    numbers = (sizes + 1).view(np.uint64)
    if column.null_count:
        numbers[is_null(column)] = 0
    numbers *= np.uint64(_LENGTH)
    numbers += np.uint64(place)
    numbers += _sums_of_words(column, (sizes + 7) >> 3)
    return mix(numbers)


def _sums_of_words(column: pa.Array, counts: npt.NDArray[np.int64]) -> Numbers:
    """Return the sum of the words of each row, each word mixed with its index.

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
        factors = (np.arange(1, 2 * widest, 2, dtype=np.uint64) * np.uint64(STEP))[:, np.newaxis]
        step = max(1, _WORDS_AT_ONCE // widest)
        for start in range(0, len(column), step):
            # One row for each word index: numpy is fast along rows.
            words = padded_words(column.slice(start, step), _WORD, widest).T
            np.sum(
                mix(np.multiply(words, factors, order="C")), axis=0, out=sums[start : start + step]
            )
    return sums
