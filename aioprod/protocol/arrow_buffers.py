"""The buffers of Arrow columns as numpy arrays. Imports pyarrow and numpy, which are optional, so
import this module on demand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]


def lengths(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return the number of bytes of each binary or text value, or of elements of each list; 0 for
    null.
    """
    offsets = column.buffers()[1]
    if offsets is None or not offsets.size:
        return np.zeros(len(column), np.int64)
    ends = np.frombuffer(offsets, np.int64 if _is_large(column.type) else np.int32)[
        column.offset : column.offset + len(column) + 1
    ]
    sizes = np.diff(ends).astype(np.int64)
    if column.null_count:
        sizes[is_null(column)] = 0
    return sizes


def is_null(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows that are null."""
    bits = np.frombuffer(column.is_null().buffers()[1], np.uint8)
    return np.unpackbits(bits, count=len(column), bitorder="little").view(np.bool_)


def padded_words(column: pa.Array, word: npt.DTypeLike, count: int) -> npt.NDArray[Any]:
    """Return ``count`` numbers for each binary or text value: its bytes, padded with zeros. No
    value may have more bytes.
    """
    size = np.dtype(word).itemsize
    # Arrow's functions for text accept any bytes, and are ten times as fast as numpy's.
    text = column.view(pa.large_string() if _is_large(column.type) else pa.string())
    if text.null_count:
        text = pc.fill_null(text, "")
    padded = pc.ascii_rpad(text, count * size, padding="\0")
    return np.frombuffer(padded.buffers()[2], word, len(column) * count).reshape(len(column), count)


def _is_large(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_large_list(kind)
    )
