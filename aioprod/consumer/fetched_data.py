"""The data of one partition in one response. Records and columns are taken from it a batch at a
time, when the application asks for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence, Sized
from itertools import chain
from typing import Any, cast

from aioprod.consumer.readable_batches import AbortedBatches, ReadableBatches, end_of
from aioprod.consumer.record_conversion import Preparation, RecordConverter, Unread, UnreadRow
from aioprod.consumer.records import DecodedBatch, OpenBatch, Records, open_batch
from aioprod.consumer.subscription import PartitionState, Position
from aioprod.errors import CorruptRecordError, ProtocolError
from aioprod.preparation import NotPrepared
from aioprod.protocol.batch_cursor import Batch
from aioprod.protocol.old_formats import in_current_format
from aioprod.protocol.primitives import BytesLike
from aioprod.protocol.record_batch import read_header
from aioprod.types import ConsumerRecord

# Batches of fewer records take less time as records than as columns.
_FEW_RECORDS = 8


class FetchedData:
    """Batches of one partition.

    :attr:`_open` has all unreturned records of the batches that were opened, in order. Columns are
    read from whole batches, so :meth:`take_arrow` closes the open batches, and reads them from the
    position on.

    Args:
        state: the partition; the data is void once its version has changed.
        data: batches; the last one may be incomplete.
        start: the requested position; records before it are skipped.
        aborted: with ``read_committed``, the batches to skip.
        converter: converts records before they are returned, if not None.
        check_crcs: whether to verify checksums.

    Attributes:
        memory: the object that has the bytes: ``data``, or the response of which they are a view.
        position: the position after the records that were taken.
        following: the position after the data; None if it is unknown, as they are corrupt.
    """

    __slots__ = (
        "_as_columns",
        "_as_records",
        "_batches",
        "_converted",
        "_converter",
        "_data",
        "_failure",
        "_open",
        "_opened",
        "_preparation",
        "following",
        "memory",
        "position",
        "state",
    )

    def __init__(
        self,
        state: PartitionState,
        data: BytesLike,
        start: Position,
        aborted: AbortedBatches | None,
        converter: RecordConverter | None,
        *,
        check_crcs: bool,
    ) -> None:
        self.state: PartitionState = state
        self.position: Position = start
        old_format: CorruptRecordError | None = None
        try:
            data = in_current_format(data, check_crcs=check_crcs)
        except CorruptRecordError as error:
            old_format = error
        self.memory: Sized = cast("bytes", data.obj) if isinstance(data, memoryview) else data
        self._data = data
        self._batches = ReadableBatches(data, start, aborted, check_crcs=check_crcs)
        self.following: Position | None = self._batches.following
        self._converter = converter
        self._open: deque[OpenBatch] = deque()
        self._converted = 0  # how many of these records, from the first on, are converted
        # The last offset and the places of batches that may have records from the position on.
        self._opened: deque[tuple[int, Sequence[int]]] = deque()
        self._as_columns: list[Batch] = []  # the batches that were read as columns last
        self._as_records = converter is None  # whether columns may be made of records
        self._preparation = Preparation()
        self._failure: BaseException | None = None
        if old_format is not None:
            self._stop_at_corrupt(old_format)

    @property
    def unread_bytes(self) -> int:
        """The number of bytes in batches that were not reached."""
        return self._batches.unread_bytes

    @property
    def at_end(self) -> bool:
        """True if all records were taken. It may also be found by taking none."""
        return not self._open and self._batches.at_end and self._failure is None

    def take(self, limit: int) -> Sequence[ConsumerRecord]:
        """Return at most ``limit`` records, none at the end of the data. :attr:`position` moves
        past them.

        Raises:
            CorruptRecordError, DeserializationError: if the next record can't be read. Earlier
                calls have returned the records before it.
            NotPrepared: if a deserializer has to wait before it can read the next record.
            KeyboardInterrupt, SystemExit: if a deserializer raised it for the next record.
        """
        if not self._open:
            self._opened.clear()
        while self._opened and self._opened[0][0] < self.position.offset:
            self._opened.popleft()
        if self._converted:
            taken = self._take_raw(min(limit, self._converted))
            self._converted -= len(taken)
            return taken
        self._check_prepared()
        while raw := self._take_raw(limit):
            if self._converter is None:
                return raw
            converted, unread = self._converter.convert(list(raw))
            if unread is not None:
                self._stop_before(unread)
            if converted:
                self._preparation.converted()
                return converted
            if self._preparation.needed is not None:
                raise self._preparation.needed
        if self._failure is not None:
            raise self._failure
        return raw

    def take_arrow(self, limit: int) -> list[Any]:
        """Return the records of whole batches, at least ``limit`` if there are that many, as
        ``pyarrow.RecordBatch``; at most ``limit`` if the batches are small, and none at the end of
        the data. :attr:`position` moves past them.

        Raises:
            CorruptRecordError, DeserializationError, NotPrepared: see :meth:`take`.
        """
        if self._converted:
            self._preparation.wait_for(None)  # a later record waits: it is converted again
        self._check_prepared()
        if self._as_records and (rows := self._rows_of_run(limit)) is not None:
            return [rows]
        self._close_batches()
        while parts := self._next_columns(limit):
            if self._converter is None:
                return parts
            converted, unread = self._converter.convert_arrow(parts)
            if unread is not None:
                self._stop_before_row(unread)
            if converted:
                self._preparation.converted()
                return converted
            if self._preparation.needed is not None:
                raise self._preparation.needed
        if self._failure is not None:
            raise self._failure
        return []

    def give_back(self, records: list[ConsumerRecord]) -> None:
        """Put back the records that were taken last: the next :meth:`take` returns them again."""
        self._open.appendleft(DecodedBatch(records))
        self._converted += len(records)
        self.position = Position(records[0].offset, records[0].leader_epoch)

    def forget(self) -> None:
        """Release the bytes: no more records will be taken."""
        self._data = self.memory = b""
        self._opened.clear()
        self._as_columns.clear()
        self._stop(None)

    # -- records -----------------------------------------------------------------------------------

    def _take_raw(self, limit: int) -> Sequence[ConsumerRecord]:
        """Return at most ``limit`` records that are not converted, or were given back."""
        taken: list[Sequence[ConsumerRecord]] = []
        open_batches = self._open
        while limit and (batch := open_batches[0] if open_batches else self._open_next()):
            some = batch.take(limit)
            limit -= len(some)
            taken.append(some)
            if not batch.left:
                open_batches.popleft()
            if open_batches or self._failure is not None:
                last = some[-1]
                self.position = Position(last.offset + 1, last.leader_epoch)
            else:
                # After the last record of a batch, the position is the end of the batch: compaction
                # may have removed its last records.
                self.position = self._batches.end
                if self._batches.at_end:
                    break
        return Records(taken)

    def _open_next(self) -> OpenBatch | None:
        """Open the next batches that have records to return; return None at the end of the data."""
        if (run := self._open_run()) is not None:
            return run
        while (found := self._next_batch()) is not None:
            header, place = found
            try:
                batch = open_batch(self.state.tp, self._data, place, header, self.position.offset)
            except ProtocolError as error:
                self._stop_at_corrupt(error)
                return None
            if batch.left:
                self._open.append(batch)
                self._opened.append((header.last_offset, (place,)))
                return batch
            self.position = self._batches.end
        return None

    def _open_run(self) -> OpenBatch | None:
        """Open the next batches at once; return None if that is not possible."""
        run = self._batches.open_run(self.state.tp, self.position.offset)
        if run is None:
            return None
        records, places = run
        self._open.append(records)
        self._opened.append((self._batches.end.offset - 1, places))
        return records

    def _stop_before(self, unread: Unread) -> None:
        """Stop before a record that can't be converted, or not yet."""
        first = unread.rest[0]
        if isinstance(unread.error, NotPrepared):
            self._open.appendleft(DecodedBatch(unread.rest))
            self._preparation.wait_for(unread.error)
        else:
            self._stop(unread.error)
        self.position = Position(first.offset, first.leader_epoch)

    # -- columns -----------------------------------------------------------------------------------

    def _close_batches(self) -> None:
        """Go back to the batches that have unreturned records; they will be read as columns."""
        if self._open:
            places = chain.from_iterable(places for _, places in self._opened)
            self._batches.put_back(
                (header, place)
                for header, place in ((read_header(self._data, place), place) for place in places)
                if header.last_offset >= self.position.offset
                and not header.is_control
                and header.record_count
            )
        self._open.clear()
        self._opened.clear()
        self._converted = 0

    def _rows_of_run(self, limit: int) -> Any:
        """Return the records of the next batches as rows; None to read them as columns, which takes
        less time unless each of them has few records.
        """
        if not self._open:
            self._opened.clear()
            self._as_records = self._batches.are_small and self._open_run() is not None
        if not self._open or self._converted:
            return None
        count = self._open[0].left
        self._as_records = self._as_records and count < _FEW_RECORDS * len(self._opened[-1][1])
        if not self._as_records:
            return None
        from aioprod.consumer.arrow_tables import rows_of_records

        return rows_of_records(self._take_raw(min(count, limit)))

    def _next_columns(self, limit: int) -> list[Any]:
        """Return the rows of the next batches that have some, at least ``limit`` rows if there are
        that many, and note these batches as opened.
        """
        while True:
            begin, count = self.position, 0
            self._as_columns.clear()
            while count < limit and (batch := self._next_batch()) is not None:
                self._as_columns.append(batch)
                count += batch[0].record_count
                self.position = self._batches.end
            if not self._as_columns:
                return []
            if parts := self._columns(begin):
                return parts

    def _columns(self, begin: Position) -> list[Any]:
        """Return the records of the opened batches from ``begin`` on, up to a batch that can't be
        read.
        """
        from aioprod.consumer.arrow_tables import rows_of_batches

        if not isinstance(self._data, bytes):
            self._data = bytes(self._data)
        tp, data = self.state.tp, self._data
        try:
            return list(rows_of_batches(tp, data, self._as_columns, begin.offset))
        except CorruptRecordError:
            self.position = begin
        parts: list[Any] = []
        for batch in self._as_columns:
            try:
                parts += rows_of_batches(tp, data, [batch], begin.offset)
            except CorruptRecordError as error:
                self._stop_at_corrupt(error)
                break
            self.position = end_of(batch[0])
        return parts

    def _stop_before_row(self, unread: UnreadRow) -> None:
        """Stop before a row that can't be converted, or not yet."""
        rest = [
            batch
            for batch in self._as_columns
            if unread.offset <= batch[0].last_offset < self.position.offset
        ]
        self._as_columns.clear()
        self.position = Position(unread.offset, rest[0][0].partition_leader_epoch)
        if isinstance(unread.error, NotPrepared):
            self._batches.put_back(rest)
            self._preparation.wait_for(unread.error)
        else:
            self._stop(unread.error)

    # -- both --------------------------------------------------------------------------------------

    def _next_batch(self) -> Batch | None:
        """Return the next batch with records of the application; None at the end of the data. The
        position moves past batches that are skipped.
        """
        try:
            batch = self._batches.next()
        except ProtocolError as error:
            self.position = self._batches.passed
            self._stop_at_corrupt(error)
            return None
        if batch is None and self._failure is None:
            self.position = self._batches.passed
        return batch

    def _check_prepared(self) -> None:
        """Stop if the deserializer of the next record can't be prepared."""
        preparation = self._preparation
        if preparation.needed is not None and (failure := preparation.failure()) is not None:
            self._stop(failure)

    def _stop_at_corrupt(self, error: ProtocolError) -> None:
        tp = self.state.tp
        self._stop(
            CorruptRecordError(
                f"{tp.topic}-{tp.partition} at offset {self.position.offset}: {error}"
            )
        )

    def _stop(self, failure: BaseException | None) -> None:
        """Take no more records, and raise ``failure`` in the next call."""
        self._failure = failure
        self._batches.stop()
        self._open.clear()
        self._converted = 0
