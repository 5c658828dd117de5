"""A record's way from the caller to the accumulator: intercept, serialize, find topic and partition, check sizes, append.

Errors of the record or of Kafka's API become a failed delivery; what makes sending as such impossible is raised.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TypeGuard

from aioprod.cluster.metadata import Metadata
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    AbortableTransactionError,
    AuthenticationError,
    BrokerError,
    FatalProducerError,
    InvalidPartitionError,
    InvalidTopicError,
    KafkaError,
    MetadataTimeoutError,
    RecordTooLargeError,
    SerializationError,
)
from aioprod.interceptors import InterceptorChain
from aioprod.metrics import ProducerMetrics
from aioprod.producer.accumulator import RecordAccumulator
from aioprod.producer.batch import ProducerBatch
from aioprod.producer.delivery import Delivery, delivery_of
from aioprod.producer.partition_queue import PartitionQueue, Topic
from aioprod.producer.partitioner import Partitioner, Partitions, new_batch_hook, partition_for_key
from aioprod.producer_config import ProducerConfig
from aioprod.protocol.record_encoder import estimate_upper_bound
from aioprod.serialization import check_headers, serialize
from aioprod.types import ProducerRecord, TopicPartition
from aioprod.users_code import call

_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_UNKNOWN_PARTITION = -1

_OF_THE_RECORD = (RecordTooLargeError, InvalidTopicError, InvalidPartitionError, MetadataTimeoutError, BrokerError)
_OF_THE_PRODUCER = (FatalProducerError, AbortableTransactionError)


class RecordIntake:
    """Takes records that the fast path does not.

    Args:
        check_open: raises the error of a producer that takes no records.
        wake: lets the sender look.
        on_refused: hears of each record that comes back as a failed delivery.
    """

    def __init__(
        self,
        config: ProducerConfig,
        metadata: Metadata,
        accumulator: RecordAccumulator,
        interceptors: InterceptorChain,
        metrics: ProducerMetrics,
        *,
        clock: Callable[[], float],
        check_open: Callable[[], None],
        wake: Callable[[], None],
        on_refused: Callable[[TopicPartition, KafkaError], None],
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._accumulator = accumulator
        self._interceptors = interceptors
        self._metrics = metrics
        self._clock = clock
        self._check_open = check_open
        self._wake = wake
        self._on_refused = on_refused
        self._partitioner: Partitioner | None = config.partitioner
        self._on_new_batch = new_batch_hook(self._partitioner) if self._partitioner is not None else None
        self._block_s = config.max_block_ms / 1000

    async def take(self, record: ProducerRecord) -> Delivery:
        """Take a record as ``Producer.send`` does; see there."""
        record = self._interceptors.on_send(record) if self._interceptors else record
        try:
            self._check_open()
            batch, index = await self._append(record)
        except Exception as error:
            self._interceptors.on_send_error(record, _place(record), error)
            if is_of_the_record(error):
                return delivery_of(self.refused(_place(record), error), 0)
            raise
        except asyncio.CancelledError:
            self._interceptors.on_send_error(record, _place(record), KafkaError("the send was cancelled"))
            raise
        # Nothing has run since the record was appended, so it gets its batch's next place here too.
        if batch.records is not None:
            batch.records.append(record)
        return delivery_of(batch, index)

    def refused(self, tp: TopicPartition, error: KafkaError, count: int = 1) -> ProducerBatch:
        """What stands for the batch of ``count`` records that are not taken; where nobody looks at it, the log says so."""
        self._metrics.batch_failed(tp.topic, count, asyncio.get_running_loop().time())
        self._on_refused(tp, error)
        batch = ProducerBatch.refused(tp, error)
        batch.on_dropped = self._accumulator.on_dropped
        return batch

    async def _append(self, record: ProducerRecord) -> tuple[ProducerBatch, int]:
        config = self._config
        topic = _checked_topic(record.topic)
        headers = check_headers(record.headers)
        _check_partition_argument(record)
        key = serialize(config.key_serializer, "key_serializer", topic, headers, record.key)
        value = serialize(config.value_serializer, "value_serializer", topic, headers, record.value)
        timestamp = self._timestamp(record.timestamp_ms)
        bound = estimate_upper_bound(key, value, headers)
        self.check_size(bound)
        deadline = asyncio.get_running_loop().time() + self._block_s
        known = await self.topic(topic, deadline)
        queue = await self._queue(known, record, key, value, deadline)
        if queue.open is not None and queue.open.is_to_fold(bound):
            queue.open.fold()
            await asyncio.sleep(0)  # a turn for others; cancelling here cancels the record
            self._check_open()
        had_batch = queue.open is not None
        taken = self._accumulator.try_append(queue, timestamp, key, value, headers, bound)
        if taken is not None:
            return taken
        if had_batch:
            # It is full. The sender gets a turn now, or a busy loop of sends would starve it; the record is not taken
            # yet, so cancelling here cancels it.
            self._wake()
            await asyncio.sleep(0)
            self._check_open()
            queue = self._queue_for_new_batch(known, queue, record, key, value)
            taken = self._accumulator.try_append(queue, timestamp, key, value, headers, bound)
        if taken is not None:
            return taken
        return await self._accumulator.append(queue, timestamp, key, value, headers, bound, deadline)

    def check_size(self, bound: int) -> None:
        """Refuse a record whose batch would have ``bound`` bytes, where that is too much."""
        config = self._config
        if bound > config.max_request_size or bound > config.buffer_memory:
            name, limit = min(("max_request_size", config.max_request_size), ("buffer_memory", config.buffer_memory), key=lambda setting: setting[1])
            raise RecordTooLargeError(f"a record of up to {bound} bytes (uncompressed) is larger than {name}={limit}")

    # -- partition -----------------------------------------------------------------------------------------------

    async def _queue(self, known: Topic, record: ProducerRecord, key: bytes | None, value: bytes | None, deadline: float) -> PartitionQueue:
        partition = record.partition
        if partition is None:
            return known.queues[self._choose(known, record, key, value)]
        await self.look_for(known, partition, deadline)
        return self.queue(known, partition)

    async def look_for(self, known: Topic, partition: int, deadline: float) -> None:
        """Ask for the topic once more where it has no such partition, for that may be new."""
        if partition >= known.count:
            await self._refreshed(known.name, deadline, self._check_open)

    def queue(self, known: Topic, partition: int) -> PartitionQueue:
        """The queue of a partition that somebody has named."""
        if not 0 <= partition < known.count:
            raise InvalidPartitionError(f"partition={partition} of topic {known.name!r}: it has partitions 0 to {known.count - 1}")
        return known.queues[partition]

    def _choose(self, known: Topic, record: ProducerRecord, key: bytes | None, value: bytes | None) -> int:
        count = known.count
        if self._partitioner is not None:
            there = Partitions(count, known.available)
            chosen = call("partitioner", self._partitioner.partition, known.name, key, value, there)
            if isinstance(chosen, bool) or not isinstance(chosen, int) or not 0 <= chosen < count:
                raise InvalidPartitionError(
                    f"partitioner {type(self._partitioner).__name__} chose {chosen!r} for topic {known.name!r}: must be from 0 to {count - 1}"
                )
            return chosen
        by = record.partition_key if record.partition_key is not None else key
        if by is None or (self._config.partitioner_ignore_keys and record.partition_key is None):
            return known.sticky.current
        return partition_for_key(by, count)

    def _queue_for_new_batch(
        self, known: Topic, queue: PartitionQueue, record: ProducerRecord, key: bytes | None, value: bytes | None
    ) -> PartitionQueue:
        """Where the record goes now that the partition's batch is full: a sticky choice moves on, all others stay."""
        if record.partition is not None:
            return queue
        if self._partitioner is not None:
            if self._on_new_batch is None:
                return queue
            call("partitioner: on_new_batch", self._on_new_batch, known.name, queue.tp.partition)
            return known.queues[self._choose(known, record, key, value)]
        if queue.tp.partition == known.sticky.current and self._is_sticky(record, key):
            self._accumulator.switch_sticky(known)
        return known.queues[self._choose(known, record, key, value)]

    def _is_sticky(self, record: ProducerRecord, key: bytes | None) -> bool:
        return record.partition_key is None and (key is None or self._config.partitioner_ignore_keys)

    # -- metadata ------------------------------------------------------------------------------------------------

    async def topic(self, name: str, deadline: float, check_open: Callable[[], None] | None = None) -> Topic:
        """The topic, asked for where it is unknown.

        Args:
            check_open: raises where there is no use in waiting; the check for records, where None.

        Raises:
            MetadataTimeoutError, InvalidTopicError, BrokerError: it can't be had.
        """
        known = self._accumulator.topics.get(name)
        if known is not None:
            self._metadata.touch(name)
            return known
        _checked_topic(name)
        started = asyncio.get_running_loop().time()
        try:
            while True:
                await self._refreshed(name, deadline, check_open or self._check_open)
                known = self._accumulator.topics.get(name)
                if known is not None:
                    return known
        finally:
            self._metrics.metadata_waited(asyncio.get_running_loop().time() - started)

    async def _refreshed(self, name: str, deadline: float, check_open: Callable[[], None]) -> None:
        """Wait for one refresh of metadata with this topic."""
        version = self._metadata.request_topic(name)
        try:
            async with asyncio.timeout_at(deadline):
                await self._metadata.await_update(version)
        except TimeoutError:
            reason = self._metadata.last_error or self._topic_error(name)
            raise MetadataTimeoutError(
                f"topic {name!r} is not known after max_block_ms={self._config.max_block_ms}" + (f": {reason}" if reason else "")
            ) from None
        check_open()
        if isinstance(self._metadata.last_error, AuthenticationError):
            raise self._metadata.last_error.with_traceback(None)
        error = self._topic_error(name)
        if isinstance(error, BrokerError) and not error.code.retriable:
            raise InvalidTopicError(str(error)) if error.code == ErrorCode.INVALID_TOPIC_EXCEPTION else error

    def _topic_error(self, name: str) -> BrokerError | None:
        info = self._metadata.snapshot.topics.get(name)
        return BrokerError(info.error, f"topic {name!r}") if info is not None and info.error != ErrorCode.NONE else None

    def _timestamp(self, timestamp_ms: int | None) -> int:
        if timestamp_ms is None:
            return int(self._clock() * 1000)
        if isinstance(timestamp_ms, bool) or not isinstance(timestamp_ms, int) or not 0 <= timestamp_ms < 2**62:
            raise SerializationError(f"timestamp_ms={timestamp_ms!r}: must be a whole number of milliseconds since 1970")
        return timestamp_ms


def is_of_the_record(error: Exception) -> TypeGuard[KafkaError]:
    """Whether an error comes back in the delivery; all others, and those of the producer, are raised."""
    return isinstance(error, _OF_THE_RECORD) and not isinstance(error, _OF_THE_PRODUCER)


def _checked_topic(topic: object) -> str:
    if not isinstance(topic, str) or not _LEGAL_TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise InvalidTopicError(f"topic={topic!r}: must be 1 to 249 of the characters a-z A-Z 0-9 . _ -, and not '.' or '..'")
    return topic


def _check_partition_argument(record: ProducerRecord) -> None:
    partition = record.partition
    if partition is not None and (isinstance(partition, bool) or not isinstance(partition, int) or partition < 0):
        raise InvalidPartitionError(f"partition={partition!r} of topic {record.topic!r}: must be a number from 0")
    if record.partition_key is not None and not isinstance(record.partition_key, bytes):
        raise SerializationError(f"partition_key of type {type(record.partition_key).__name__}: must be bytes")


def _place(record: ProducerRecord) -> TopicPartition:
    """Where the record was to go, as far as is known."""
    partition = record.partition if isinstance(record.partition, int) and record.partition >= 0 else _UNKNOWN_PARTITION
    return TopicPartition(str(record.topic), partition)
