"""The records of fetched batches.

The accelerator makes records out of a batch's bytes as they are taken. Without it a batch is read
as columns, and records are made when the application accesses them.

Iteration over columns makes the objects in small groups. To make all at once costs 100 of 450 ns
per record: the garbage collector visits each of a thousand objects once or twice, and they leave
the processor's cache. To make one at a time costs as much in a loop with a body: 42 more misses of
the instruction cache per record (cachegrind).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, repeat
from typing import Any, Protocol, overload

from aioprod.misuse import RECORDS_OF_OTHERS, names_others
from aioprod.native import accelerated
from aioprod.protocol.primitives import BytesLike
from aioprod.protocol.record_batch import BatchHeader
from aioprod.protocol.record_headers import HeaderBlocks
from aioprod.protocol.record_reader import RecordColumns, body_columns, plain_body
from aioprod.types import ConsumerRecord, Header, TopicPartition

_AT_ONCE = 64
# A ConsumerRecord from a tuple of its fields, without a call of Python code.
_make: Any = tuple.__new__


@names_others(RECORDS_OF_OTHERS)
class Records(Sequence[ConsumerRecord]):
    """Records in their order, as ``getmany`` returns them: an immutable sequence, equal to a list
    of the same records.

    Args:
        parts: sequences of records, in order; they never change.
    """

    __slots__ = ("_count", "_parts")

    def __init__(self, parts: Sequence[Sequence[ConsumerRecord]]) -> None:
        self._parts = parts
        self._count = sum(map(len, parts))

    def __len__(self) -> int:
        return self._count

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


class OpenBatch(Protocol):
    """The records of a batch; all of them are valid.

    Attributes:
        left: how many are not taken yet.
    """

    @property
    def left(self) -> int: ...

    def take(self, most: int, /) -> Sequence[ConsumerRecord]:
        """Return at most ``most`` of the next records."""


def open_batch(
    tp: TopicPartition, data: BytesLike, place: int, header: BatchHeader, start: int
) -> OpenBatch:
    """Open the batch at byte ``place`` of a response.

    Args:
        header: its header, checked.
        start: skip the records before this offset.

    Raises:
        CorruptRecordError: if one of its records is not valid.
    """
    body = plain_body(data, place, header)
    kind = header.timestamp_type
    template = ConsumerRecord(
        tp.topic,
        tp.partition,
        header.base_offset,
        header.max_timestamp if kind else header.base_timestamp,
        kind,
        None,
        None,
        (),
        header.partition_leader_epoch,
    )
    records = cut_records(
        template,
        body,
        header.record_count,
        header.last_offset_delta,
        start - header.base_offset,
        bool(kind),
        HeaderBlocks(),
    )
    if records is None:
        return ColumnBatch(tp, header, body_columns(header, body), start)
    return records


@accelerated
def cut_records(
    template: ConsumerRecord,
    body: bytes | memoryview,
    count: int,
    last_delta: int,
    start: int,
    same_timestamp: bool,
    blocks: Mapping[bytes, tuple[Header, ...]],
    /,
) -> OpenBatch | None:
    """Return None, so that the records are read as columns. The accelerator replaces this function.
    It returns records whose fields are those of ``template`` but for what each has of its own, and
    None if one is not valid.

    Args:
        template: has the base offset and the base timestamp of the batch.
        body: the records, decompressed.
        count: how many there are.
        last_delta: the largest offset delta that is allowed.
        start: skip the records with a smaller offset delta.
        same_timestamp: give all records the timestamp of the template.
        blocks: decodes headers.
    """
    return None


@accelerated
def cut_batches(
    tp: TopicPartition,
    data: BytesLike,
    place: int,
    most: int,
    start: int,
    crcs: int,
    every: bool,
    blocks: Mapping[bytes, tuple[Header, ...]],
    /,
) -> tuple[OpenBatch, int, int, int] | None:
    """Return None, so that each batch is read alone. The accelerator replaces this function. It
    opens the batches from byte ``place`` on, up to the first one that is compressed or not valid,
    and returns their records, their number, and the offset after the last one with its leader
    epoch; None if none has a record to return.

    Args:
        most: open no more batches after this number of bytes.
        start: skip the records before this offset.
        crcs: verify the checksums of the batches that begin before this byte.
        every: whether to open the batches of transactions, too; their markers are skipped.
        blocks: decodes headers.
    """
    return None


class ColumnBatch:
    """A batch that was read as columns."""

    def __init__(
        self, tp: TopicPartition, header: BatchHeader, columns: RecordColumns, start: int
    ) -> None:
        self._tp = tp
        self._header = header
        self._columns = columns
        self.left: int = len(columns.offsets)
        if header.base_offset < start:
            self.left -= bisect_left(columns.offsets, start)

    def take(self, most: int, /) -> BatchRecords:
        """Return at most ``most`` of the next records."""
        first = len(self._columns.offsets) - self.left
        self.left -= min(most, self.left)
        return BatchRecords(
            self._tp, self._header, self._columns, first, len(self._columns.offsets) - self.left
        )


class DecodedBatch:
    """Records that were decoded, and come before those of the batches that are open."""

    def __init__(self, records: list[ConsumerRecord]) -> None:
        self._records = records
        self.left: int = len(records)

    def take(self, most: int, /) -> list[ConsumerRecord]:
        """Return at most ``most`` of the next records."""
        first = len(self._records) - self.left
        self.left -= min(most, self.left)
        return self._records[first : first + most]
