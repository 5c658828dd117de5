"""Puts many records into batches in one call. Consecutive plain values are appended together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from aioprod.arguments import named_topic
from aioprod.errors import (
    AbortableTransactionError,
    AuthenticationError,
    BufferExhaustedError,
    ConfigError,
    FatalProducerError,
    KafkaError,
    ProducerClosedError,
    SerializationError,
    TransactionStateError,
)
from aioprod.foreign_text import shown
from aioprod.producer.admission import Admission
from aioprod.producer.deliveries import Deliveries
from aioprod.producer.intake import RecordIntake, is_delivery_error
from aioprod.producer.topic_gate import TopicGate, TopicReservation
from aioprod.producer.transactions.gate import Transactions
from aioprod.protocol.record_buffer import KEYLESS
from aioprod.types import ProducerRecord, TopicPartition

# This many records count as one call in the order of calls. The iterable is read this far ahead.
_CHUNK = 4096
_ENDS_SEND_MANY = (
    AbortableTransactionError,
    AuthenticationError,
    FatalProducerError,
    ProducerClosedError,
    TransactionStateError,
)


class BulkIntake:
    """Takes the records of ``send_many``.

    Args:
        intake: takes each record that is not a plain value.
        is_plain: whether plain values need only room in the open batch: the producer has no
            serializer, interceptor or partitioner.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        intake: RecordIntake,
        gate: TopicGate,
        admission: Admission,
        transactions: Transactions,
        clock: Callable[[], float],
        *,
        is_plain: bool,
    ) -> None:
        self._intake = intake
        self._gate = gate
        self._admission = admission
        self._transactions = transactions
        self._clock = clock
        self._is_plain = is_plain

    async def take(self, topic: str, records: Iterable[Any]) -> Deliveries:
        """Take records as ``Producer.send_many`` does; see there."""
        if isinstance(records, str | bytes | bytearray | Mapping) or not isinstance(
            records, Iterable
        ):
            raise ConfigError(
                f"records of type {type(records).__name__}: must be a list or other iterable of "
                "values or ProducerRecord"
            )
        deliveries = Deliveries()
        waiting = iter(records)
        hopeless: KafkaError | None = None
        transaction = self._transactions.status.number
        while chunk := list(islice(waiting, _CHUNK)):
            if hopeless is not None:
                self._refuse(topic, chunk, hopeless, deliveries)
                await asyncio.sleep(0)
                continue
            begun = len(deliveries)
            try:
                self._admission.check_may_send(transaction)
                deadline = self._intake.deadline()
                async with self._gate.reserve(topic, deadline, transaction) as reservation:
                    await self._take_chunk(reservation, chunk, deliveries)
            except KafkaError as error:
                if not is_delivery_error(error) and not isinstance(error, BufferExhaustedError):
                    raise
                # No topic or no memory: each of the remaining records would wait as long and fail.
                hopeless = error
                self._refuse(topic, chunk[len(deliveries) - begun :], error, deliveries)
        return deliveries

    def _refuse(
        self, topic: str, given: list[Any], error: KafkaError, deliveries: Deliveries
    ) -> None:
        records = [
            one if isinstance(one, ProducerRecord) else ProducerRecord(topic, one) for one in given
        ]
        partition = TopicPartition(named_topic(topic), -1)
        deliveries.add_stretch(self._intake.refuse_all(records, partition, error), 0, len(records))

    async def _take_chunk(
        self, reservation: TopicReservation, chunk: list[Any], deliveries: Deliveries
    ) -> None:
        are_values = self._is_plain and set(map(type, chunk)) == {bytes}
        at = 0
        while at < len(chunk):
            upto = self._append(reservation, chunk, at, deliveries) if are_values else at
            if upto == at:
                # No batch, or a full one: take_one opens the next, waits for memory, and lets other
                # tasks run.
                await self.take_one(chunk[at], reservation, deliveries)
                upto += 1
            at = upto

    def _append(
        self, reservation: TopicReservation, values: list[bytes], at: int, deliveries: Deliveries
    ) -> int:
        """Put as many values as fit, from ``at`` on, into the open batch; return the index after
        them.
        """
        now = self._clock()
        known = reservation.topic
        batch = known.queues[known.sticky.current].open if known is not None else None
        if (
            batch is None
            or batch.writer.kind != KEYLESS
            or not self._admission.may_append(reservation.transaction)
        ):
            return at
        first = batch.writer.count
        upto = batch.writer.add_values(values, at, batch.open_until, now)
        if upto > at:
            deliveries.add_stretch(batch, first, upto - at)
        return upto

    async def take_one(
        self, given: Any, reservation: TopicReservation, deliveries: Deliveries
    ) -> None:
        """Take a record, or a value, as one of many. Its delivery has the errors of the record.

        Raises:
            BufferExhaustedError: if no memory is free; the record's delivery is added.
            KafkaError: if nothing can be sent: ProducerClosedError, TransactionStateError,
                AbortableTransactionError, FatalProducerError or AuthenticationError.
        """
        record = (
            given if isinstance(given, ProducerRecord) else ProducerRecord(reservation.name, given)
        )
        nowhere = TopicPartition(str(reservation.name), -1)
        if record.topic != reservation.name:
            astray = SerializationError(
                f"send_many({shown(reservation.name)}, ...): "
                f"a record has topic {shown(record.topic)}"
            )
            deliveries.add_stretch(self._intake.refuse_all([record], nowhere, astray), 0, 1)
            return
        try:
            deliveries.add(await self._intake.take(record, reservation))
        except _ENDS_SEND_MANY:
            raise
        except Exception as error:
            # A transaction with a lost record must not be committed.
            own = (
                error
                if isinstance(error, KafkaError)
                else KafkaError(f"the record was not accepted: {error!r}")
            )
            if own is not error:
                own.__cause__ = error
            deliveries.add_stretch(self._intake.refused(nowhere, own), 0, 1)
            if isinstance(error, BufferExhaustedError):
                raise
