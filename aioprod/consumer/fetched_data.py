"""The data of one partition in one response, and the records in it: decoded a batch at a time, when
the application asks for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from typing import Any, cast

from aioprod.consumer.aborted import AbortedBatches
from aioprod.consumer.fetched_batches import end_of, fetched_batches
from aioprod.consumer.held_back import HeldBack
from aioprod.consumer.open_batch import OpenBatch, open_batch
from aioprod.consumer.record_conversion import RecordConverter, Unread
from aioprod.consumer.records import Records
from aioprod.consumer.subscription import PartitionState, Position
from aioprod.errors import CorruptRecordError, ProtocolError
from aioprod.preparation import NotPrepared
from aioprod.protocol.old_formats import in_current_format
from aioprod.protocol.primitives import BytesLike
from aioprod.protocol.record_batch import BatchHeader
from aioprod.types import ConsumerRecord


class FetchedData:
    """Batches of one partition.

    Args:
        state: the partition; the data are void once its version has changed.
        data: batches; the last one may be incomplete.
        start: the requested position; records before it are skipped.
        aborted: with ``read_committed``, the batches to skip.
        converter: converts records before they are returned, if not None.

    Attributes:
        memory: the object that holds the bytes: ``data``, or the response of which they are a view.
        unread_bytes: bytes of the batches that are not decoded yet.
        position: the position after the records that were taken.
    """

    __slots__ = (
        "_aborted",
        "_batches",
        "_converter",
        "_data",
        "_failure",
        "_given_back",
        "_held",
        "_open",
        "_open_end",
        "_start",
        "memory",
        "position",
        "state",
        "unread_bytes",
        "version",
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
        self.state = state
        self.version = state.version
        self.position = self._start = start
        old_format: CorruptRecordError | None = None
        try:
            data = in_current_format(data, check_crcs=check_crcs)
        except CorruptRecordError as error:
            old_format = error
        self.unread_bytes = len(data)
        self.memory: Sized = cast("bytes", data.obj) if isinstance(data, memoryview) else data
        self._data = data
        self._batches: Iterator[tuple[BatchHeader, int]] = fetched_batches(
            data, start.offset, check_crcs=check_crcs
        )
        self._aborted = aborted
        self._converter = converter
        self._open: OpenBatch | None = None
        self._open_end = start  # where the open batch ends
        self._given_back: list[ConsumerRecord] = []
        self._held = HeldBack()
        self._failure: BaseException | None = None
        if old_format is not None:
            self._stop_at_corrupt(old_format)

    def end(self, *, check_crcs: bool) -> Position | None:
        """Return the position after the data; None if it is unknown, as they are corrupt."""
        return end_of(self._data, check_crcs=check_crcs)

    def take(self, limit: int) -> Sequence[ConsumerRecord]:
        """Return at most ``limit`` records, none at the end of the data. :attr:`position` moves
        past them.

        Raises:
            CorruptRecordError, DeserializationError: if the next record can't be read. Earlier
                calls have returned the records before it.
            NotPrepared: if a deserializer has to wait before it can read the next record.
            KeyboardInterrupt, SystemExit: if a deserializer raised it for the next record.
        """
        if self._given_back:
            taken, self._given_back = self._given_back[:limit], self._given_back[limit:]
            self._behind(taken[-1])
            return taken
        if (failure := self._held.failure()) is not None:
            self._stop(failure)
        while raw := self._take_raw(limit):
            if self._converter is None:
                return raw
            raw = list(raw)
            converted, unread = self._converter.convert(raw)
            if self._converter.reads_columns:
                self._held.remember(raw)
            if unread is not None:
                self._leave(unread)
            if converted:
                self._held.converted()
                return converted
            if self._held.needed is not None:
                raise self._held.needed
        if self._failure is not None:
            raise self._failure
        return raw

    def take_arrow(self, limit: int) -> list[Any]:
        """Return the records of whole batches, at least ``limit`` if there are so many, as
        ``pyarrow.RecordBatch``; none at the end of the data. :attr:`position` moves past them.

        Raises:
            CorruptRecordError, DeserializationError, NotPrepared: as :meth:`take`.
        """
        if self._converter is None:
            return self._take_raw_arrow(limit)
        if (failure := self._held.failure()) is not None:
            self._stop(failure)
        if self._given_back:  # converted one by one
            self._held.hold_again(self._given_back[0].offset)
            self._given_back = []
        while raw := self._take_raw_arrow(limit):
            converted, unread = self._converter.convert_arrow(raw, self.position.leader_epoch)
            if unread is not None:
                self._leave(unread)
            if converted:
                self._held.converted()
                return converted
            if self._held.needed is not None:
                raise self._held.needed
        return []

    def _take_raw_arrow(self, limit: int) -> list[Any]:
        """Return rows that are not converted.

        Raises:
            CorruptRecordError: as :meth:`take`; and the error of a record that was converted.
        """
        from aioprod.consumer.arrow_tables import rows_of_batches, rows_of_records

        if self._given_back or self._held.records or self._open is not None:
            # Of a batch that was begun.
            records = self.take(limit) if self._given_back else self._take_raw(limit)
            if records:
                return [rows_of_records(records)]
        if self._failure is not None:
            raise self._failure
        if not isinstance(self._data, bytes):
            self._data = bytes(self._data)
        begin, chosen, count = self.position, [], 0
        ends: list[Position] = []
        while count < limit and (found := self._next_batch()) is not None:
            chosen.append(found)
            count += found[0].record_count
            self.position = self._open_end
            ends.append(self.position)
        try:
            return list(rows_of_batches(self.state.tp, self._data, chosen, begin.offset))
        except CorruptRecordError:
            self.position = begin
            return self._up_to_corrupt(chosen, ends)

    def _up_to_corrupt(
        self, chosen: Sequence[tuple[BatchHeader, int]], ends: Sequence[Position]
    ) -> list[Any]:
        """Return the records of the batches before the one that can't be read."""
        from aioprod.consumer.arrow_tables import rows_of_batches

        taken: list[Any] = []
        for batch, end in zip(chosen, ends, strict=True):
            try:
                taken += rows_of_batches(
                    self.state.tp, cast("bytes", self._data), [batch], self.position.offset
                )
            except CorruptRecordError as error:
                self._stop_at_corrupt(error)
                break
            self.position = end
        if not taken and self._failure is not None:
            raise self._failure
        return taken

    def _leave(self, unread: Unread) -> None:
        """Stop before a record that can't be converted, or not yet."""
        first = unread.rest[0]
        if isinstance(unread.error, NotPrepared):
            self._held.hold(unread.rest, unread.error)
        else:
            self._held.clear()
            self._stop(unread.error)
        self.position = Position(first.offset, first.leader_epoch)

    def give_back(self, records: list[ConsumerRecord]) -> None:
        """Put back the records that were taken last: the next :meth:`take` returns them again."""
        self._given_back = records + self._given_back
        self.position = Position(records[0].offset, records[0].leader_epoch)

    def forget(self) -> None:
        """Let go of the bytes: no more records will be taken."""
        self._data = self.memory = b""
        self._batches = iter(())
        self._open = None
        self._held.clear()

    def _take_raw(self, limit: int) -> Sequence[ConsumerRecord]:
        if again := self._held.take(limit):
            self._behind(again[-1])
            return again
        taken: list[Sequence[ConsumerRecord]] = []
        while limit and (batch := self._open or self._open_next()) is not None:
            some = batch.take(limit)
            limit -= len(some)
            taken.append(some)
            if not batch.left:
                self._open = None
            self._behind(some[-1])
        return Records(taken)

    def _behind(self, last: ConsumerRecord) -> None:
        # After the last record of a batch, the position is the end of the batch: compaction may
        # have removed its last records.
        self.position = (
            Position(last.offset + 1, last.leader_epoch)
            if self._open is not None or self._given_back or self._held.records or self._failure
            else self._open_end
        )

    def _open_next(self) -> OpenBatch | None:
        """Open the next batch that has records to return; return None at the end of the data."""
        while (found := self._next_batch()) is not None:
            header, place = found
            try:
                batch = open_batch(self.state.tp, self._data, place, header, self.position.offset)
            except ProtocolError as error:
                self._stop_at_corrupt(error)
                return None
            if batch.left:
                self._open = batch
                return batch
            self.position = self._open_end
        return None

    def _next_batch(self) -> tuple[BatchHeader, int] | None:
        """Return the next batch with records of the application, and its place; None at the end of
        the data. The position moves past batches that are skipped.
        """
        try:
            for header, place in self._batches:
                self.unread_bytes = len(self._data) - place - header.size_in_bytes
                skip = self._aborted is not None and self._aborted.contains(
                    self._data, place, header
                )
                self._open_end = Position(header.last_offset + 1, header.partition_leader_epoch)
                if not (skip or header.is_control or header.record_count == 0):
                    return header, place
                self.position = self._open_end
            if self._failure is None and self.position == self._start:
                # A broker sends the first batch complete, whatever its size. Without an error, the
                # consumer would fetch it again and again.
                raise CorruptRecordError(
                    f"the broker sent {len(self._data)} bytes without a complete batch"
                )
        except ProtocolError as error:
            self._stop_at_corrupt(error)
        else:
            self.unread_bytes = 0
        return None

    def _stop_at_corrupt(self, error: ProtocolError) -> None:
        tp = self.state.tp
        self._stop(
            CorruptRecordError(
                f"{tp.topic}-{tp.partition} at offset {self.position.offset}: {error}"
            )
        )

    def _stop(self, failure: BaseException) -> None:
        self._failure = failure
        self._open = None
        self._batches = iter(())
