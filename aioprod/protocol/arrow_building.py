"""Makes columns of Arrow out of numbers, text and bytes. Imports pyarrow and numpy, which are
optional, so import this module on demand.

``pyarrow.array`` would import pandas, which takes 0.3 seconds and 40 MB in each Spark process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]

from aioprod.errors import CorruptRecordError


def numbers_column(kind: pa.DataType, numbers: npt.NDArray[Any]) -> pa.Array:
    """Return a column that shares the memory of the numbers."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def bytes_column(values: Sequence[bytes | None]) -> pa.BinaryArray:
    """Return a binary column of these values, of which None is a null."""
    ends = np.cumsum([0, *[len(value) if value else 0 for value in values]], dtype=np.int32)
    null = np.array([value is None for value in values], np.bool_)
    return pa.Array.from_buffers(
        pa.binary(),
        len(values),
        [validity(null), pa.py_buffer(ends), pa.py_buffer(b"".join(filter(None, values)))],
    )


def repeated_column(text: str, count: int) -> pa.StringArray:
    """Return a column with the same text in each row.

    Raises:
        CorruptRecordError: if it would have 2 GiB.
    """
    data = text.encode()
    ends = np.arange(0, (count + 1) * len(data), len(data), dtype=np.int64)
    if ends[-1] > np.iinfo(np.int32).max:
        raise CorruptRecordError(f"a batch of {count} records is too large for Arrow")
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(data * count)]
    )


def validity(null: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    """Return the bitmap of a column with these nulls; None without any."""
    return pa.py_buffer(np.packbits(~null, bitorder="little")) if null.any() else None
