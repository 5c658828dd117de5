"""Which partitions the rows of an Arrow table go to, and their records by partition. Imports pyarrow, an extra: to be imported late."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from aioprod.producer.partitioner import partition_for_key
from aioprod.protocol.arrow_records import EncodedRecords, encode

# Where no key has more bytes, all are hashed at once. Nanoseconds per key of 8, 16, 36 and 64 bytes: 56, 90, 176, 296. A call for each distinct one
# costs about 270, 270, 280 and 370, and 45 for each key to find the distinct ones.
_LONG_KEY: Final = 48


def _number(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.uint32())


# Murmur2's, with the seed that Kafka takes.
_SEED: Final = _number(0x9747B28C)
_FACTOR: Final = _number(0x5BD1E995)


@dataclass(frozen=True, slots=True)
class PartitionRecords:
    """What goes into one batch of a partition.

    Attributes:
        partition: None: any, as the sticky choice wants it.
        rows: the numbers of the table's rows that these are, in the order of the records; None where they are just the next ones.
    """

    partition: int | None
    rows: array[int] | None
    records: EncodedRecords


def partition_records(
    rows: pa.RecordBatch, partitions: int, *, first_row: int, limit: int, timestamp: int, ignore_keys: bool = False
) -> Iterator[PartitionRecords]:
    """All rows as records by partition; within a partition they keep their order.

    The column ``partition`` decides, then the key as in Java, then the sticky choice.

    Args:
        rows: at least one, as ``arrow_columns.windows`` gives them.
        partitions: how many the topic has; what the column says is taken as it is.
        first_row: the number of the first of the rows in the table.
        limit, timestamp: as for ``arrow_records.encode``.
        ignore_keys: ``partitioner.ignore.keys``.
    """
    chosen = _chosen(rows, partitions, ignore_keys)
    numbers = None
    groups: list[tuple[int | None, int]] = [(None, rows.num_rows)]
    if chosen is not None:
        indices = pc.sort_indices(chosen)  # equal ones stay in order
        numbers = memoryview(pc.add(indices, first_row).buffers()[1]).cast("Q")
        rows = rows.take(indices)
        runs = pc.run_end_encode(chosen.take(indices))
        groups = list(zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True))
    start = 0
    following = iter(groups)
    partition, group_end = next(following)
    for records in encode(rows, [end for _, end in groups], limit=limit, timestamp=timestamp):
        if start == group_end:
            partition, group_end = next(following)
        end = start + records.count
        yield PartitionRecords(partition, None if numbers is None else array("Q", numbers[start:end].tobytes()), records)
        start = end


def _chosen(rows: pa.RecordBatch, partitions: int, ignore_keys: bool) -> pa.Array | None:
    """Each row's partition, null where it is open; None where it is so for all."""
    names = rows.schema.names
    given = rows.column("partition") if "partition" in names else None
    if "key" not in names or ignore_keys or partitions == 1 or (given is not None and not given.null_count):
        return given
    by_key = _by_key(rows.column("key"), partitions)
    return by_key if given is None else pc.coalesce(given, by_key)


def _by_key(keys: pa.Array, partitions: int) -> pa.Array:
    """What ``partition_for_key`` says of each key; null of a null."""
    longest = pc.max(pc.binary_length(keys)).as_py() or 0
    if longest > _LONG_KEY:
        encoded = keys.dictionary_encode()
        hashed = pa.array(map(partition_for_key, encoded.dictionary.to_pylist(), repeat(partitions)), pa.int32())
        return hashed.take(encoded.indices)
    hashes = pc.bit_wise_and(_murmur2(pc.fill_null(keys, b""), longest), _number(0x7FFFFFFF))
    quotients = pc.divide(hashes, _number(partitions))
    chosen = pc.subtract(hashes, pc.multiply(quotients, _number(partitions))).cast(pa.int32())
    return pc.if_else(keys.is_valid(), chosen, None) if keys.null_count else chosen


def _murmur2(keys: pa.Array, longest: int) -> pa.Array:
    """The hashes of keys of up to ``longest`` bytes, of all keys at once and word by word."""
    words = -(-longest // 4) or 1
    lengths = pc.binary_length(keys)
    # Zeros behind a key make whole words of it; what is behind its last bytes does not count then.
    padded = pc.ascii_rpad(keys.view(pa.string()), 4 * words, padding="\0")
    numbers = pa.Array.from_buffers(pa.uint32(), len(keys) * words, [None, padded.buffers()[2]])
    columns = pa.FixedSizeListArray.from_arrays(numbers, words)
    hashes = pc.bit_wise_xor(lengths.cast(pa.uint32()), _SEED)
    for index in range(words):
        word = pc.list_element(columns, index)
        whole = pc.bit_wise_xor(pc.multiply(hashes, _FACTOR), pc.multiply(_shifted_xor(pc.multiply(word, _FACTOR), 24), _FACTOR))
        last_bytes = pc.multiply(pc.bit_wise_xor(hashes, word), _FACTOR)
        # The key has this word, or its last one to three bytes are in it, or it ended before.
        unfinished = pc.if_else(pc.greater(lengths, 4 * index), last_bytes, hashes)
        hashes = pc.if_else(pc.greater_equal(lengths, 4 * index + 4), whole, unfinished)
    return _shifted_xor(pc.multiply(_shifted_xor(hashes, 13), _FACTOR), 15)


def _shifted_xor(numbers: pa.Array, bits: int) -> pa.Array:
    return pc.bit_wise_xor(numbers, pc.shift_right(numbers, _number(bits)))
