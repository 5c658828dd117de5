"""Fetched records, stored as columns until the application accesses them.

Iteration makes the objects in small groups. To make all at once costs 100 of 450 ns per record: the
garbage collector visits each of a thousand objects once or twice, and they leave the processor's
cache. To make one at a time costs as much in a loop with a body: 42 more misses of the instruction
cache per record (cachegrind).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice, repeat
from typing import Any, overload

from aioprod.protocol.record_batch import BatchHeader
from aioprod.protocol.record_reader import RecordColumns
from aioprod.types import ConsumerRecord, TopicPartition

_AT_ONCE = 64
# A ConsumerRecord from a tuple of its fields, without a call of Python code.
_make: Any = tuple.__new__


class Records(Sequence[ConsumerRecord]):
    """Records in their order, as ``getmany`` returns them: an immutable sequence, equal to a list
    of the same records.

    Args:
        parts: sequences of records, in order.
    """

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[Sequence[ConsumerRecord]]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return chain.from_iterable(self._parts)

    @overload
    def __getitem__(self, index: int) -> ConsumerRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[ConsumerRecord]: ...
    def __getitem__(self, index: int | slice) -> ConsumerRecord | list[ConsumerRecord]:
        if isinstance(index, slice):
            return list(self)[index]
        place = index if index >= 0 else index + len(self)
        for part in self._parts if place >= 0 else ():
            if place < len(part):
                return part[place]
            place -= len(part)
        raise IndexError(f"record {index} of {len(self)}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Records, list)):
            return NotImplemented
        return len(self) == len(other) and all(map(ConsumerRecord.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Records({list(self)!r})"


class BatchRecords(Sequence[ConsumerRecord]):
    """Consecutive records of one batch.

    Args:
        tp: their partition.
        header: the header of their batch.
        columns: all records of the batch.
        first, end: the range of indices in the batch.
    """

    __slots__ = ("_columns", "_end", "_epoch", "_first", "_timestamp_type", "_tp")

    def __init__(
        self, tp: TopicPartition, header: BatchHeader, columns: RecordColumns, first: int, end: int
    ) -> None:
        self._tp = tp
        self._timestamp_type = header.timestamp_type
        self._epoch = header.partition_leader_epoch
        self._columns = columns
        self._first = first
        self._end = end

    def __len__(self) -> int:
        return self._end - self._first

    def __iter__(self) -> Iterator[ConsumerRecord]:
        offsets, timestamps, keys, values, headers = (
            column[self._first : self._end] for column in self._columns
        )
        topic, partition = self._tp
        kind, epoch = repeat(self._timestamp_type), repeat(self._epoch)
        fields = zip(
            repeat(topic),
            repeat(partition),
            offsets,
            timestamps,
            kind,
            keys,
            values,
            headers,
            epoch,
        )
        made = map(_make, repeat(ConsumerRecord), fields)
        return chain.from_iterable(iter(lambda: list(islice(made, _AT_ONCE)), []))

    @overload
    def __getitem__(self, index: int) -> ConsumerRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[ConsumerRecord]: ...
    def __getitem__(self, index: int | slice) -> ConsumerRecord | list[ConsumerRecord]:
        if isinstance(index, slice):
            return list(self)[index]
        place = range(self._first, self._end)[index]
        fields: Any = tuple(column[place] for column in self._columns)
        offset, timestamp, key, value, headers = fields
        return ConsumerRecord(
            *self._tp, offset, timestamp, self._timestamp_type, key, value, headers, self._epoch
        )
