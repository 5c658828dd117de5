"""The batches of a response that have records for the application: neither markers, nor of aborted
transactions (KIP-98).
"""

from __future__ import annotations

import heapq
import struct
from collections import deque
from collections.abc import Iterable

from aioprod.consumer.records import OpenBatch, cut_batches
from aioprod.consumer.subscription import Position
from aioprod.errors import CorruptRecordError
from aioprod.protocol.batch_cursor import Batch, BatchCursor
from aioprod.protocol.messages.fetch import AbortedTransaction
from aioprod.protocol.primitives import BytesLike
from aioprod.protocol.record_batch import LOG_OVERHEAD, BatchHeader
from aioprod.protocol.record_headers import HeaderBlocks
from aioprod.protocol.record_reader import read_batch_records
from aioprod.types import TopicPartition

_ABORT_MARKER = 0
# Batches of this number of bytes are opened at once: they are still in the processor's cache when
# their records are made. A batch of one record takes 7 us if opened alone, and 0.35 us in a run.
_RUN_BYTES = 128 << 10
_SMALL_BYTES = 4 << 10


class ReadableBatches:
    """The batches of one partition in a response.

    Args:
        data: batches; the last one may be incomplete.
        start: the requested position.
        aborted: with ``read_committed``, the batches to skip.
        check_crcs: whether to verify checksums.

    Attributes:
        unread_bytes: bytes of the batches that were not reached.
        end: the position after the batch that was returned last.
        passed: the position after the last batch that was reached, returned or skipped.
        following: the position after the data; None if it is unknown, as they are corrupt.
    """

    passed: Position
    end: Position
    unread_bytes: int

    def __init__(
        self,
        data: BytesLike,
        start: Position,
        aborted: AbortedBatches | None,
        *,
        check_crcs: bool,
    ) -> None:
        self._data = data
        self._aborted = aborted
        self._size = self.unread_bytes = len(data)
        self.end = self.passed = self._start = start
        cursor = BatchCursor(data, start.offset, check_crcs=check_crcs)
        last = cursor.last_header()
        self.following: Position | None = None if last is None else end_of(last)
        self._cursor = cursor
        self._crcs_until = cursor.unchecked_until
        self._again: deque[Batch] = deque()
        self._in_runs = True
        self._ended = False

    def next(self) -> Batch | None:
        """Return the next batch; None at the end of the data.

        Raises:
            CorruptRecordError: if a batch can't be read, after the batches before it.
        """
        if self._again:
            again = self._again.popleft()
            self.end = end_of(again[0])
            return again
        while (batch := self._cursor.next()) is not None:
            header, place = batch
            self.unread_bytes = self._size - place - LOG_OVERHEAD - header.batch_length
            self.passed = end_of(header)
            aborted = self._aborted
            skipped = aborted is not None and aborted.contains(self._data, place, header)
            if not (skipped or header.is_control or header.record_count == 0):
                self.end = self.passed
                return batch
        self.unread_bytes = 0
        if self.passed is self._start and not self._ended:
            # A broker sends the first batch complete, whatever its size. Without an error, the
            # consumer would fetch it again and again.
            raise CorruptRecordError(
                f"the broker sent {len(self._data)} bytes without a complete batch"
            )
        return None

    def open_run(self, tp: TopicPartition, start: int) -> tuple[OpenBatch, list[int]] | None:
        """Open the next batches at once, as far as they need nothing but checks; None if that is
        not possible, or none has records from the offset ``start`` on.

        Returns:
            Their records, and where each of them begins.
        """
        if self._again or not self._in_runs:
            return None
        cursor, aborted = self._cursor, self._aborted
        found = cut_batches(
            tp,
            self._data,
            cursor.place,
            _RUN_BYTES,
            start,
            self._crcs_until,
            aborted is None or aborted.none_left,
            HeaderBlocks(),
        )
        if found is None:
            self._in_runs = False  # the next ones would be compressed, too, or this is Python only
            return None
        records, count, offset, leader_epoch = found
        self.end = self.passed = Position(offset, leader_epoch)
        places = cursor.pass_over(count)
        self.unread_bytes = self._size - cursor.place
        return records, places

    @property
    def are_small(self) -> bool:
        """True if the batches may have few records each."""
        return self._cursor.mean_size < _SMALL_BYTES

    @property
    def at_end(self) -> bool:
        """True if no batch follows the one that was returned last. False if only skipped ones do,
        or an incomplete one: :meth:`next` finds out.
        """
        return self.end is self.passed and not (self.unread_bytes or self._again)

    def put_back(self, batches: Iterable[Batch]) -> None:
        """Return these batches, in their order, before any others."""
        self._again.extendleft(reversed([*batches]))

    def stop(self) -> None:
        """Release the data, and return no more batches."""
        self._data = b""
        self._cursor = BatchCursor(b"", 0, check_crcs=False)
        self._again.clear()
        self._in_runs = False
        self._ended = True


class AbortedBatches:
    """The aborted transactions of one response.

    The broker lists them by producer and first offset; the marker in the log is their end.

    Args:
        aborted: the list in the response.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = [(item.first_offset, item.producer_id) for item in aborted]
        heapq.heapify(self._coming)
        self._open: set[int] = set()

    @property
    def none_left(self) -> bool:
        """True if none of the following batches is of an aborted transaction."""
        return not (self._coming or self._open)

    def contains(self, data: BytesLike, place: int, header: BatchHeader) -> bool:
        """Return whether to skip a batch. Must be called for each batch, in the order of the log.

        Args:
            header: checked, as ``BatchCursor`` returns it.

        Raises:
            CorruptRecordError: if a marker can't be read.
        """
        while self._coming and self._coming[0][0] <= header.last_offset:
            self._open.add(heapq.heappop(self._coming)[1])
        if header.is_control:
            if (
                header.producer_id in self._open
                and _marker_type(data, place, header) == _ABORT_MARKER
            ):
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open


def _marker_type(data: BytesLike, place: int, header: BatchHeader) -> int:
    records = read_batch_records(data, place, header)
    key = records[0].key if records else None
    if key is None or len(key) < 4:
        raise CorruptRecordError(f"control batch at offset {header.base_offset} has no marker")
    _, marker = struct.unpack_from(">hh", key)
    return int(marker)


def end_of(header: BatchHeader) -> Position:
    """Return the position after a batch."""
    return Position(
        header.base_offset + header.last_offset_delta + 1, header.partition_leader_epoch
    )
