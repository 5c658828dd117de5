"""The public consumer. It has no state and delegates to the collaborators that
:mod:`aioprod.consumer.graph` builds.
"""

from __future__ import annotations

import random
import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack, cast, overload

from aioprod.arguments import check_listed_topics, check_sources
from aioprod.config import keywords
from aioprod.config.checks import check_names
from aioprod.config.consumer import CONSUMER, ConsumerConfig
from aioprod.config.offset_reset import EARLIEST, LATEST
from aioprod.config.redaction import hide_arguments
from aioprod.consumer.calls.commits import Offsets
from aioprod.consumer.graph import build, client_id
from aioprod.consumer.lifecycle import CLOSE_TIMEOUT_MS
from aioprod.consumer.rebalance_listener import RebalanceListener
from aioprod.consumer.state import ConsumerState
from aioprod.misuse import CONSUMER_OF_OTHERS, names_cures, refused_argument
from aioprod.native import stream_of
from aioprod.public_module import Uncopyable, set_module
from aioprod.serializing import AnyDeserializer, K, Reads, V
from aioprod.types import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    K_co,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    SubscriptionPattern,
    TopicPartition,
    V_co,
)
from aioprod.user_code import FallbackClock

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]


@names_cures(CONSUMER_OF_OTHERS, unchecked=("getone",))
@set_module("aioprod.consumer")
class Consumer(Uncopyable, Generic[K_co, V_co]):
    """Reads records from Kafka in asyncio code. The deserializers of a ``Consumer[K, V]`` return K
    and V.

    ``async for``, :meth:`getone` and :meth:`getmany` return records; those of one partition are in
    order. Records are fetched ahead in the background. The constructor needs no event loop. A
    consumer belongs to one task at a time: other tasks may call only :meth:`wakeup`,
    :meth:`close` and methods that do not wait. Times are in milliseconds, sizes in bytes.

    Args:
        topics: topics to subscribe to, as arguments or one list; or call ``subscribe`` later.
        bootstrap_servers: ``"host:port,host:port"`` or a list of these.
        clock: returns seconds since 1970; ``time.time`` by default, and if ``clock`` raises.
        rng: source of all random choices (jitter, choice of brokers).
        key_deserializer, value_deserializer: convert keys and values from bytes; without them,
            they are bytes, or None for a null.
        settings: the fields of :class:`aioprod.ConsumerConfig`; see docs/configuration.md.

    Raises:
        ConfigError: if a setting is unknown or invalid, or contradicts another.
    """

    @overload
    def __init__(
        self: Consumer[bytes | None, bytes | None],
        *topics: str | Iterable[str],
        key_deserializer: None = None,
        value_deserializer: None = None,
        **settings: Unpack[keywords.ConsumerArguments],
    ) -> None: ...
    @overload
    def __init__(
        self: Consumer[bytes | None, V],
        *topics: str | Iterable[str],
        key_deserializer: None = None,
        value_deserializer: Reads[V],
        **settings: Unpack[keywords.ConsumerArguments],
    ) -> None: ...
    @overload
    def __init__(
        self: Consumer[K, bytes | None],
        *topics: str | Iterable[str],
        key_deserializer: Reads[K],
        value_deserializer: None = None,
        **settings: Unpack[keywords.ConsumerArguments],
    ) -> None: ...
    @overload
    def __init__(
        self: Consumer[K, V],
        *topics: str | Iterable[str],
        key_deserializer: Reads[K],
        value_deserializer: Reads[V],
        **settings: Unpack[keywords.ConsumerArguments],
    ) -> None: ...
    @hide_arguments
    def __init__(
        self,
        *topics: str | Iterable[str],
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        clock: Callable[[], float] | None = None,
        rng: random.Random | None = None,
        key_deserializer: AnyDeserializer | None = None,
        value_deserializer: AnyDeserializer | None = None,
        **settings: Unpack[keywords.ConsumerSettings],
    ) -> None:
        check_names(ConsumerConfig, settings)
        check_sources(clock, rng)
        if settings.get("client_id") is None:
            settings["client_id"] = client_id(settings.get("group_id"))
        self.config: ConsumerConfig = ConsumerConfig(
            bootstrap_servers=cast("tuple[str, ...]", bootstrap_servers),
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            **settings,
        )
        seconds = FallbackClock(clock) if clock is not None else time.time
        graph = build(self.config, seconds, rng or random.Random())
        self._ready = graph.ready.records
        self._guard = graph.guard
        self._subscription = graph.subscription
        self._health = graph.health
        self._lifecycle = graph.lifecycle
        self._records = graph.records
        self._subscribing = graph.subscribing
        self._positions = graph.positions
        self._commits = graph.commits
        self._lookups = graph.lookups
        self._metrics = graph.metrics
        if topics:
            self._subscription.subscribe(check_listed_topics(topics))

    @classmethod
    @hide_arguments
    def from_config(cls, settings: Mapping[str, Any], *topics: str | Iterable[str]) -> Self:
        """Create a consumer from Kafka's names and values, such as ``{"bootstrap.servers": "...",
        "group.id": "...", "max.poll.records": "50"}``.

        Deserializers, interceptors and assignors may be classes or import paths.

        Raises:
            ConfigError: as in the constructor, or if a setting exists in Java only.
        """
        from aioprod.config.kafka_properties import client_arguments  # most pass arguments

        with client_arguments(
            CONSUMER, settings, lambda given: client_id(given.get("group_id"))
        ) as arguments:
            return cls(*topics, **arguments)

    async def start(self) -> None:
        """Connect to the cluster, within ``default_api_timeout_ms``. After a failure, you can call
        it again.

        Raises:
            BrokerConnectionError: if no bootstrap server answers; the message has each reason.
            KafkaTimeoutError: if a server accepts connections, but does not return the brokers of
                its cluster in time.
            AuthenticationError: if the broker refuses the credentials.
            ConsumerClosedError: if the consumer was closed before, or is closed during the call.
            WrongEventLoopError: if it was started in another event loop, or in another process.
        """
        await self._lifecycle.start()

    async def stop(self) -> None:
        """Close the consumer; see :meth:`close`."""
        await self.close()

    async def close(self, timeout_ms: float | None = CLOSE_TIMEOUT_MS) -> None:
        """Commit (if ``enable_auto_commit`` is on), call the listener, leave the group, and close
        all connections, within ``timeout_ms``.

        A call that waits in another task, and a ``start`` in progress, raise ConsumerClosedError.
        A second ``close`` waits for the first, and shortens it if its limit is earlier. A ``close``
        that is cancelled closes at once.

        Raises:
            ConfigError: if ``timeout_ms`` is not a finite number of at least 0; nothing is closed.
            WrongEventLoopError: if the consumer was started in another event loop or process.
        """
        await self._lifecycle.close(timeout_ms)

    async def __aenter__(self) -> Self:
        """Start, as :meth:`start` does."""
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close, as :meth:`close` does."""
        await self.close()

    def __del__(self) -> None:
        if "_lifecycle" in self.__dict__:  # the settings were valid
            self._lifecycle.runtime.dropped(self, self._lifecycle, self._lifecycle.loss())

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[K_co, V_co]]:
        return stream_of(self, self._ready, Consumer.__anext__)

    async def __anext__(self) -> ConsumerRecord[K_co, V_co]:
        if self._ready:  # the fast path: no more than this for most records
            return self._ready.popleft()
        return await self._records.getone(None)

    async def getone(
        self,
        timeout_ms: float | None = None,
        timeout: None = None,  # a usual mistake
    ) -> ConsumerRecord[K_co, V_co]:
        """Return the next record.

        Args:
            timeout_ms: the timeout; None waits forever, also during transient errors (``state``).

        Raises:
            KafkaTimeoutError: if there was no record in time; the cause is the last error, if any.
            DeserializationError, CorruptRecordError: if the record can't be read; ``seek`` past it.
            NoOffsetError, OffsetOutOfRangeError, LogTruncationError: if a partition has no valid
                position and ``auto_offset_reset`` is "none".
            BrokerError, AuthenticationError: if a request is not authorized, or refused for another
                reason that a retry does not cure; raised once for each failure.
            WakeupError: if ``wakeup`` was called.
            ConcurrentUseError: if another task waits in a call of this consumer.
            ConsumerClosedError: if the consumer is closed.
            ConsumerStateError: if it is not started, or nothing is subscribed or assigned.
        """
        if timeout is not None:
            raise refused_argument(Consumer.getone, "timeout")
        if self._ready:
            return self._ready.popleft()
        return await self._records.getone(timeout_ms)

    async def getmany(
        self, max_records: int | None = None, timeout_ms: float | None = None
    ) -> Sequence[ConsumerRecord[K_co, V_co]]:
        """Return the next records as soon as any are available, as an immutable sequence.

        Args:
            max_records: the maximum number of records to return; ``max_poll_records`` by default.
            timeout_ms: how long to wait for the first record, after which the sequence is empty;
                None waits forever.

        Raises:
            ConfigError: if ``max_records`` is below 1, or an argument is not a number.
            KafkaError: as in :meth:`getone`, except for KafkaTimeoutError.
        """
        return await self._records.getmany(max_records, timeout_ms)

    async def getarrow(
        self, max_records: int | None = None, timeout_ms: float | None = None
    ) -> pa.Table:
        """Return fetched records as an Arrow table, as soon as any are available. Deserializers of
        ``aioprod.schema_registry`` return typed columns, of one topic per call.

        Args:
            max_records: take no batch, or record of a small one, after this number or about 16 MiB.
            timeout_ms: as in :meth:`getmany`; None waits forever.

        Raises:
            ConfigError: without pyarrow; with interceptors or other deserializers.
            KafkaError: as in :meth:`getmany`.
        """
        return await self._records.get_arrow(max_records, timeout_ms)

    def wakeup(self) -> None:
        """Interrupt the call that waits for records, or the next one, with WakeupError.

        Any task of the event loop may call it. ``close`` and a running rebalance listener are not
        interrupted: WakeupError is raised after the listener, or by the next call if it raises.
        """
        self._guard.wakeup()

    def subscribe(
        self,
        topics: Iterable[str] | str = (),
        *,
        pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics, or all whose full name matches ``pattern``, instead of earlier ones.

        A pattern is Python's, or a :class:`SubscriptionPattern` for the broker. With ``group_id``
        the members of the group share the partitions; without it, all are read. The change takes
        effect in the next call for records.

        Raises:
            ConsumerStateError: if partitions are assigned, or topics are subscribed in the other
                way; call ``unsubscribe`` first.
            ConfigError: if there are neither topics nor a pattern, or both, or one is invalid.
        """
        self._subscribing.subscribe(topics, pattern, listener)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without a group. Those that were assigned before keep
        their positions.

        Raises:
            ConsumerStateError: if topics are subscribed; call ``unsubscribe`` first.
            ConfigError: if one is not a TopicPartition.
        """
        self._subscribing.assign(partitions)

    async def unsubscribe(self) -> None:
        """Read nothing, and leave the group, within ``default_api_timeout_ms``.

        If the listener raises, this call raises its error after that.
        """
        await self._subscribing.unsubscribe()

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics; with a pattern those that match so far."""
        return self._subscription.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that are read now."""
        return frozenset(self._subscription.partitions)

    def pause(self, *partitions: TopicPartition, reason: str = "") -> None:
        """Pause partitions until ``resume``; fetched records are kept. If they stall, the log has
        ``reason``.

        Raises:
            ConsumerStateError: if one is not assigned.
        """
        self._subscribing.pause(partitions, reason)

    def resume(self, *partitions: TopicPartition) -> None:
        """Read paused partitions again.

        ConsumerStateError: if one is not assigned.
        """
        self._subscribing.resume(partitions)

    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        return frozenset(self._subscription.paused())

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Continue an assigned partition at ``offset``.

        Raises:
            ConsumerStateError: if it is not assigned.
            ConfigError: if the offset is not a whole number of at least 0.
        """
        self._positions.seek(partition, offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue these, or all assigned partitions, at their first offset.

        Raises:
            ConsumerStateError: if one is not assigned.
            KafkaTimeoutError: if the offset is unknown after ``default_api_timeout_ms``; the lookup
                continues.
        """
        await self._positions.seek_by(partitions, EARLIEST)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue these, or all assigned partitions, at their end: only new records are read.
        Raise KafkaError after ``default_api_timeout_ms``, as :meth:`seek_to_beginning`.
        """
        await self._positions.seek_by(partitions, LATEST)

    async def seek_to_committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Continue these, or all assigned partitions, at the group's committed offsets, and return
        those; partitions without one keep their position.

        Raises:
            ConsumerStateError: if one is not assigned, or there is no group.
            KafkaError: if the offsets are unknown after ``default_api_timeout_ms``.
        """
        return await self._positions.seek_to_committed(partitions)

    async def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """Return the offset of the next record of an assigned partition that the application gets;
        look it up if it is unknown.

        Args:
            timeout_ms: the timeout of the lookup; ``default_api_timeout_ms`` by default.

        Raises:
            ConsumerStateError: if it is not assigned.
            NoOffsetError, OffsetOutOfRangeError, LogTruncationError: if there is no such offset and
                ``auto_offset_reset`` is "none".
            KafkaTimeoutError: if it is unknown after the timeout.
        """
        return await self._positions.position(partition, timeout_ms)

    async def commit(self, offsets: Offsets | None = None, timeout_ms: float | None = None) -> None:
        """Commit positions to the group, and wait until the coordinator has acknowledged them.

        Args:
            offsets: the offset of the next record to read, by partition; the current positions of
                all assigned partitions by default.
            timeout_ms: the limit; ``default_api_timeout_ms`` by default.

        Raises:
            CommitFailedError: if another member owns the partitions.
            ConsumerStateError: if there is no group.
            KafkaError: if the coordinator refuses, or does not respond in time.
        """
        await self._commits.commit(offsets, timeout_ms)

    def commit_async(self, offsets: Offsets | None = None) -> Awaitable[None]:
        """Commit in the background, in the order of the calls, each within
        ``default_api_timeout_ms``; calls during a commit go into the next one.

        Await the result for the outcome, or ignore it; errors are those of :meth:`commit`.
        """
        return self._commits.commit_async(offsets)

    async def committed(
        self, *partitions: TopicPartition, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets of these, or of all assigned partitions; None for a
        partition without one. By default within ``default_api_timeout_ms``, as :meth:`commit`.
        """
        return await self._commits.committed(partitions, timeout_ms)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this member for ``Producer.send_offsets_to_transaction``; it needs a group."""
        return self._commits.group_metadata()

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after a time (milliseconds since 1970) in each partition;
        None if all records are earlier.

        Args:
            timeout_ms: the limit; ``default_api_timeout_ms`` by default.

        Raises:
            ConfigError: if a timestamp is not a whole number of at least 0.
            KafkaTimeoutError: if a broker does not answer in time.
            BrokerError: if reading a partition is not authorized.
        """
        return await self._lookups.offsets_for_times(timestamps, timeout_ms)

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return each partition's first offset, within ``default_api_timeout_ms`` by default."""
        return await self._lookups.beginning_offsets(partitions, timeout_ms)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset of the next record of each partition; with ``read_committed`` the last
        stable offset. By default within ``default_api_timeout_ms``.
        """
        return await self._lookups.end_offsets(partitions, timeout_ms)

    async def partitions_for_topic(
        self, topic: str, timeout_ms: float | None = None
    ) -> frozenset[int]:
        """Return the numbers of a topic's partitions, within ``default_api_timeout_ms`` by default;
        none if the topic does not exist.
        """
        return await self._lookups.partitions_for_topic(topic, timeout_ms)

    async def topics(self, timeout_ms: float | None = None) -> frozenset[str]:
        """Return the names of all topics, within ``default_api_timeout_ms`` by default."""
        return await self._lookups.topics(timeout_ms)

    @property
    def state(self) -> ConsumerState:
        """The current state of the consumer, for health checks. Any task may read it."""
        return self._health.state

    def lag(self, partition: TopicPartition) -> int | None:
        """Return the number of offsets between the position and the end of an assigned partition,
        as of its last fetch; None before the first (KIP-695).
        """
        return self._metrics.lag(partition)

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the high watermark, as of the last fetch; None before the first."""
        return self._metrics.highwater(partition)

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the first open transaction's offset, or the high watermark; None if unknown."""
        return self._metrics.last_stable_offset(partition)

    def metrics(self) -> Mapping[str, float]:
        """Return the current metrics, by Kafka's names; see docs/metrics.md."""
        return self._metrics.metrics()

    async def client_instance_id(self, timeout_ms: float | None = None) -> uuid.UUID:
        """See :meth:`aioprod.Producer.client_instance_id`; the limit is ``request_timeout_ms``."""
        return await self._lifecycle.runtime.client_instance_id(timeout_ms)

    def metrics_by_topic(self) -> Mapping[str, Mapping[str, float]]:
        """Return the metrics of each topic."""
        return self._metrics.metrics_by_topic()
