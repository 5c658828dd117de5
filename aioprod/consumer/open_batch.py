"""The records of one batch, from its first access to its last record."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Protocol

from aioprod.consumer.records import BatchRecords
from aioprod.native import accelerated
from aioprod.protocol.primitives import BytesLike
from aioprod.protocol.record_batch import BatchHeader
from aioprod.protocol.record_headers import HeaderBlocks
from aioprod.protocol.record_reader import RecordColumns, body_columns, plain_body
from aioprod.types import ConsumerRecord, Header, TopicPartition


class OpenBatch(Protocol):
    """The records of a batch; all of them are valid.

    Attributes:
        left: how many are not taken yet.
    """

    @property
    def left(self) -> int: ...

    def take(self, most: int, /) -> Sequence[ConsumerRecord]:
        """Return the next records, at most so many."""


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


class ColumnBatch:
    """A batch that was read as columns."""

    def __init__(
        self, tp: TopicPartition, header: BatchHeader, columns: RecordColumns, start: int
    ) -> None:
        self._tp = tp
        self._header = header
        self._columns = columns
        self.left = len(columns.offsets)
        if header.base_offset < start:
            self.left -= bisect_left(columns.offsets, start)

    def take(self, most: int, /) -> BatchRecords:
        """Return the next records, at most so many."""
        first = len(self._columns.offsets) - self.left
        self.left -= min(most, self.left)
        return BatchRecords(
            self._tp, self._header, self._columns, first, len(self._columns.offsets) - self.left
        )
