"""Takes a record from the caller to its batch: interceptors, serializers, topic and partition, size
checks, append.

Errors of the record or of Kafka's API become a failed delivery; errors that prevent sending at all
are raised.

Calls keep their order. The metadata refresh, or the call that reserved the topic, ends the wait of
a call. It also gives that call its place, or a place in the line of its partition, before other
code runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping
from typing import TypeGuard

from aioprod.arguments import named_topic
from aioprod.config.producer import ProducerConfig
from aioprod.errors import (
    AbortableTransactionError,
    BrokerError,
    ConfigError,
    FatalProducerError,
    InvalidPartitionError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    MetadataTimeoutError,
    RecordTooLargeError,
    SerializationError,
)
from aioprod.foreign_text import shown
from aioprod.headers import check_headers
from aioprod.interceptors import InterceptorChain
from aioprod.preparation import MOST_ATTEMPTS, NotPrepared
from aioprod.producer.admission import Admission
from aioprod.producer.appender import Appender, Place
from aioprod.producer.appends import PendingBatch, PendingRecord
from aioprod.producer.batch import ProducerBatch
from aioprod.producer.delivery import Delivery, delivery_of
from aioprod.producer.fast_path import FAR_MS
from aioprod.producer.partition_queue import PartitionQueue
from aioprod.producer.reporting import BatchReporter
from aioprod.producer.topic_gate import TopicGate, TopicReservation, checked_topic
from aioprod.producer.transactions.gate import Transactions
from aioprod.protocol.record_encoder import NO_HEADERS, encode_headers, estimate_upper_bound
from aioprod.protocol.record_writer import RecordBatchWriter
from aioprod.serializing import WithHeaders, serialize
from aioprod.types import Header, ProducerRecord, TopicPartition

_UNKNOWN_PARTITION = -1

_DELIVERY_ERRORS = (
    RecordTooLargeError,
    InvalidTopicError,
    InvalidPartitionError,
    MetadataTimeoutError,
    BrokerError,
)
_RAISED_ERRORS = (FatalProducerError, AbortableTransactionError)


class RecordIntake:
    """Takes records that the fast path does not handle.

    Args:
        gate: makes calls wait for their topic.
        appender: makes calls wait at their partition.
        transactions: called for each record that is returned as a failed delivery.
        events: called for each refused record, and if no caller has seen its failure.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        config: ProducerConfig,
        gate: TopicGate,
        appender: Appender,
        admission: Admission,
        transactions: Transactions,
        interceptors: InterceptorChain,
        events: BatchReporter,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._gate = gate
        self._appender = appender
        self._admission = admission
        self._transactions = transactions
        self._interceptors = interceptors
        self._intercepted = bool(interceptors)
        self._events = events
        self._clock = clock
        self._block_s = config.max_block_ms / 1000
        self._largest = min(config.max_request_size, config.buffer_memory)

    async def take(
        self, record: ProducerRecord, reservation: TopicReservation | None = None
    ) -> Delivery:
        """Take a record as ``Producer.send`` does; see there.

        Args:
            reservation: set if the caller has reserved the record's topic.
        """
        if self._intercepted:
            if isinstance(record.headers, Mapping):
                record = record._replace(headers=tuple(record.headers.items()))
            record = self._interceptors.on_send(record)
        transaction = (
            self._transactions.status.number if reservation is None else reservation.transaction
        )
        if reservation is not None and record.topic != reservation.name:
            reservation = None  # an interceptor sends it elsewhere
        pending = None
        try:
            self._admission.check_may_send(transaction)
            try:
                pending = self._prepare(record, transaction)
            except NotPrepared as needed:
                batch, index = await self._take_prepared(record, needed, transaction, reservation)
            else:
                batch, index = await self._enter(pending, reservation)
        except Exception as error:
            self._interceptors.on_send_error(record, _place(record, pending), error)
            if is_delivery_error(error):
                return delivery_of(self.refused(_stand_in(record), error), 0)
            raise
        except asyncio.CancelledError:
            if pending is None or pending.place is None:
                self._interceptors.on_send_error(
                    record, _place(record, pending), KafkaError("the send was cancelled")
                )
            raise
        return delivery_of(batch, index)

    def take_first(
        self,
        queue: PartitionQueue,
        key: bytes | None,
        value: bytes,
        headers: bytes,
        size: int,
        now_s: float,
        sticky: bool,
    ) -> Delivery | None:
        """Open a batch with a record of the :class:`FastPath`; None if the partition's batch may
        have room, or the record may have to wait. Arguments are those of
        :meth:`Appender.open_with`.

        Raises:
            KafkaError: see :meth:`Admission.check_may_send`.
        """
        if queue.line:
            return None
        self._admission.check_may_send(self._transactions.status.number)
        self._gate.touch(queue.tp.topic)
        batch = self._appender.open_with(queue, key, value, headers, size, now_s, sticky)
        return None if batch is None else delivery_of(batch, 0)

    def refused(self, tp: TopicPartition, error: KafkaError, count: int = 1) -> ProducerBatch:
        """Return a failed batch for ``count`` records that are refused. If no caller sees the
        failure, it is logged.
        """
        self._events.refused(tp.topic, count, asyncio.get_running_loop().time())
        self._transactions.record_refused(tp, error)
        return ProducerBatch.refused(tp, error, self._events)

    def refuse_all(
        self, records: list[ProducerRecord], tp: TopicPartition, error: KafkaError
    ) -> ProducerBatch:
        """Return a failed batch for records that are refused unchecked."""
        for record in records if self._intercepted else ():
            self._interceptors.on_send_error(record, _place(record, None), error)
        return self.refused(tp, error, len(records))

    def _prepare(self, record: ProducerRecord, transaction: int | None) -> PendingRecord:
        deadline = self.deadline()
        topic = _checked_arguments(record, self._gate.topics)
        headers = check_headers(record.headers) if record.headers else ()
        config = self._config
        key = serialize(config.key_serializer, "key_serializer", topic, headers, record.key)
        value = serialize(config.value_serializer, "value_serializer", topic, headers, record.value)
        if isinstance(key, WithHeaders):
            key, headers = _unpacked(key, headers)
        if isinstance(value, WithHeaders):
            value, headers = _unpacked(value, headers)
        timestamp = record.timestamp_ms
        if timestamp is None:
            timestamp = int(self._clock() * 1000)
        block = encode_headers(headers) if headers else NO_HEADERS
        bound = estimate_upper_bound(key, value) + len(block) - len(NO_HEADERS)
        if bound > self._largest:
            self.check_size(bound)
        return PendingRecord(record, timestamp, key, value, block, bound, deadline, transaction)

    async def _take_prepared(
        self,
        record: ProducerRecord,
        needed: NotPrepared,
        transaction: int | None,
        reservation: TopicReservation | None,
    ) -> Place:
        """Take a record whose serializers have to wait first. The call reserves its topic
        meanwhile, so that no later call overtakes it.
        """
        deadline = self.deadline()
        if reservation is not None:
            pending = await self._prepared(record, needed, transaction, deadline)
            return await self._enter(pending, reservation)
        prepared: list[PendingRecord] = []

        async def prepare() -> None:
            prepared.append(await self._prepared(record, needed, transaction, deadline))

        async with self._gate.reserve(record.topic, deadline, transaction, prepare) as own:
            return await self._enter(prepared[0], own)

    async def _prepared(
        self,
        record: ProducerRecord,
        needed: NotPrepared,
        transaction: int | None,
        deadline: float,
    ) -> PendingRecord:
        for _ in range(MOST_ATTEMPTS):
            await self.prepare(needed, deadline)
            if needed.error is not None:
                raise needed.error
            self._admission.check_may_send(transaction)
            try:
                pending = self._prepare(record, transaction)
            except NotPrepared as another:
                needed = another
            else:
                pending.deadline = deadline
                return pending
        raise SerializationError(
            f"a serializer asked to be prepared {MOST_ATTEMPTS + 1} times for one record for topic "
            f"{record.topic!r}"
        )

    async def prepare(self, needed: NotPrepared, deadline: float) -> None:
        """Await what a serializer needs; its error is in ``needed``."""
        try:
            async with asyncio.timeout_at(deadline) as limit:
                await needed.prepare()
        except TimeoutError:
            if not limit.expired():
                raise
            setting = f"max_block_ms={self._config.max_block_ms}"
            needed.fail(KafkaTimeoutError(f"the serializer was not prepared within {setting}"))

    async def _enter(self, pending: PendingRecord, reservation: TopicReservation | None) -> Place:
        """Put the record into a batch; wait only if its topic or its partition makes it wait."""
        self._gate.enter(pending, reservation)
        return pending.place or await self._place(pending, reservation)

    async def _place(self, pending: PendingRecord, reservation: TopicReservation | None) -> Place:
        """Wait until the record is in a batch: for its topic, unless its partition is chosen, and
        in the partition's line.
        """
        try:
            if pending.queue is None:
                await self._gate.wait(pending, reservation)
            return pending.place or await self._appender.in_turn(pending)
        finally:
            self._appender.withdraw(pending)

    async def place_encoded(
        self, queue: PartitionQueue, writer: RecordBatchWriter, transaction: int | None
    ) -> ProducerBatch:
        """Queue encoded records as a batch after all others of the partition.

        Raises:
            RecordTooLargeError, BufferExhaustedError, ProducerClosedError: if it is not queued.
        """
        pending = PendingBatch(writer, self.deadline(), transaction)
        try:
            self._appender.enter(pending, queue)
            batch, _ = pending.place or await self._appender.in_turn(pending)
        finally:
            self._appender.withdraw(pending)
        return batch

    def deadline(self) -> float:
        """Return the loop time until which a call that begins now may wait."""
        return asyncio.get_running_loop().time() + self._block_s

    def check_size(self, bound: int) -> None:
        """Check that a record whose batch has up to ``bound`` bytes is not too large."""
        config = self._config
        if bound > config.max_request_size or bound > config.buffer_memory:
            name, limit = min(
                ("max_request_size", config.max_request_size),
                ("buffer_memory", config.buffer_memory),
                key=lambda setting: setting[1],
            )
            raise RecordTooLargeError(
                f"a record of up to {bound} bytes (uncompressed) is larger than {name}={limit}"
            )


def is_delivery_error(error: Exception) -> TypeGuard[KafkaError]:
    """Return whether an error is that of the delivery; others are raised."""
    return isinstance(error, _DELIVERY_ERRORS) and not isinstance(error, _RAISED_ERRORS)


def _unpacked(stored: WithHeaders, headers: tuple[Header, ...]) -> tuple[bytes, tuple[Header, ...]]:
    """Return what a serializer made, and the headers of the record with those that it added."""
    return bytes(stored.data), headers + check_headers(stored.headers)


def _checked_arguments(record: ProducerRecord, known: Container[str]) -> str:
    """Check what is not serialized, and return the topic. A ``known`` topic has a valid name."""
    topic, partition, timestamp_ms = record.topic, record.partition, record.timestamp_ms
    if type(topic) is not str or topic not in known:
        topic = checked_topic(topic)
    if partition is not None and (
        isinstance(partition, bool) or not isinstance(partition, int) or partition < 0
    ):
        raise InvalidPartitionError(
            f"partition={shown(partition)} of topic {shown(topic)}: must be a number from 0"
        )
    if record.partition_key is not None and not isinstance(record.partition_key, bytes):
        raise SerializationError(
            f"partition_key of type {type(record.partition_key).__name__}: must be bytes"
        )
    if timestamp_ms is not None and (
        isinstance(timestamp_ms, bool)
        or not isinstance(timestamp_ms, int)
        or not -FAR_MS <= timestamp_ms < FAR_MS
    ):
        raise SerializationError(
            f"timestamp_ms={shown(timestamp_ms)}: must be a whole number of milliseconds since 1970"
        )
    return topic


def _place(record: ProducerRecord, pending: PendingRecord | None) -> TopicPartition | None:
    """Return the partition of a record that was refused, if it is known."""
    if pending is not None and pending.queue is not None:
        return pending.queue.tp
    partition = record.partition
    return (
        TopicPartition(record.topic, partition)
        if type(partition) is int and partition >= 0
        else None
    )


def alone(record: ProducerRecord, *others: object) -> ProducerRecord:
    """Return the record that ``send`` was given in place of a topic.

    Raises:
        ConfigError: if it was given other arguments, too.
    """
    if any(other is not None and other != () for other in others):
        raise ConfigError("send(ProducerRecord): give no other arguments, as the record has them")
    return record


def _stand_in(record: ProducerRecord) -> TopicPartition:
    """Return a partition for the metadata of a record that was refused."""
    partition = record.partition
    return TopicPartition(
        named_topic(record.topic),
        partition if type(partition) is int and partition >= 0 else _UNKNOWN_PARTITION,
    )
