"""Encodes many values at once: Arrow's kernels join the parts of each row. Imports pyarrow and
numpy, which are optional: import this module lazily.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

Int64s = npt.NDArray[np.int64]
Part = Any
"""The bytes of one part of each row: a binary array, or a scalar if all rows have the same."""

_EMPTY: Final = pa.scalar(b"", pa.binary())
_LONGEST_VARINT: Final = 10


def constant(data: bytes) -> Part:
    """Return a part that is the same in all rows."""
    return pa.scalar(data, pa.binary())


def joined(parts: Sequence[Part], count: int) -> pa.Array:
    """Join the parts of each of ``count`` rows."""
    if any(isinstance(part, pa.Array) for part in parts):
        return pc.binary_join_element_wise(*parts, _EMPTY)
    data = b"".join(part.as_py() for part in parts)
    return pa.repeat(constant(data), count)


def joined_lists(items: pa.Array, lengths: Int64s) -> pa.Array:
    """Join the items of each list."""
    lists = pa.LargeListArray.from_arrays(pa.array(_offsets(lengths)), items)
    return pc.binary_join(lists, _EMPTY)


def zigzag_varints(numbers: Int64s) -> pa.Array:
    """Encode whole numbers as zigzag varints, as in Avro, and in Protobuf for signed types."""
    left = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    most = _LONGEST_VARINT if not len(left) else max(1, -(-int(left.max()).bit_length() // 7))
    lengths = np.ones(len(left), np.int64)
    for place in range(1, most):
        lengths += left >= np.uint64(1 << 7 * place)
    starts = _offsets(lengths)
    data = np.empty(int(starts[-1]), np.uint8)
    for place in range(most):
        here = lengths > place
        digits = (left[here] >> np.uint64(7 * place)).astype(np.uint8) & np.uint8(0x7F)
        more = lengths[here] > place + 1
        data[starts[:-1][here] + place] = digits | (more.astype(np.uint8) << np.uint8(7))
    return _binary(starts, data)


def fixed_bytes(numbers: pa.Array) -> pa.Array:
    """Return the bytes of each number, in this machine's order, which is little-endian."""
    width = numbers.type.bit_width // 8
    fixed = pa.Array.from_buffers(
        pa.binary(width), len(numbers), [None, numbers.buffers()[1]], offset=numbers.offset
    )
    return fixed.cast(pa.binary())


def spread(encoded: pa.Array, valid: npt.NDArray[np.bool_], other: bytes) -> pa.Array:
    """Return ``encoded`` in the rows that are ``valid``, in order, and ``other`` in the others."""
    places = np.cumsum(valid) - 1
    found = encoded.take(pa.array(places, mask=~valid))
    return pc.fill_null(found, constant(other))


def integers(column: pa.Array) -> Int64s:
    """Return an array without nulls as 64-bit integers."""
    found: Int64s = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return found


def _offsets(lengths: Int64s) -> Int64s:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _binary(offsets: Int64s, data: npt.NDArray[np.uint8]) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
