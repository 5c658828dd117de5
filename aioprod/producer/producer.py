"""The producer that users see."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from aioprod.cluster.coordinators import Coordinators
from aioprod.cluster.metadata import Metadata
from aioprod.cluster.snapshot import ClusterSnapshot
from aioprod.config import check_names
from aioprod.errors import KafkaError, ProducerClosedError
from aioprod.interceptors import InterceptorChain
from aioprod.metrics import ObservedProducer, Observers, ProducerMetrics
from aioprod.net.brokers import Brokers
from aioprod.parts import close_parts
from aioprod.producer.accumulator import RecordAccumulator
from aioprod.producer.buffer_pool import BufferPool
from aioprod.producer.bulk import BulkIntake
from aioprod.producer.compressor import Compressor
from aioprod.producer.deliveries import Deliveries
from aioprod.producer.delivery import Delivery
from aioprod.producer.intake import RecordIntake
from aioprod.producer.partition_queue import Topic
from aioprod.producer.partitioner import key_hashes
from aioprod.producer.reporting import BatchReporter
from aioprod.producer.sender import Sender
from aioprod.producer.sequences import ProducerState
from aioprod.producer.transactions.interface import TransactionInterface
from aioprod.producer.transactions.manager import TransactionManager
from aioprod.producer_config import ProducerConfig, ProducerSettings
from aioprod.properties import producer_arguments
from aioprod.protocol.record_encoder import encode_headers
from aioprod.protocol.record_writer import KEYED, KEYLESS, KEYLESS_OVERHEAD, RECORD_OVERHEAD, WITH_HEADERS
from aioprod.secrecy import hide_arguments
from aioprod.types import Headers, ProducerRecord, RecordMetadata, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

log = logging.getLogger(__name__)

_client_numbers = itertools.count(1)


class Producer(TransactionInterface):
    """Sends records to Kafka from asyncio code.

    Make it anywhere (the constructor touches no event loop), use it in one event loop, share it between any number of
    tasks. All times are in milliseconds and all sizes in bytes; each name is Kafka's, with underscores.

    Args:
        bootstrap_servers: ``"host:port,host:port"`` or a list of these.
        clock: seconds since 1970, for the records' timestamps; ``time.time`` where none is given.
        rng: source of all random choices (jitter, partitions of keyless records).
        settings: the fields of :class:`aioprod.producer_config.ProducerConfig`; docs/configuration.md explains each.

    Raises:
        ConfigError: a setting is unknown, has a bad value, or contradicts another.
    """

    @hide_arguments
    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        clock: Callable[[], float] | None = None,
        rng: random.Random | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        check_names(ProducerConfig, settings)
        settings.setdefault("client_id", _client_id(settings.get("transactional_id")))
        self.config = config = ProducerConfig(bootstrap_servers=cast("tuple[str, ...]", bootstrap_servers), **settings)
        clock = clock or time.time
        self._clock = clock
        rng = rng or random.Random()
        self._metrics = ProducerMetrics(config.metrics_sample_window_ms, config.metrics_num_samples)
        self._observers = Observers(config.observers)
        self._interceptors = InterceptorChain(config.interceptors)
        self._pool = BufferPool(config.buffer_memory, config.batch_size)
        self._pool.on_waited = lambda seconds: self._metrics.buffer_waited(seconds, self._now())
        self._pool.on_exhausted = lambda: self._metrics.buffer_exhausted(self._now())
        state = ProducerState()
        self._brokers = Brokers(config, rng)
        self._brokers.on_connection = self._connection_changed
        self._metadata = Metadata(config, self._brokers, rng, create_topics=True)
        self._accumulator = RecordAccumulator(config, self._pool, state, rng, self._wake)
        self._transactions = self._transaction_manager(state, rng) if config.transactional_id is not None else None
        self._compressor = Compressor(lambda: self._wake(0.0))
        self._accumulator.is_compressed = self._compressor.is_ready
        self._sender = Sender(
            config, self._accumulator, self._metadata, self._brokers, state, rng, self._metrics, self._observers, self._transactions
        )
        self._sender.on_fatal = self._fatal
        self._intake = RecordIntake(
            config,
            self._metadata,
            self._accumulator,
            self._interceptors,
            self._metrics,
            clock=clock,
            check_open=self._check_open,
            wake=self._sender.wake,
            on_refused=self._refused,
        )
        self._accumulator.keep_records = self._interceptors.wants_records
        reporter = BatchReporter(self._metrics, self._observers, self._interceptors)
        self._accumulator.on_end = reporter.ended
        self._accumulator.on_dropped = reporter.dropped
        plain = config.key_serializer is None and config.value_serializer is None and config.partitioner is None
        plain = plain and not config.partitioner_ignore_keys and not self._interceptors
        # The topics whose records may take the fast path.
        self._fast_topics: Mapping[str, Topic] = self._intake.gate.fast if plain else {}
        self._bulk = BulkIntake(self._intake, is_plain=plain, may_append=self._may_append, clock=clock)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = False
        self._starting = asyncio.Lock()
        self._closing: KafkaError | None = None
        self._closed: asyncio.Future[None] | None = None

    def _transaction_manager(self, state: ProducerState, rng: random.Random) -> TransactionManager:
        transactions = TransactionManager(
            self.config,
            state,
            Coordinators(self.config, self._brokers, rng),
            rng,
            wake=lambda: self._wake(0.0),
            drop_unsent=self._drop_unsent,
            wait_for_sent=self._accumulator.flush,
            on_fatal=self._fatal,
        )
        self._accumulator.on_open = self._batch_opened
        self._accumulator.may_drain = transactions.may_send
        return transactions

    @classmethod
    @hide_arguments
    def from_config(cls, settings: Mapping[str, Any]) -> Self:
        """Make a producer from Kafka's own names and values, such as ``{"bootstrap.servers": "...", "linger.ms": "5"}``; see docs/configuration.md.

        Serializers, partitioner, interceptors and observers may be classes or import paths; they are made and configured.

        Raises:
            ConfigError: as the constructor does; and for a setting of Java's that is not there, which says why.
        """
        with producer_arguments(settings, _client_id) as arguments:
            return cls(**arguments)

    # -- life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect and learn the cluster.

        After a failure it may be called again.

        Raises:
            BrokerConnectionError: no bootstrap address answers; the message names each and why.
            AuthenticationError: the broker refuses the credentials.
            ProducerClosedError: it was closed before.
        """
        async with self._starting:
            if self._closing is not None:
                raise self._closing.with_traceback(None)
            if not self._started:
                await self._start()

    async def _start(self) -> None:
        if self._loop is None and self._observers:
            self._observers.on_start(ObservedProducer(self.config.client_id, self.metrics, self.metrics_by_topic, self.metrics_by_node))
        self._loop = asyncio.get_running_loop()
        self._brokers.open()
        try:
            await self._metadata.refresh(())
            if self._closing is not None:
                raise self._closing.with_traceback(None)
        except BaseException:
            await self._brokers.close()
            raise
        self._metadata.on_update = self._take_over
        self._metadata.on_fault = self._fatal
        self._brokers.on_change = self._sender.wake
        self._metadata.start()
        self._sender.start()
        self._started = True

    async def stop(self) -> None:
        """Deliver what was sent, within its delivery time-out, and close."""
        await self.close()

    async def close(self, timeout_ms: float | None = None) -> None:
        """Deliver what was sent, for at most ``timeout_ms``; fail the rest with ProducerClosedError; close all connections.

        Without ``timeout_ms`` the limit is ``delivery_timeout_ms``. An open transaction is aborted, a prepared one left as it is. Closing
        twice is fine; a cancelled ``close`` still closes, at once.
        """
        if self._closed is not None:
            await asyncio.shield(self._closed)
            return
        closed = self._closed = asyncio.get_running_loop().create_future()
        self._closing = self._closing or ProducerClosedError("the producer is closed")
        self._fast_topics = {}
        limit = self.config.delivery_timeout_ms if timeout_ms is None else timeout_ms
        try:
            if self._started and limit > 0:
                async with asyncio.timeout(limit / 1000):
                    await self._finish()
        except TimeoutError:
            pass
        finally:
            if self._transactions is not None:
                self._transactions.stop()
            self._accumulator.abort(ProducerClosedError(f"not delivered before the producer closed (close timeout {limit:.0f} ms)"))
            # Whatever happens to the caller now: nothing is left open.
            release = asyncio.get_running_loop().create_task(self._release(), name="aioprod-close")
            release.add_done_callback(lambda _: closed.set_result(None))
            await asyncio.shield(release)

    async def _finish(self) -> None:
        """Bring what was sent to its end; a transaction that nobody ends is aborted."""
        if self._transactions is not None:
            try:
                await self._transactions.settle()
            except KafkaError as error:
                log.warning("transactional_id=%r is left to the coordinator to abort: %s", self.config.transactional_id, error)
        if self._accumulator.closed is None:
            await self._accumulator.flush()

    async def _release(self) -> None:
        if self._transactions is not None:
            await self._transactions.close()
        await self._sender.close()
        await self._compressor.close()
        await self._metadata.close()
        await self._brokers.close()
        self._interceptors.close()
        close_parts((self.config.key_serializer, self.config.value_serializer, self.config.partitioner))
        self._observers.close()

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
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        partition_key: bytes | None = None,
    ) -> Delivery:
        """Take a record; waits for metadata and for buffer memory, never for the broker.

        Args:
            topic: where to; a broker that allows it creates an unknown one.
            value, key: bytes, or what the serializers take; None is a null.
            partition: send there, whatever the key.
            timestamp_ms: milliseconds since 1970; now by default.
            headers: ``(name, bytes or None)`` pairs; order and duplicates are kept.
            partition_key: chooses the partition as a key would, and is not stored.

        Returns:
            A :class:`Delivery`: await it for the record's place. What is wrong with this record or its topic is its error:
            RecordTooLargeError, InvalidTopicError, InvalidPartitionError, MetadataTimeoutError (``max_block_ms`` is over), or a
            BrokerError such as TOPIC_AUTHORIZATION_FAILED; later DeliveryTimeoutError or what the broker says.

        Raises:
            SerializationError: key, value, headers or timestamp can't be turned into bytes; other records are untouched.
            BufferExhaustedError: no memory within ``max_block_ms``.
            ProducerClosedError: the producer is closed or not started.
            TransactionStateError: it is transactional, and no transaction is open.
            AbortableTransactionError, FatalProducerError: the transaction, or the producer, can't go on.
        """
        # The fast path: everything is known, the record fits into the open batch. It never suspends, and it calls as little as it can: more
        # than half of the 1.2 us that it took when it was written as functions were their calls.
        if type(value) is bytes and partition is None and timestamp_ms is None and partition_key is None:
            try:
                known = self._fast_topics[topic]
                if key is None:
                    batch = known.queues[known.sticky.current].open
                    kind, size = KEYLESS, len(value) + KEYLESS_OVERHEAD
                elif type(key) is bytes:
                    batch = known.queues[key_hashes[key] % known.count].open
                    kind, size = KEYED, len(value) + len(key) + RECORD_OVERHEAD
                else:
                    batch, kind, size = None, KEYLESS, 0
                if headers:
                    block = encode_headers(headers)
                    kind, size = kind | WITH_HEADERS, size + len(block)
            except (KeyError, TypeError, ValueError):
                batch = None  # an unknown topic, or something wrong, which the other way is to name
            if batch is not None:
                writer = batch.writer
                size += writer.size
                if size <= batch.open_until and writer.kind == kind and (self._transactions is None or self._transactions.may_append):
                    clock = self._clock
                    if (now := clock()) >= writer.until_s:
                        writer.at(now)
                    if key is not None:
                        writer.keys.append(key)
                    if kind & WITH_HEADERS:
                        writer.headers.append(block)
                    writer.values.append(value)
                    writer.size = size
                    delivery = Delivery()
                    delivery.batch = batch
                    delivery.index = index = writer.count
                    writer.count = index + 1
                    return delivery
        return await self._intake.take(ProducerRecord(topic, value, key, partition, timestamp_ms, headers, partition_key))

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        partition_key: bytes | None = None,
    ) -> RecordMetadata:
        """Send a record and wait until the broker has it. Arguments and errors as for :meth:`send`, and those of the delivery."""
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers, partition_key))

    async def send_many(self, topic: str, records: Iterable[Any]) -> Deliveries:
        """Take many records, in order; waits as :meth:`send` does, and one bad record does not stop the others.

        Args:
            topic: where to.
            records: values, or :class:`ProducerRecord` with a key, headers and so on (its topic must be this one).

        Returns:
            A sequence with one :class:`Delivery` per record, in order; also for one that can't be serialized or finds no memory, with that
            error. Await it for the places of all records.

        Raises:
            ProducerClosedError, TransactionStateError, AbortableTransactionError, FatalProducerError: as for :meth:`send`; records taken
                before are on their way.
        """
        return await self._bulk.take(topic, records)

    async def send_arrow(self, topic: str, data: pa.Table | pa.RecordBatch) -> Deliveries:
        """Take the rows of an Arrow table, in order; waits as :meth:`send` does. Needs the extra ``arrow``.

        Made for thousands of rows a call: they are encoded together, and their batches are sent without waiting for more records.

        Args:
            topic: where to.
            data: the columns ``value`` and, if wanted, ``key`` (bytes or text), ``headers`` (a list of structs of ``key`` and ``value``, or a map),
                ``timestamp`` and ``partition``; a null there means what it does for :meth:`send`.

        Returns:
            A sequence with one :class:`Delivery` per row, in order. ``wait()`` for the outcome of all; ``exceptions()`` tells which rows failed.
            A row that is too large, or names a partition that is not there, fails alone; where the topic can't be had, or memory is not to be
            had within ``max_block_ms``, so do all rows that are left.

        Raises:
            SerializationError, InvalidPartitionError: no table of records; the text names column and row. Nothing was taken.
            ConfigError: the producer has serializers.
            ImportError: pyarrow is missing.
            ProducerClosedError, TransactionStateError, AbortableTransactionError, FatalProducerError: as for :meth:`send`; rows taken
                before are on their way.
        """
        from aioprod.producer.arrow import ArrowIntake  # which needs pyarrow

        intake = ArrowIntake(self.config, self._accumulator, self._intake, self._bulk.take_one, clock=self._clock, check_open=self._check_open)
        return await intake.take(topic, data)

    async def flush(self, timeout_ms: float | None = None) -> None:
        """Wait until everything sent before has an outcome; nothing lingers meanwhile, later sends are not waited for.

        Raises:
            TimeoutError: not done within ``timeout_ms``.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._accumulator.flush()
        finally:
            self._metrics.flushed(loop.time() - started)

    async def partitions_for(self, topic: str) -> list[int]:
        """The numbers of a topic's partitions.

        Raises:
            MetadataTimeoutError, InvalidTopicError, BrokerError: the topic can't be had.
            ProducerClosedError: the producer is closed or not started.
        """
        self._check_running()
        known = await self._intake.gate.topic(topic, self._intake.deadline())
        return list(range(known.count))

    # -- observing -----------------------------------------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        """Figures of this moment by the names of Kafka's ``producer-metrics``; see docs/observability.md."""
        gauges = {
            "buffer-total-bytes": float(self._pool.total),
            "buffer-available-bytes": float(self._pool.available),
            "waiting-threads": float(self._intake.appender.waiting),
            "requests-in-flight": float(self._sender.in_flight),
            "connection-count": float(self._brokers.connected),
            "metadata-age": self._now() - self._metadata.refreshed_at,
        }
        return self._metrics.snapshot(self._now(), gauges)

    def metrics_by_topic(self) -> dict[str, dict[str, float]]:
        """The same for each topic in use, by the names of Kafka's ``producer-topic-metrics``."""
        return self._metrics.snapshot_by_topic(self._now())

    def metrics_by_node(self) -> dict[int, dict[str, float]]:
        """The same for each broker, by the names of Kafka's ``producer-node-metrics``."""
        return self._metrics.snapshot_by_node(self._now())

    def _now(self) -> float:
        return self._loop.time() if self._loop is not None else 0.0

    # -- inner links ---------------------------------------------------------------------------------------------

    def _check_running(self) -> None:
        error = self._closing or self._accumulator.closed
        if error is None and not self._started:
            error = ProducerClosedError("the producer is not started: use 'async with Producer(...)' or await start()")
        if error is not None:
            raise error.with_traceback(None)

    def _may_append(self) -> bool:
        return self._closing is None and (self._transactions is None or self._transactions.may_append)

    def _check_open(self) -> None:
        self._check_running()
        if self._transactions is not None:
            self._transactions.check_may_send()

    def _refused(self, tp: TopicPartition, error: KafkaError) -> None:
        if self._transactions is not None:
            self._transactions.batch_failed(tp, error)

    def _fatal(self, error: KafkaError) -> None:
        # First, or a commit under way would take the end of its batches for success.
        if self._transactions is not None:
            self._transactions.fail(error)
        self._accumulator.abort(error)

    def _connection_changed(self, node_id: int, address: str, opened: bool, error: KafkaError | None) -> None:
        if opened:
            self._metrics.connection_opened(self._now())
        else:
            self._metrics.connection_closed(self._now())
        self._observers.on_connection(node_id, address, opened, error)

    def _take_over(self, snapshot: ClusterSnapshot) -> None:
        self._accumulator.update(snapshot)
        self._intake.gate.update()
        self._sender.leaders_changed()

    def _wake(self, at: float) -> None:
        self._sender.wake(at)

    def _batch_opened(self, tp: TopicPartition) -> None:
        assert self._transactions is not None
        self._sender.handler.giving_up = None
        self._transactions.partition_used(tp)

    def _drop_unsent(self, error: KafkaError) -> None:
        self._sender.handler.giving_up = error
        self._accumulator.drop_unsent(error)



def _client_id(transactional_id: str | None) -> str:
    return f"aioprod-producer-{transactional_id or next(_client_numbers)}"
