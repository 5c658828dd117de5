"""Turns Arrow tables into batches: columns are encoded as a whole, and the encoded batches are
queued. Needs the extra ``arrow``, so it is imported late.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import Final

from aioprod import native
from aioprod.arguments import named_topic
from aioprod.config.producer import ProducerConfig
from aioprod.errors import BufferExhaustedError, KafkaError, RecordTooLargeError
from aioprod.header_names import name_in_column
from aioprod.producer.accumulator import RecordAccumulator
from aioprod.producer.admission import Admission
from aioprod.producer.batch import ProducerBatch
from aioprod.producer.deliveries import Deliveries
from aioprod.producer.intake import RecordIntake, is_delivery_error
from aioprod.producer.partition_choice import named_queue
from aioprod.producer.partition_queue import Topic
from aioprod.producer.topic_gate import TopicGate, TopicReservation
from aioprod.producer.transactions.gate import Transactions
from aioprod.protocol.record_batch import HEADER_SIZE
from aioprod.protocol.record_writer import RecordBatchWriter
from aioprod.types import ProducerRecord, TopicPartition

try:
    import pyarrow as pa  # type: ignore[import-untyped]

    from aioprod.producer.arrow_partitions import PartitionRecords, partition_records
    from aioprod.producer.arrow_serializers import ColumnsSerializer
    from aioprod.protocol.arrow_columns import (
        is_checked_quickly,
        largest_partition,
        name_and_value,
        record_table,
        windows,
    )
except ModuleNotFoundError as _missing:
    raise ImportError(
        f"send_arrow needs the extra arrow, as in pip install 'aioprod[arrow]': {_missing}"
    ) from _missing

# The most rows to encode together: each call into Arrow costs 5 to 10 us for any number of rows,
# and each partition gets its own batch. With keys, 100 B and 6 / 1,000 partitions a row takes
# 220 / 440 ns in portions of 16,384 rows, 190 / 270 ns in portions of 65,536.
_MOST_ROWS: Final = 65_536
_MOST_BYTES: Final = 4 << 20
# With thousands of partitions, portions are larger, up to these limits: a broker takes about as
# long for a batch of ten records as for one of a hundred.
_ROWS_PER_PARTITION: Final = 128
_BYTES_PER_PARTITION: Final = 16 << 10
_MOST_ROWS_OF_MANY: Final = 1 << 18
# Rows that become single records block the event loop, so portions are smaller.
_MOST_SINGLE_ROWS: Final = 1000
# A portion of rows takes memory in addition to buffer_memory: at most buffer_memory / this.
_SHARE_OF_BUFFER: Final = 4
# Up to this many rows no thread is used: they take at most 1.5 ms, and a thread costs 0.1 ms. The
# accelerator takes that long for a whole portion, and keeps the interpreter's lock anyway.
_FEW_ROWS: Final = 1000
_FEW_TO_CHECK: Final = 500_000
_FEW_TO_ENCODE: Final = _MOST_ROWS if native.in_use else _FEW_ROWS
# A row may take this many more bytes in columns than as a record, for offsets and nulls.
_COLUMNS_OVERHEAD: Final = 1024
# Batches to append before the sender runs. They take 0.2 ms; a broker answers the five requests in
# flight within a millisecond, and must not wait for the next ones.
_TURN_EVERY: Final = 2


class ArrowIntake:
    """Takes tables of records.

    Args:
        intake: takes encoded batches, and refuses records.
        gate: lets the call reservation its topic.
        take_one: takes a row as a record, if an interceptor or a partitioner needs each record.
        clock: seconds since 1970.

    Raises:
        ConfigError: if the producer has serializers that can't serialize columns.
    """

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        intake: RecordIntake,
        gate: TopicGate,
        admission: Admission,
        transactions: Transactions,
        take_one: Callable[[ProducerRecord, TopicReservation, Deliveries], Awaitable[None]],
        *,
        clock: Callable[[], float],
    ) -> None:
        self._serializer = ColumnsSerializer.of(config)
        self._config = config
        self._accumulator = accumulator
        self._intake = intake
        self._gate = gate
        self._admission = admission
        self._transactions = transactions
        self._take_one = take_one
        self._clock = clock
        self._row_by_row = config.partitioner is not None or bool(config.interceptors)
        self._share_of_buffer = config.buffer_memory // _SHARE_OF_BUFFER
        # Interceptors get a row that is too large as a record, so its bytes count.
        self._row_bytes = (
            sys.maxsize
            if self._row_by_row
            else min(config.max_request_size, config.buffer_memory) + _COLUMNS_OVERHEAD
        )

    async def take(self, topic: str, data: object) -> Deliveries:
        """Take the rows of a table as ``Producer.send_arrow`` does; see there."""
        transaction = self._transactions.status.number
        self._admission.check_may_send(transaction)
        count = getattr(data, "num_rows", 0)
        few = count <= _FEW_ROWS or (count <= _FEW_TO_CHECK and is_checked_quickly(data))
        serializer = self._serializer
        checked = _checked(data) if few and (serializer is None or not count) else None
        deliveries = Deliveries()
        if not count:
            return deliveries
        gate, deadline = self._gate, self._intake.deadline

        async def check() -> tuple[pa.Table, int]:
            nonlocal checked
            if checked is None:
                rows = partial(_checked, data)
                if serializer is not None:
                    prepare = partial(self._intake.prepare, deadline=deadline())
                    encode = await serializer.prepared(str(topic), data, prepare)
                    rows = partial(_encoded_and_checked, encode)
                checked = rows() if few else await asyncio.to_thread(rows)
            return checked

        try:
            # No later call overtakes this one while a thread checks the table.
            async with gate.reserve(topic, deadline(), transaction, before=check) as reservation:
                table, largest = await check()
                await gate.look_for(reservation, largest, deadline())
                assert reservation.topic is not None
                portions = self._portions(table, reservation.topic.count)
                await self._take(reservation, *next(portions), deliveries)
            for first_row, rows in portions:
                async with gate.reserve(topic, deadline(), transaction) as reservation:
                    await self._take(reservation, first_row, rows, deliveries)
        except KafkaError as error:
            if not is_delivery_error(error) and not isinstance(error, BufferExhaustedError):
                raise
            table, _ = await check()  # an invalid table comes first
            # No topic or no memory: each of the remaining rows would wait as long and fail.
            partition = TopicPartition(named_topic(topic), -1)
            if self._row_by_row:
                self._refuse_rows(table, partition, error, deliveries)
            else:
                left = table.num_rows - len(deliveries)
                refused = self._intake.refused(partition, error, left)
                deliveries.add_others(refused, table.num_rows)
        return deliveries

    def _refuse_rows(
        self, table: pa.Table, tp: TopicPartition, error: KafkaError, deliveries: Deliveries
    ) -> None:
        """Refuse the rows without a delivery, as records that are passed to interceptors."""
        left = table.slice(len(deliveries))
        for _, rows in self._portions(left):
            records = [ProducerRecord(tp.topic)] if rows is None else list(_records(tp.topic, rows))
            deliveries.add_stretch(self._intake.refuse_all(records, tp, error), 0, len(records))

    def _portions(
        self, table: pa.Table, partitions: int = 1
    ) -> Iterator[tuple[int, pa.RecordBatch | None]]:
        rows = max(_MOST_ROWS, min(_ROWS_PER_PARTITION * partitions, _MOST_ROWS_OF_MANY))
        size = max(_MOST_BYTES, _BYTES_PER_PARTITION * partitions)
        return windows(
            table,
            max_rows=_MOST_SINGLE_ROWS if self._row_by_row else rows,
            max_bytes=min(size, self._share_of_buffer),
            max_row_bytes=self._row_bytes,
        )

    async def _take(
        self,
        reservation: TopicReservation,
        first_row: int,
        rows: pa.RecordBatch | None,
        deliveries: Deliveries,
    ) -> None:
        known = reservation.topic
        assert known is not None
        if rows is None:
            allowed = min(self._config.max_request_size, self._config.buffer_memory)
            error = RecordTooLargeError(
                f"row {first_row} is larger than the {allowed} bytes that max_request_size "
                "and buffer_memory allow"
            )
            refused = self._intake.refuse_all(
                [ProducerRecord(known.name)], TopicPartition(known.name, -1), error
            )
            deliveries.add_stretch(refused, 0, 1)
        elif self._row_by_row:
            for record in _records(known.name, rows):
                await self._take_one(record, reservation, deliveries)
        else:
            for number, part in enumerate(
                _in_turns(await self._encoded(known, first_row, rows)), start=1
            ):
                deliveries.add_stretch(
                    await self._append(reservation, part), 0, part.count, part.rows
                )
                if number % _TURN_EVERY == 0:
                    await asyncio.sleep(0)  # let the sender run

    async def _encoded(
        self, known: Topic, first_row: int, rows: pa.RecordBatch
    ) -> list[PartitionRecords]:
        parts = partial(
            partition_records,
            rows,
            known.count,
            first_row=first_row,
            limit=min(
                self._accumulator.size_of_many(known, rows.nbytes),
                self._config.buffer_memory - HEADER_SIZE,
            ),
            timestamp=int(self._clock() * 1000),
            ignore_keys=self._config.partitioner_ignore_keys,
        )
        # Arrow releases the interpreter's lock, and other tasks run.
        return parts() if rows.num_rows <= _FEW_TO_ENCODE else await asyncio.to_thread(parts)

    async def _append(self, reservation: TopicReservation, part: PartitionRecords) -> ProducerBatch:
        """Queue records as a batch; return a failed one if they are refused."""
        known = reservation.topic
        assert known is not None
        self._admission.check_may_send(reservation.transaction)
        records = part.encode()
        writer = RecordBatchWriter.of_encoded(
            records.body,
            records.count,
            records.base_timestamp,
            records.max_timestamp,
            records.timestamps,
        )
        try:
            if records.count == 1:
                self._intake.check_size(writer.size + HEADER_SIZE)
            if part.partition is not None:
                return await self._intake.place_encoded(
                    named_queue(known, part.partition), writer, reservation.transaction
                )
            sticky = known.sticky.current
            batch = await self._intake.place_encoded(
                known.queues[sticky], writer, reservation.transaction
            )
        except KafkaError as error:
            if not is_delivery_error(error):
                raise
            return self._intake.refused(
                TopicPartition(known.name, -1 if part.partition is None else part.partition),
                error,
                records.count,
            )
        if known.sticky.current == sticky:
            self._accumulator.switch_sticky(known)
        return batch


def _in_turns(parts: list[PartitionRecords]) -> list[PartitionRecords]:
    """Return the first batch of each partition, then the second ones. A request takes one batch of
    each partition, so this order fills requests best.
    """
    before: Counter[int | None] = Counter()
    turns = []
    for part in parts:
        turns.append(before[part.partition])
        before[part.partition] += 1
    return [part for _, part in sorted(zip(turns, parts, strict=True), key=itemgetter(0))]


def _checked(data: object) -> tuple[pa.Table, int]:
    table = record_table(data)
    return table, largest_partition(table)


def _encoded_and_checked(encode: Callable[[], pa.Table]) -> tuple[pa.Table, int]:
    return _checked(encode())


def _records(topic: str, rows: pa.RecordBatch) -> Iterator[ProducerRecord]:
    columns = {name: rows.column(name).to_pylist() for name in rows.schema.names}
    fields = (
        columns.get(name, repeat(None))
        for name in ("value", "key", "partition", "timestamp", "headers")
    )
    name_at, value_at = (
        name_and_value(rows.column("headers").type.value_type) if "headers" in columns else (0, 1)
    )
    for value, key, partition, timestamp, entries in zip(*fields, strict=False):
        headers = [
            (name_in_column(pair[name_at]), _to_bytes(pair[value_at]))
            for pair in (list(entry.values()) for entry in entries or ())
        ]
        yield ProducerRecord(topic, value, key, partition, timestamp, headers)


def _to_bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
