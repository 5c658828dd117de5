"""The public producer."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack, cast, overload

from aioprod.arguments import check_limit_ms, check_sources
from aioprod.cluster.client_ids import next_client_number
from aioprod.config import keywords
from aioprod.config.checks import check_names
from aioprod.config.producer import ProducerConfig, producer_arguments
from aioprod.config.redaction import hide_arguments
from aioprod.misuse import PRODUCER_OF_OTHERS, names_cures
from aioprod.native import without_coroutine
from aioprod.producer.core import ProducerCore
from aioprod.producer.deliveries import Deliveries
from aioprod.producer.delivery import Delivery
from aioprod.producer.intake import alone
from aioprod.producer.partitioner import Partitions
from aioprod.producer.shared_fields import ProducerFields
from aioprod.producer.topic_gate import checked_topic
from aioprod.producer.transactions.interface import TransactionInterface
from aioprod.public_module import Uncopyable, set_module
from aioprod.serializing import AnySerializer, K, V, Writes
from aioprod.types import Headers, K_contra, ProducerRecord, RecordMetadata, V_contra
from aioprod.user_code import call

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]


@names_cures(PRODUCER_OF_OTHERS, unchecked=("send", "send_and_wait"))
@set_module("aioprod.producer")
class Producer(ProducerFields, TransactionInterface, Uncopyable, Generic[K_contra, V_contra]):
    """Sends records to Kafka from asyncio code. The serializers of a ``Producer[K, V]`` accept K
    and V.

    The constructor needs no event loop. Use the producer in one event loop, and share it between
    any number of tasks. Close it: a producer that is dropped without ``close`` warns with
    ResourceWarning and loses unsent records. All times are in milliseconds and all sizes in bytes;
    names are Kafka's, with underscores.

    Args:
        bootstrap_servers: ``"host:port,host:port"`` or a list of these.
        clock: returns seconds since 1970, for the records' timestamps; ``time.time`` by default.
            Its exceptions are raised by the call that needs a timestamp.
        rng: source of all random choices (jitter, partitions of keyless records).
        key_serializer, value_serializer: convert keys and values to bytes; without them, they must
            be bytes, or None for a null.
        settings: the fields of :class:`aioprod.config.producer.ProducerConfig`;
            docs/configuration.md explains each.

    Raises:
        ConfigError: if a setting is unknown, invalid, or contradicts another.
    """

    @overload
    def __init__(
        self: Producer[bytes, bytes],
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        clock: Callable[[], float] | None = None,
        rng: random.Random | None = None,
        key_serializer: None = None,
        value_serializer: None = None,
        **settings: Unpack[keywords.ProducerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: Producer[bytes, V],
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        clock: Callable[[], float] | None = None,
        rng: random.Random | None = None,
        key_serializer: None = None,
        value_serializer: Writes[V],
        **settings: Unpack[keywords.ProducerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: Producer[K, bytes],
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        clock: Callable[[], float] | None = None,
        rng: random.Random | None = None,
        key_serializer: Writes[K],
        value_serializer: None = None,
        **settings: Unpack[keywords.ProducerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: Producer[K, V],
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        clock: Callable[[], float] | None = None,
        rng: random.Random | None = None,
        key_serializer: Writes[K],
        value_serializer: Writes[V],
        **settings: Unpack[keywords.ProducerSettings],
    ) -> None: ...
    @hide_arguments
    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        clock: Callable[[], float] | None = None,
        rng: random.Random | None = None,
        key_serializer: AnySerializer | None = None,
        value_serializer: AnySerializer | None = None,
        **settings: Unpack[keywords.ProducerSettings],
    ) -> None:
        check_names(ProducerConfig, settings)
        check_sources(clock, rng)
        if settings.get("client_id") is None:
            settings["client_id"] = _client_id(settings.get("transactional_id"))
        config = ProducerConfig(
            bootstrap_servers=cast("tuple[str, ...]", bootstrap_servers),
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            **settings,
        )
        self.config: ProducerConfig = config
        clock = partial(call, "clock", clock) if clock is not None else time.time
        self._clock = clock
        # The core does not refer to this object.
        self._core = core = ProducerCore(config, clock, rng or random.Random())
        self._loop_binding = core.runtime.loop_binding
        self._metrics = core.metrics
        self._pool = core.pool
        self._brokers = core.runtime.brokers
        self._metadata = core.metadata
        self._accumulator = core.accumulator
        self._transactions = core.transactions
        self._status = core.transactions.status
        self._sender = core.sender
        self._fast_path = core.fast_path
        self._append = core.fast_path.append
        self._intake = core.intake
        self._bulk = core.bulk

    @classmethod
    @hide_arguments
    def from_config(cls, settings: Mapping[str, Any]) -> Self:
        """Create a producer from Kafka's names and values, such as ``{"bootstrap.servers": "...",
        "linger.ms": "5"}``; see docs/configuration.md.

        Serializers, partitioner, interceptors and observers may be classes or import paths; they
        are instantiated and configured.

        Raises:
            ConfigError: as in the constructor; and if a setting exists in Java only, with the
                reason.
        """
        with producer_arguments(settings, _client_id) as arguments:
            return cls(**arguments)

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the cluster. With ``transactional_id``, fence an older producer that has it,
        and abort its open transaction.

        Connecting takes at most ``max_block_ms``, or ``request_timeout_ms`` if that is longer; a
        server that accepts a connection and then closes it is retried. The transaction coordinator
        has another ``max_block_ms``. After a failure no connection stays open, and you can call
        ``start`` again.

        Raises:
            BrokerConnectionError: if no bootstrap server can be reached; the message has each
                reason.
            KafkaTimeoutError: if a server, or the transaction coordinator, does not reply in time.
            AuthenticationError: if the broker refuses the credentials.
            ProducerClosedError: if the producer was closed before, or is closed during the call.
            BrokerError: if the coordinator refuses, such as TRANSACTIONAL_ID_AUTHORIZATION_FAILED;
                a FatalProducerError if another start does not help.
            WrongEventLoopError: if it was started in another event loop, or before this process was
                forked.
        """
        await self._core.runtime.start(self._core)

    async def stop(self) -> None:
        """Deliver the accepted records, within ``delivery_timeout_ms``, and close."""
        await self.close()

    async def close(self, timeout_ms: float | None = None) -> None:
        """Deliver the accepted records within ``timeout_ms``, fail the rest with
        ProducerClosedError, and close all connections.

        The default timeout is ``delivery_timeout_ms``. An open transaction is aborted, a prepared
        one is not. A ``start`` in progress fails with ProducerClosedError. A second ``close`` waits
        for the first, and ends it earlier if its timeout is earlier. A cancelled ``close`` closes
        at once.

        Raises:
            ConfigError: if ``timeout_ms`` is not a finite number >= 0; nothing is closed.
            WrongEventLoopError: if it was started in another event loop that is not closed, or
                before this process was forked.
        """
        check_limit_ms(timeout_ms)
        runtime = self._core.runtime
        runtime.check_may_close()
        self._core.fast_path.close()
        limit_ms = self.config.delivery_timeout_ms if timeout_ms is None else timeout_ms
        await runtime.close(self._core, limit_ms)

    def __del__(self) -> None:
        if "_core" in self.__dict__ and not self._core.runtime.released:  # the settings were valid
            self._core.runtime.dropped(self, self._core, self._core.loss())

    async def __aenter__(self) -> Self:
        """Start, as :meth:`start` does."""
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close, as :meth:`close` does."""
        await self.close()

    # -- sending -----------------------------------------------------------------------------------

    @without_coroutine
    async def send(
        self,
        topic: str | ProducerRecord[K_contra | None, V_contra | None],
        value: V_contra | None = None,
        key: K_contra | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | Mapping[str, bytes | None] = (),
        partition_key: bytes | None = None,
    ) -> Delivery:
        """Put a record into a batch; wait up to ``max_block_ms`` for metadata and memory. Returns a
        :class:`Delivery`: await it for the record's metadata, or the record's own error.

        Args:
            topic: the topic; or, without other arguments, a ProducerRecord.
            value, key: bytes, or what the serializers accept; None is a null.
            partition, partition_key: choose the partition in place of the key.
            timestamp_ms: since 1970; now by default.
            headers: ``(name, bytes or None)`` pairs, or a mapping from names; order and duplicates
                are kept.

        Raises:
            KafkaError: if the record is not accepted; docs/producer.md lists the errors.
        """
        if partition_key is None:
            append = self._append  # called as a method it takes longer
            delivery = append(topic, value, key, headers, partition, timestamp_ms)
            if delivery is not None:
                return delivery
        rest = (value, key, partition, timestamp_ms, headers, partition_key)
        if isinstance(topic, ProducerRecord):
            return await self._intake.take(alone(topic, *rest))
        return await self._intake.take(ProducerRecord(topic, *rest))  # type: ignore[arg-type]

    async def send_and_wait(
        self,
        topic: str | ProducerRecord[K_contra | None, V_contra | None],
        value: V_contra | None = None,
        key: K_contra | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | Mapping[str, bytes | None] = (),
        partition_key: bytes | None = None,
    ) -> RecordMetadata:
        """Send a record and wait until it is stored: at most ``max_block_ms`` and
        ``delivery_timeout_ms``. Arguments and errors are those of :meth:`send` and of the delivery.
        """
        if partition_key is None:  # as send() does, without a coroutine
            append = self._append
            delivery = append(topic, value, key, headers, partition, timestamp_ms)
            if delivery is not None:
                return await delivery
        return await (
            await self.send(topic, value, key, partition, timestamp_ms, headers, partition_key)
        )

    async def send_many(
        self,
        topic: str,
        records: Iterable[V_contra | ProducerRecord[K_contra | None, V_contra | None] | None],
    ) -> Deliveries:
        """Put many records into batches, in order; wait as :meth:`send` does. An invalid record
        does not stop the others.

        Up to 4,096 records count as one call: records sent later, by any task, are stored after
        them.

        Args:
            topic: the topic.
            records: values, or :class:`ProducerRecord` with a key, headers and so on (its topic
                must be this one).

        Returns:
            A sequence with one :class:`Delivery` per record, in order. A record that can't be
            serialized has that error in its delivery. If the topic does not exist, or no memory is
            free within ``max_block_ms``, this record and all later ones fail with that error. Await
            the sequence for the metadata of all records.

        Raises:
            ProducerClosedError, TransactionStateError: as in :meth:`send`; earlier records are
                sent.
            AbortableTransactionError, FatalProducerError: as in :meth:`send`; earlier records are
                sent.
            ConfigError: if ``records`` is one value, or is not iterable.
            Exception: an error of ``records`` itself; earlier records are sent, in portions of
                4,096.
        """
        return await self._bulk.take(topic, records)

    async def send_arrow(self, topic: str, data: pa.Table | pa.RecordBatch) -> Deliveries:
        """Put the rows of an Arrow table into batches, in order; wait as :meth:`send` does. Needs
        the extra ``arrow``.

        Use it for thousands of rows per call: they are encoded together, and their batches do not
        linger.

        Args:
            topic: the topic.
            data: the column ``value`` and optionally ``key``, ``headers`` (a list of structs of
                ``key`` and ``value``, or a map), ``timestamp`` and ``partition``; nulls mean what
                None means for :meth:`send`. Keys and values are bytes or text, or what the
                producer's serializers accept: those of ``aioprod.schema_registry`` serialize
                columns of structs and other types.

        Returns:
            A sequence with one :class:`Delivery` per row, in order. ``wait()`` waits for all
            outcomes; ``exceptions()`` returns the errors by row. Only that row fails if it is too
            large or names an unknown partition. If the topic does not exist, or no memory is free
            within ``max_block_ms``, all remaining rows fail.

        Raises:
            SerializationError, InvalidPartitionError: if the table is invalid, or does not fit the
                schema; the message names column and row. No row is sent.
            ConfigError: if the producer has other serializers, or interceptors or a partitioner
                together with serializers.
            ImportError: if pyarrow is missing.
            ProducerClosedError, TransactionStateError: as in :meth:`send`; earlier rows are sent.
            AbortableTransactionError, FatalProducerError: as in :meth:`send`; earlier rows are
                sent.
        """
        from aioprod.producer.arrow import ArrowIntake  # which needs pyarrow

        intake = ArrowIntake(
            self.config,
            self._accumulator,
            self._intake,
            self._core.gate,
            self._core.admission,
            self._transactions,
            self._bulk.take_one,
            clock=self._clock,
        )
        return await intake.take(topic, data)

    async def flush(self, timeout_ms: float | None = None) -> None:
        """Send all records that were accepted before without lingering, and wait until each has an
        outcome.

        Args:
            timeout_ms: the timeout; each record has its outcome by ``delivery_timeout_ms`` anyway.

        Raises:
            TimeoutError: if a record has no outcome after ``timeout_ms``.
            ConfigError: if ``timeout_ms`` is not a finite number >= 0.
            WrongEventLoopError: if the producer was started in another event loop.
        """
        check_limit_ms(timeout_ms)
        self._loop_binding.check()
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._accumulator.flush()
        finally:
            self._metrics.flushed(loop.time() - started)

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the numbers of a topic's partitions; wait up to ``max_block_ms`` for metadata.

        Raises:
            MetadataTimeoutError, InvalidTopicError, BrokerError: if there is no such topic.
            ProducerClosedError: if the producer is closed or not started.
        """
        self._check_running()
        known = await self._core.gate.topic(topic, self._intake.deadline())
        return list(range(known.count))

    def known_partitions(self, topic: str) -> Partitions | None:
        """Return the number of a topic's partitions with their leaders, as of the last metadata
        response, without waiting. None if the topic is not known: await :meth:`partitions_for`
        first.

        With it an application can choose the ``partition`` of each record itself.

        Raises:
            InvalidTopicError: if there can be no such topic.
        """
        known = self._accumulator.topics.get(topic) if isinstance(topic, str) else None
        if known is not None:
            return known.partitions
        checked_topic(topic)
        return None

    # -- metrics -----------------------------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        """Return the current metrics, by the names of Kafka's ``producer-metrics``; see
        docs/metrics.md.
        """
        return self._core.snapshot()

    def metrics_by_topic(self) -> dict[str, dict[str, float]]:
        """Return the metrics of each topic, by the names of Kafka's ``producer-topic-metrics``."""
        return self._core.snapshot_by_topic()

    def metrics_by_node(self) -> dict[int, dict[str, float]]:
        """Return the metrics of each broker, by the names of Kafka's ``producer-node-metrics``."""
        return self._core.snapshot_by_node()

    async def client_instance_id(self, timeout_ms: float | None = None) -> uuid.UUID:
        """Return the id under which brokers know the metrics that this producer pushes (KIP-714).
        It stays the same until the producer is closed.

        Args:
            timeout_ms: how long to wait for the first response of a broker, by default
                ``request_timeout_ms``; 0 does not wait.

        Raises:
            ConfigError: if ``enable_metrics_push`` is False, or ``timeout_ms`` is not a finite
                number >= 0.
            UnsupportedVersionError: if the broker does not accept metrics of clients.
            KafkaTimeoutError: if the id is unknown after the timeout.
            KafkaError: if no broker can be reached, or the broker refuses.
            ProducerClosedError: if the producer is not started, or is closed before or during the
                call.
        """
        return await self._core.runtime.client_instance_id(timeout_ms)

    # -- for the base class ------------------------------------------------------------------------

    def _now(self) -> float:
        return self._core.runtime.now()

    def _check_running(self) -> None:
        self._core.admission.check_running()


def _client_id(transactional_id: str | None) -> str:
    return f"aioprod-producer-{transactional_id or next_client_number('producer')}"
