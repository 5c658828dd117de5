"""Keeps decoded records that are not yet returned to the application."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Sequence
from typing import Any

from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.fetch_buffer import FetchBuffer
from aioprod.consumer.fetched_data import FetchedData
from aioprod.consumer.notifier import Notifier
from aioprod.consumer.problems import Problems
from aioprod.consumer.record_conversion import RecordConverter
from aioprod.consumer.records import Records
from aioprod.consumer.reporting import ConsumerReporter
from aioprod.consumer.subscription import PartitionState
from aioprod.types import ConsumerRecord, TopicPartition
from aioprod.user_code import surface

# A group member takes the slow path at least this often, so that it notes the poll and does the
# group's work.
_SLOW_PATH_INTERVAL_S = 1.0
# Columns of this number of bytes are enough for one call: other tasks wait meanwhile.
_ARROW_BYTES = 16 << 20
# This number of records is enough if deserializers read them, at 1 to 5 us each.
_MOST_CONVERTED = 10_000


class ReadyRecords:
    """Decoded records of one partition, which ``async for`` and ``getone`` take one at a time.

    The consumer takes them from :attr:`records` directly. Code that needs the position of the
    application, or needs the next call to take the slow path, calls :meth:`take_back` first.

    Args:
        buffer: the data that are not decoded yet.
        reporter: is called for the records that the application got.
        converter: converts the records of the data.

    Attributes:
        records: the deque from which the consumer takes records; always the same object.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        buffer: FetchBuffer,
        reporter: ConsumerReporter,
        notifier: Notifier,
        problems: Problems,
        converter: RecordConverter,
    ) -> None:
        self.records: deque[ConsumerRecord] = deque()
        self._buffer = buffer
        self._reporter = reporter
        self._notifier = notifier
        self._problems = problems
        self.converter = converter
        self._in_group = config.group_id is not None  # the slow path is needed at intervals
        self._source: FetchedData | None = None
        self._count = 0  # records from the source, including those taken by the application
        self._timer: asyncio.Handle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # take_back() may run outside of it

    def fill(self, most: int) -> bool:
        """Decode up to ``most`` records; return False if no record may be returned now.

        Raises:
            CorruptRecordError, DeserializationError: if the next record can't be read.
            NotPrepared: if a deserializer has to wait before it can read that record.
        """
        found = self._buffer.take(most)
        if found is None:
            return False
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self._source, records = found
        # All objects are made at once: the application runs between two records, and to alternate
        # between its code and ours for each record would cost more than the garbage collector does.
        self.records.extend(records)
        self._count = len(self.records)
        if self._timer is None and self._in_group:
            self._timer = self._loop.call_later(_SLOW_PATH_INTERVAL_S, self._interval_passed)
        return True

    def take(self, most: int) -> Records:
        """Return up to ``most`` records, from as many partitions as needed. Never wait, so that no
        cancellation can lose a record.

        Raises:
            CorruptRecordError, DeserializationError: if the first record can't be read.
            NotPrepared: if a deserializer has to wait before it can read that record.
        """
        taken: list[Sequence[ConsumerRecord]] = []
        now = asyncio.get_running_loop().time()
        try:
            while most and (found := self._buffer.take(most)) is not None:
                source, records = found
                self._buffer.returned(source)
                self._reporter.records_returned(source.state.tp, len(records), now)
                taken.append(records)
                most -= len(records)
        except BaseException as error:
            if not taken:
                raise
            # Return the readable records first; the next call finds the other one again.
            surface(error)
        if len(taken) == 1 and isinstance(taken[0], Records):
            return taken[0]
        return Records(taken)

    def take_arrow(self, most: int | None) -> list[Any]:
        """Return the same as columns: ``pyarrow.RecordBatch`` objects of whole batches, up to the
        one with which there are ``most`` records, or about 16 MiB. Errors are those of
        :meth:`take`.

        If deserializers read the columns, the records are of one topic, since the types of others
        may differ, and fewer.
        """
        taken: list[Any] = []
        count = size = 0
        topic: str | None = None
        converts = self.converter.reads_columns
        if converts:
            most = min(most or _MOST_CONVERTED, _MOST_CONVERTED)
        now = asyncio.get_running_loop().time()
        try:
            while size < _ARROW_BYTES and (most is None or count < most):
                limit = sys.maxsize if most is None else most - count
                found = self._buffer.take_arrow(limit, topic)
                if found is None:
                    break
                source, parts = found
                topic = source.state.tp.topic if converts else None
                self._buffer.returned(source)
                rows = sum(part.num_rows for part in parts)
                self._reporter.records_returned(source.state.tp, rows, now)
                taken += parts
                count += rows
                size += sum(part.nbytes for part in parts)
        except BaseException as error:
            if not taken:
                raise
            surface(error)
        return taken

    def take_back(self) -> None:
        """Take back the records that the application has not taken. The partition's position is
        then that of the application.
        """
        source = self._source
        if source is None:
            return
        if self.records:
            source.give_back(list(self.records))
        self._taken_back(source)
        self._buffer.returned(source)

    def take_back_from(self, tp: TopicPartition) -> None:
        """Take back records of this partition."""
        if self._source is not None and self._source.state.tp == tp:
            self.take_back()

    def offset_of(self, state: PartitionState) -> int | None:
        """Return the offset of the next record for the application; change nothing, so that any
        thread may call this.
        """
        source = self._source
        if source is not None and source.state is state:
            try:
                return self.records[0].offset
            except IndexError:
                return source.position.offset
        return None if state.position is None else state.position.offset

    def interrupt(self) -> None:
        """Make the next call, or the waiting one, take the slow path."""
        self.take_back()
        self._notifier.notify()

    def drop(self, tp: TopicPartition) -> None:
        """Forget all records and problems of a partition: its position has changed."""
        if self._source is not None and self._source.state.tp == tp:
            self._taken_back(self._source)
        self._buffer.drop(tp)
        self._problems.over(tp)

    def clear(self) -> None:
        """Drop all records, in a forked child: the parent returns them."""
        self.records.clear()

    def close(self) -> None:
        """Take back all records and stop the timer."""
        self.take_back()
        if self._timer is not None:
            self._timer.cancel()

    def _interval_passed(self) -> None:
        self._timer = None
        self.take_back()

    def _taken_back(self, source: FetchedData) -> None:
        """Forget the records that the application has not taken, and count the others."""
        taken = self._count - len(self.records)
        self.records.clear()
        self._source = None
        assert self._loop is not None
        self._reporter.records_returned(source.state.tp, taken, self._loop.time())
