"""Chooses the partitions of an Arrow table's rows, and groups their records by partition. Must be
imported late, as it needs the extra ``arrow``.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from aioprod.native import accelerated
from aioprod.producer.partitioner import partition_for_key
from aioprod.protocol.arrow_buffers import lengths, padded_words
from aioprod.protocol.arrow_records import EncodedRecords, RecordBatches, encode

_Numbers = npt.NDArray[np.uint32]

# If no key has more bytes, all are hashed at once. Nanoseconds per key of 8, 16, 36 and 96 bytes:
# 15, 22, 62 and 160. One call per distinct key costs about 270, 270, 280 and 370, plus 45 per key
# to find the distinct ones.
_LONG_KEY: Final = 96

# Kafka's seed of murmur2.
_SEED: Final = np.uint32(0x9747B28C)
_FACTOR: Final = np.uint32(0x5BD1E995)


@dataclass(frozen=True, slots=True)
class PartitionRecords:
    """The records of one batch.

    Attributes:
        partition: the partition; None lets the sticky choice decide.
        rows: the row numbers of the records, in the order of the records; None if they are the
            next rows of the table.
        count: the number of records.
        batches, number: the portion's batches, and the number of this one.
    """

    partition: int | None
    rows: array[int] | None
    count: int
    batches: RecordBatches
    number: int

    def encode(self) -> EncodedRecords:
        """Return the records, encoded by each call."""
        return self.batches[self.number]


def partition_records(
    rows: pa.RecordBatch,
    partitions: int,
    *,
    first_row: int,
    limit: int,
    timestamp: int,
    ignore_keys: bool = False,
) -> list[PartitionRecords]:
    """Return all rows as records by partition; within a partition they keep their order.

    The column ``partition`` decides, then the key as in Java, then the sticky choice.

    Args:
        rows: at least one row, from ``arrow_columns.windows``.
        partitions: the number of the topic's partitions; the column ``partition`` is not checked.
        first_row: the number of the first row in the table.
        limit, timestamp: as for ``arrow_records.encode``.
        ignore_keys: ``partitioner.ignore.keys``.
    """
    chosen = _chosen(rows, partitions, ignore_keys)
    order = numbers = None
    groups: list[tuple[int | None, int]] = [(None, rows.num_rows)]
    if chosen is not None:
        order = pc.sort_indices(chosen)  # equal ones stay in order
        numbers = memoryview(pc.add(order, first_row).buffers()[1]).cast("Q")
        runs = pc.run_end_encode(chosen.take(order))
        groups = list(zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True))
    batches = encode(
        rows, [end for _, end in groups], limit=limit, timestamp=timestamp, order=order
    )
    parts = []
    following = iter(groups)
    partition, group_end = next(following)
    for number, (start, end) in enumerate(pairwise(batches.cuts)):
        if start == group_end:
            partition, group_end = next(following)
        own = None if numbers is None else array("Q", numbers[start:end].tobytes())
        parts.append(PartitionRecords(partition, own, end - start, batches, number))
    return parts


def _chosen(rows: pa.RecordBatch, partitions: int, ignore_keys: bool) -> pa.Array | None:
    """Return each row's partition, null if it is to be chosen; None if that is so for all."""
    names = rows.schema.names
    given = rows.column("partition") if "partition" in names else None
    if (
        "key" not in names
        or ignore_keys
        or partitions == 1
        or (given is not None and not given.null_count)
    ):
        return given
    by_key = _by_key(rows.column("key"), partitions)
    return by_key if given is None else pc.coalesce(given, by_key)


def _by_key(keys: pa.Array, partitions: int) -> pa.Array:
    """Return the result of ``partition_for_key`` for each key; null for a null key."""
    numbers = pa.py_buffer(key_partitions(keys, partitions))
    chosen = pa.Array.from_buffers(pa.int32(), len(keys), [None, numbers])
    return pc.if_else(keys.is_valid(), chosen, None) if keys.null_count else chosen


@accelerated
def key_partitions(keys: pa.Array, partitions: int, /) -> bytes:
    """Return the partition of each key as int32 in native byte order; any number for a null key."""
    longest = pc.max(pc.binary_length(keys)).as_py() or 0
    if longest > _LONG_KEY:
        encoded = keys.dictionary_encode()
        hashed = pa.array(
            map(partition_for_key, encoded.dictionary.to_pylist(), repeat(partitions)), pa.int32()
        )
        numbers = memoryview(hashed.take(encoded.indices).buffers()[1]).cast("i")
        return numbers[: len(keys)].tobytes()
    hashes = _murmur2(keys, longest)
    hashes &= np.uint32(0x7FFFFFFF)
    hashes %= np.uint32(partitions)
    return hashes.tobytes()


def _murmur2(keys: pa.Array, longest: int) -> _Numbers:
    """Return the hashes of keys of up to ``longest`` bytes, computed word by word for all keys at
    once.
    """
    sizes = lengths(keys)
    hashes = sizes.astype(np.uint32) ^ _SEED
    count = -(-longest // 4)
    words = padded_words(keys, "<u4", count) if count else np.empty((len(keys), 0), np.uint32)
    for index in range(count):
        word = words[:, index]
        whole = hashes * _FACTOR ^ _shifted_xor(word * _FACTOR, 24) * _FACTOR
        last_bytes = (hashes ^ word) * _FACTOR
        # The key has this whole word, or ends inside it, or ended before it.
        unfinished = np.where(sizes > 4 * index, last_bytes, hashes)
        hashes = np.where(sizes >= 4 * index + 4, whole, unfinished)
    return _shifted_xor(_shifted_xor(hashes, 13) * _FACTOR, 15)


def _shifted_xor(numbers: _Numbers, bits: int) -> _Numbers:
    return numbers ^ (numbers >> np.uint32(bits))
