"""The producer that users see."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, Unpack, cast

from aioprod.cluster.metadata import Metadata
from aioprod.cluster.snapshot import ClusterSnapshot
from aioprod.config import ProducerConfig, ProducerSettings, Serializer, check_names, from_dotted
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    BrokerError,
    ConfigError,
    InvalidPartitionError,
    InvalidTopicError,
    KafkaError,
    MetadataTimeoutError,
    ProducerClosedError,
    RecordTooLargeError,
    SerializationError,
)
from aioprod.net.brokers import Brokers
from aioprod.producer.accumulator import PartitionQueue, RecordAccumulator, Topic
from aioprod.producer.batch import Delivery
from aioprod.producer.buffer_pool import BufferPool
from aioprod.producer.partitioner import partition_for_key
from aioprod.producer.sender import Sender
from aioprod.producer.sequences import ProducerState
from aioprod.protocol.compression import Codec, check_level
from aioprod.protocol.record_batch import HEADER_SIZE
from aioprod.protocol.record_writer import estimate_upper_bound
from aioprod.types import Headers, RecordMetadata

_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_client_numbers = itertools.count(1)


class Producer:
    """Sends records to Kafka from asyncio code.

    Make it anywhere (the constructor touches no event loop), use it in one event loop, share it between any number of
    tasks. All times are in milliseconds and all sizes in bytes; each name is Kafka's, with underscores.

    Args:
        bootstrap_servers: ``"host:port,host:port"`` or a list of these.
        client_id: the name brokers log; ``aioprod-producer-N`` by default.
        acks: ``"all"`` (default), 1, or 0 (no answer at all: offsets are unknown, losses unnoticed).
        enable_idempotence: no record twice, none out of order, whatever is retried. Needs acks="all".
        linger_ms: how long a batch waits for more records (5).
        batch_size: bytes of a batch (16,384); a larger record gets a batch of its own.
        buffer_memory: bytes of records that may wait (32 MiB); then ``send`` waits.
        compression_type: ``"none"``, ``"gzip"``, ``"snappy"``, ``"lz4"`` or ``"zstd"``; compression_level: the codec's own level (KIP-390).
        max_block_ms: how long ``send`` may wait for metadata and for memory together (60,000).
        delivery_timeout_ms: from ``send`` to the outcome at most (120,000).
        request_timeout_ms: how long one request may stay unanswered (30,000).
        retry_backoff_ms, retry_backoff_max_ms: pause between attempts (100 to 1,000).
        max_in_flight_requests_per_connection: unanswered requests to one broker (5). Without idempotence and above 1, retries may change the order.
        max_request_size: bytes of a request, and of a record before compression (1 MiB).
        key_serializer, value_serializer: ``(topic, headers, data) -> bytes``; without one, data is bytes.
        partitioner: a :class:`aioprod.Partitioner`; by default murmur2 of the key as in Java, else sticky (KIP-794).

    The remaining settings are those of :class:`aioprod.config.ClientConfig`.

    Raises:
        ConfigError: a setting is unknown, has a bad value, or contradicts another.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        check_names(ProducerConfig, settings)
        settings.setdefault("client_id", f"aioprod-producer-{next(_client_numbers)}")
        self.config = ProducerConfig(bootstrap_servers=cast("tuple[str, ...]", bootstrap_servers), **settings)
        _check_codec(self.config)
        self._clock = clock
        self._rng = rng or random.Random()
        self._pool = BufferPool(self.config.buffer_memory, self.config.batch_size)
        self._state = ProducerState()
        self._brokers = Brokers(self.config, self._rng)
        self._metadata = Metadata(self.config, self._brokers, self._rng, create_topics=True)
        self._accumulator = RecordAccumulator(self.config, self._pool, self._state, self._rng, self._wake)
        self._sender = Sender(self.config, self._accumulator, self._metadata, self._brokers, self._state, self._rng)
        self._topics = self._accumulator.topics
        self._max_record = min(self.config.max_request_size, self.config.buffer_memory)
        self._block_s = self.config.max_block_ms / 1000
        self._plain = self.config.key_serializer is None and self.config.value_serializer is None and self.config.partitioner is None
        self._started = False
        self._closing: ProducerClosedError | None = None

    @classmethod
    def from_config(cls, settings: Mapping[str, Any]) -> Self:
        """Make a producer from Kafka's own dotted names, such as ``{"bootstrap.servers": "...", "linger.ms": 5}``.

        Raises:
            ConfigError: as the constructor does.
        """
        return cls(**from_dotted(ProducerConfig, settings))

    # -- life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect and learn the cluster.

        After a failure it may be called again.

        Raises:
            BrokerConnectionError: no bootstrap address answers; the message names each and why.
            ProducerClosedError: it was closed before.
        """
        if self._closing is not None:
            raise self._closing
        if self._started:
            return
        self._brokers.open()
        try:
            await self._metadata.refresh(())
        except BaseException:
            await self._brokers.close()
            raise
        self._metadata.on_update = self._take_over
        self._brokers.on_change = self._sender.wake
        self._metadata.start()
        self._sender.start()
        self._started = True

    async def stop(self) -> None:
        """Deliver what was sent, within its delivery time-out, and close."""
        await self.close()

    async def close(self, timeout_ms: float | None = None) -> None:
        """Deliver what was sent, for at most ``timeout_ms``; fail the rest with ProducerClosedError; close all connections.

        Without ``timeout_ms`` the limit is ``delivery_timeout_ms``. Closing twice is fine. A cancelled ``close`` still closes, at once.
        """
        first = self._closing is None
        self._closing = self._closing or ProducerClosedError("the producer is closed")
        limit = self.config.delivery_timeout_ms if timeout_ms is None else timeout_ms
        try:
            if self._started and limit > 0:
                async with asyncio.timeout(limit / 1000):
                    await self._accumulator.wait_for(list(self._accumulator.incomplete))
        except TimeoutError:
            pass
        finally:
            self._accumulator.abort(ProducerClosedError(f"not delivered before the producer closed (close timeout {limit:.0f} ms)"))
            if first:
                await self._release()

    async def _release(self) -> None:
        await self._sender.close()
        await self._metadata.close()
        await self._brokers.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # -- sending -------------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """Take a record; waits for metadata and for buffer memory, never for the broker.

        Args:
            topic: where to; a broker that allows it creates an unknown one.
            value, key: bytes, or what the serializers take; None is a null.
            partition: send there, whatever the key.
            timestamp_ms: milliseconds since 1970; now by default.
            headers: ``(name, bytes or None)`` pairs; order and duplicates are kept.

        Returns:
            A :class:`Delivery`: await it for the record's place.

        Raises:
            SerializationError, RecordTooLargeError, InvalidTopicError, InvalidPartitionError: this record can't be sent; others are untouched.
            MetadataTimeoutError, BufferExhaustedError: ``max_block_ms`` is over.
            BrokerError: the broker refuses the topic (not authorised, not legal).
            ProducerClosedError: the producer is closed or not started.
        """
        # The fast path: everything is known, the record fits into the open batch. It never suspends.
        if self._plain and partition is None and timestamp_ms is None and not headers and self._closing is None:
            known = self._topics.get(topic)
            if known is not None and (value is None or type(value) is bytes):
                if key is None:
                    queue = known.queues[known.sticky.current]
                elif type(key) is bytes:
                    queue = known.queues[partition_for_key(key, len(known.queues))]
                else:
                    raise _not_bytes("key", key)
                batch = queue.open
                if batch is not None:
                    # 40: all varints of a record at their longest.
                    bound = 40 + (len(value) if value is not None else 0) + (len(key) if key is not None else 0)
                    delivery = batch.try_append(int(self._clock() * 1000), key, value, (), bound)
                    if delivery is not None:
                        return delivery
        return await self._send_any(topic, value, key, partition, timestamp_ms, headers)

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """Send a record and wait until the broker has it. Arguments and errors as for :meth:`send`, and those of the delivery."""
        return await (await self.send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers))

    async def flush(self, timeout_ms: float | None = None) -> None:
        """Wait until everything sent before has an outcome; nothing lingers meanwhile, later sends are not waited for.

        Raises:
            TimeoutError: not done within ``timeout_ms``.
        """
        limit = None if timeout_ms is None else timeout_ms / 1000
        async with asyncio.timeout(limit):
            await self._accumulator.wait_for(list(self._accumulator.incomplete))

    async def partitions_for(self, topic: str) -> list[int]:
        """The numbers of a topic's partitions.

        Raises:
            MetadataTimeoutError, InvalidTopicError, BrokerError: as for :meth:`send`.
        """
        known = await self._topic(topic, asyncio.get_running_loop().time() + self._block_s)
        return list(range(len(known.queues)))

    # -- the slow path -------------------------------------------------------------------------------------------

    async def _send_any(self, topic: str, value: Any, key: Any, partition: int | None, timestamp_ms: int | None, headers: Headers) -> Delivery:
        headers = _checked_headers(headers)
        key = _serialize("key", self.config.key_serializer, topic, headers, key)
        value = _serialize("value", self.config.value_serializer, topic, headers, value)
        timestamp = self._timestamp(timestamp_ms)
        bound = estimate_upper_bound(key, value, headers)
        if bound > self._max_record:
            raise RecordTooLargeError(
                f"a record of up to {bound} bytes (uncompressed) is larger than max_request_size={self.config.max_request_size} "
                f"or buffer_memory={self.config.buffer_memory}"
            )
        deadline = asyncio.get_running_loop().time() + self._block_s
        known = await self._topic(topic, deadline)
        queue = await self._queue(known, key, value, partition, deadline)
        last = queue.open
        if last is not None:
            delivery = last.try_append(timestamp, key, value, headers, bound)
            if delivery is not None:
                return delivery
            # A batch is full. The sender gets a turn now, or a busy loop of sends would starve it; the record is not taken
            # yet, so cancelling here cancels it.
            self._sender.wake()
            await asyncio.sleep(0)
            if key is None and partition is None and self.config.partitioner is None:
                known.sticky.switch(known.available)
                queue = known.queues[known.sticky.current]
            last = queue.open
            delivery = last.try_append(timestamp, key, value, headers, bound) if last is not None else None
            if delivery is not None:
                return delivery
        return await self._accumulator.append(queue, timestamp, key, value, headers, bound, deadline)

    async def _queue(self, known: Topic, key: bytes | None, value: bytes | None, partition: int | None, deadline: float) -> PartitionQueue:
        custom = self.config.partitioner
        if partition is None and custom is not None:
            partition = custom.partition(known.name, key, value, len(known.queues))
        if partition is None:
            return known.queues[known.sticky.current if key is None else partition_for_key(key, len(known.queues))]
        if isinstance(partition, bool) or not isinstance(partition, int) or partition < 0:
            raise InvalidPartitionError(f"partition={partition!r} of topic {known.name!r}: must be a number from 0")
        if partition >= len(known.queues):
            # It may be new: look once more before refusing.
            await self._refreshed(known.name, deadline)
        if partition >= len(known.queues):
            raise InvalidPartitionError(f"partition={partition} of topic {known.name!r}: it has partitions 0 to {len(known.queues) - 1}")
        return known.queues[partition]

    async def _topic(self, topic: str, deadline: float) -> Topic:
        """The topic, asked for where it is unknown."""
        self._check_open()
        known = self._topics.get(topic)
        if known is not None:
            self._metadata.touch(topic)
            return known
        if not isinstance(topic, str) or not _LEGAL_TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise InvalidTopicError(f"topic={topic!r}: must be 1 to 249 of the characters a-z A-Z 0-9 . _ -, and not '.' or '..'")
        while True:
            await self._refreshed(topic, deadline)
            known = self._topics.get(topic)
            if known is not None:
                return known

    async def _refreshed(self, topic: str, deadline: float) -> None:
        """Wait for one refresh of metadata with this topic."""
        self._metadata.touch(topic)
        version = self._metadata.request_update()
        try:
            async with asyncio.timeout_at(deadline):
                await self._metadata.await_update(version)
        except TimeoutError:
            reason = self._metadata.last_error or self._topic_error(topic)
            raise MetadataTimeoutError(
                f"topic {topic!r} is not known after max_block_ms={self.config.max_block_ms}" + (f": {reason}" if reason else "")
            ) from None
        self._check_open()
        error = self._topic_error(topic)
        if isinstance(error, BrokerError) and not error.code.retriable:
            raise InvalidTopicError(str(error)) if error.code == ErrorCode.INVALID_TOPIC_EXCEPTION else error

    def _topic_error(self, topic: str) -> BrokerError | None:
        info = self._metadata.snapshot.topics.get(topic)
        return BrokerError(info.error, f"topic {topic!r}") if info is not None and info.error != ErrorCode.NONE else None

    def _check_open(self) -> None:
        error: KafkaError | None = self._closing or self._accumulator.closed
        if error is None and not self._started:
            error = ProducerClosedError("the producer is not started: use 'async with Producer(...)' or await start()")
        if error is not None:
            raise error

    def _timestamp(self, timestamp_ms: int | None) -> int:
        if timestamp_ms is None:
            return int(self._clock() * 1000)
        if isinstance(timestamp_ms, bool) or not isinstance(timestamp_ms, int) or not 0 <= timestamp_ms < 2**62:
            raise SerializationError(f"timestamp_ms={timestamp_ms!r}: must be a whole number of milliseconds since 1970")
        return timestamp_ms

    def _take_over(self, snapshot: ClusterSnapshot) -> None:
        self._accumulator.update(snapshot)
        self._sender.wake()

    def _wake(self, at: float) -> None:
        self._sender.wake(at)


def _check_codec(config: ProducerConfig) -> None:
    try:
        check_level(Codec.from_name(config.compression_type), config.compression_level)
    except ValueError as error:
        raise ConfigError(f"compression_type={config.compression_type!r}, compression_level={config.compression_level!r}: {error}") from None
    if config.batch_size + HEADER_SIZE > config.buffer_memory:
        raise ConfigError(f"buffer_memory={config.buffer_memory}: must be at least batch_size={config.batch_size} + {HEADER_SIZE} bytes of header")


def _not_bytes(what: str, data: object) -> SerializationError:
    return SerializationError(f"the {what} is of type {type(data).__name__}, bytes is needed: give bytes, or set {what}_serializer")


def _serialize(what: str, serializer: Serializer | None, topic: str, headers: Headers, data: Any) -> bytes | None:
    if serializer is not None:
        try:
            data = serializer(topic, headers, data)
        except Exception as error:
            raise SerializationError(f"{what}_serializer failed on a {what} of type {type(data).__name__} for topic {topic!r}: {error!r}") from error
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, bytes | bytearray | memoryview):
        # A copy: the caller may change its buffer after send.
        return bytes(data)
    raise _not_bytes(what, data)


def _checked_headers(headers: Headers) -> Headers:
    if not headers:
        return ()
    checked = []
    for header in headers:
        try:
            name, value = header
        except (TypeError, ValueError):
            raise SerializationError(f"header {header!r}: must be a (name, value) pair") from None
        if not isinstance(name, str) or not (value is None or isinstance(value, bytes | bytearray | memoryview)):
            raise SerializationError(f"header {header!r}: the name must be str, the value bytes or None")
        checked.append((name, None if value is None else bytes(value)))
    return tuple(checked)
