"""A sum over rows that tells whether two writes of a batch wrote the same: whatever the order of the rows, and however they are spread over tasks.

Each row is a product of odd numbers, and the sum is taken modulo 2^64. The numbers come from the CRC-32C of key and value together, from their
lengths, from partition, headers and topic. Each is squared, for CRCs are linear: rows that swap parts of their values would often sum up to the same.
And each has another number added first, or a key's length and a value's could change places. Nothing is done row by row in Python.
"""

from __future__ import annotations

from array import array
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from crc32c import crc32c

from aioprod.protocol.arrow_columns import name_and_value

MODULUS: Final = 1 << 64
# What is added, for each place in a row.
_TOPIC: Final = 0x85EBCA6B5
_BYTES: Final = 0x1B8735939
_VALUE: Final = 0x5BD1E9955
_KEY: Final = 0x9747B28C1
_PARTITION: Final = 0xC2B2AE3D3
_HEADERS: Final = 0x27D4EB2F7
_ONE: Final = pa.scalar(1, pa.uint64())
_TWO: Final = pa.scalar(2, pa.uint64())


class RowDigest:
    """Collects rows.

    Attributes:
        rows: how many there were.
        value: their sum.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.value = 0

    def add(self, topic: str, batch: pa.RecordBatch) -> None:
        """Take rows for a topic, with the columns that `Producer.send_arrow` takes."""
        names = batch.schema.names
        factor = _odd_number(crc32c(topic.encode()), _TOPIC)
        product = _of_pairs(batch.column("key") if "key" in names else pa.nulls(batch.num_rows, pa.binary()), batch.column("value"))
        if "partition" in names:
            product = pc.multiply(product, _odd(_of_partitions(batch.column("partition")), _PARTITION))
        else:
            factor *= _odd_number(0, _PARTITION)
        if "headers" in names:
            product = pc.multiply(product, _odd(_of_headers(batch.column("headers")), _HEADERS))
        else:
            factor *= _odd_number(0, _HEADERS)
        self.rows += batch.num_rows
        self.value = (self.value + (pc.sum(product).as_py() or 0) * factor) % MODULUS


def _odd(numbers: pa.Array, added: int) -> pa.Array:
    sums = pc.add(numbers, pa.scalar(added, pa.uint64()))
    return pc.add(pc.multiply(pc.multiply(sums, sums), _TWO), _ONE)


def _odd_number(number: int, added: int) -> int:
    return ((number + added) ** 2 * 2 + 1) % MODULUS


def _of_partitions(column: pa.Array) -> pa.Array:
    """Plus one, so that partition 0 is another than none."""
    return pc.add(pc.fill_null(column.cast(pa.int64()), -1), 1).cast(pa.uint64())


def _of_pairs(names: pa.Array, values: pa.Array) -> pa.Array:
    """A number for each key and value, or a header's name and value; text counts as its UTF-8, null as another length than none."""
    large = any(pa.types.is_large_string(each.type) or pa.types.is_large_binary(each.type) for each in (names, values))
    kind = pa.large_binary() if large else pa.binary()
    names, values = names.cast(kind), values.cast(kind)
    # One checksum for both: half of what they cost is the call.
    joined = pc.binary_join_element_wise(names, values, pa.scalar(b"", kind), null_handling="replace", null_replacement="")
    sums = pa.Array.from_buffers(pa.uint64(), len(joined), [None, pa.py_buffer(array("Q", map(crc32c, joined.to_pylist())))])
    lengths = pc.multiply(_odd(_lengths(names), _KEY), _odd(_lengths(values), _VALUE))
    return pc.multiply(_odd(sums, _BYTES), lengths)


def _lengths(column: pa.Array) -> pa.Array:
    """Plus one; 0 of a null."""
    return pc.fill_null(pc.add(pc.binary_length(column).cast(pa.int64()), 1), 0).cast(pa.uint64())


def _of_headers(column: pa.Array) -> pa.Array:
    """A number for each row's headers, in which their order counts; 0 where there are none."""
    name_at, value_at = name_and_value(column.type.value_type)
    entries = column.flatten()
    if not len(entries):
        return pa.repeat(pa.scalar(0, pa.uint64()), len(column))
    parents = pc.list_parent_indices(column)
    lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int64())
    ends = pc.cumulative_sum(lengths)
    starts = pc.subtract(ends, lengths)
    place = pc.subtract(pa.array(range(len(entries)), pa.int64()), starts.take(parents)).cast(pa.uint64())
    both = _of_pairs(pc.struct_field(entries, name_at), pc.struct_field(entries, value_at))
    weighed = pc.cumulative_sum(pc.multiply(both, pc.add(pc.multiply(place, _TWO), _ONE)))
    total = pa.concat_arrays([pa.array([0], pa.uint64()), weighed])
    return pc.subtract(total.take(ends), total.take(starts))
