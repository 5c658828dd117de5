"""The public share consumer. It has no state and delegates to the collaborators that
:mod:`aioprod.consumer.share.core` builds.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Generic, Self, Unpack, cast, overload

from aioprod.arguments import check_sources
from aioprod.config import keywords
from aioprod.config.checks import check_callable, check_names
from aioprod.config.redaction import hide_arguments
from aioprod.config.share_consumer import SHARE_CONSUMER, ShareConsumerConfig
from aioprod.consumer.graph import client_id
from aioprod.consumer.lifecycle import CLOSE_TIMEOUT_MS
from aioprod.consumer.share.core import ShareCore
from aioprod.consumer.share.outcomes import AcknowledgementCallback
from aioprod.consumer.state import ConsumerState
from aioprod.errors import KafkaError
from aioprod.misuse import SHARE_CONSUMER_OF_OTHERS, names_cures
from aioprod.public_module import Uncopyable, set_module
from aioprod.serializing import AnyDeserializer, K, Reads, V
from aioprod.types import AcknowledgeType, K_co, ShareRecord, TopicPartition, V_co


@names_cures(SHARE_CONSUMER_OF_OTHERS, unchecked=("acknowledge",))
@set_module("aioprod.consumer")
class ShareConsumer(Uncopyable, Generic[K_co, V_co]):
    """Reads records as a member of a share group (KIP-932, Kafka 4.2). The deserializers of a
    ``ShareConsumer[K, V]`` return K and V.

    The members of a share group share the records of a partition like workers of a queue. Each
    record is locked for one member. If the member does not acknowledge it before the lock times
    out, another member gets it; see docs/share-groups.md. ``async for`` and :meth:`getmany` return
    records.

    With ``share_acknowledgement_mode="implicit"``, the default, records are accepted by the next
    call for records, or by :meth:`commit`. With ``"explicit"`` the application calls
    :meth:`acknowledge` for each record before the next call for records; with
    ``max_lock_renewal_ms`` it may do that later.

    The constructor needs no event loop. A share consumer belongs to one task at a time: other tasks
    may call only :meth:`acknowledge`, :meth:`wakeup` and :meth:`close`. All times are in
    milliseconds and all sizes in bytes; names are Kafka's, with underscores.

    Args:
        bootstrap_servers: ``"host:port,host:port"`` or a list of these.
        topics: topics to subscribe to; or call ``subscribe`` later.
        acknowledgement_commit_callback: called with the offsets of acknowledged records by
            partition, and None if the broker has confirmed them, or else the error. Its errors are
            logged.
        rng: source of all random choices (jitter, the member's id).
        key_deserializer, value_deserializer: convert keys and values from bytes; without them,
            they are bytes, or None for a null.
        settings: the fields of :class:`aioprod.ShareConsumerConfig`; see docs/configuration.md.

    Raises:
        ConfigError: if a setting is unknown or invalid, or ``group_id`` is missing.
    """

    @overload
    def __init__(
        self: ShareConsumer[bytes | None, bytes | None],
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        topics: Iterable[str] | str = (),
        acknowledgement_commit_callback: AcknowledgementCallback | None = None,
        rng: random.Random | None = None,
        key_deserializer: None = None,
        value_deserializer: None = None,
        **settings: Unpack[keywords.ShareConsumerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: ShareConsumer[bytes | None, V],
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        topics: Iterable[str] | str = (),
        acknowledgement_commit_callback: AcknowledgementCallback | None = None,
        rng: random.Random | None = None,
        key_deserializer: None = None,
        value_deserializer: Reads[V],
        **settings: Unpack[keywords.ShareConsumerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: ShareConsumer[K, bytes | None],
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        topics: Iterable[str] | str = (),
        acknowledgement_commit_callback: AcknowledgementCallback | None = None,
        rng: random.Random | None = None,
        key_deserializer: Reads[K],
        value_deserializer: None = None,
        **settings: Unpack[keywords.ShareConsumerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: ShareConsumer[K, V],
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        topics: Iterable[str] | str = (),
        acknowledgement_commit_callback: AcknowledgementCallback | None = None,
        rng: random.Random | None = None,
        key_deserializer: Reads[K],
        value_deserializer: Reads[V],
        **settings: Unpack[keywords.ShareConsumerSettings],
    ) -> None: ...
    @hide_arguments
    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        topics: Iterable[str] | str = (),
        acknowledgement_commit_callback: AcknowledgementCallback | None = None,
        rng: random.Random | None = None,
        key_deserializer: AnyDeserializer | None = None,
        value_deserializer: AnyDeserializer | None = None,
        **settings: Unpack[keywords.ShareConsumerSettings],
    ) -> None:
        check_names(ShareConsumerConfig, settings)
        check_sources(None, rng)
        check_callable(
            "acknowledgement_commit_callback", acknowledgement_commit_callback, "offsets, error"
        )
        if settings.get("client_id") is None:
            settings["client_id"] = client_id(settings.get("group_id"))
        self.config: ShareConsumerConfig = ShareConsumerConfig(
            bootstrap_servers=cast("tuple[str, ...]", bootstrap_servers),
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            **settings,
        )
        self._core = ShareCore(self.config, rng or random.Random(), acknowledgement_commit_callback)
        if topics:
            self._core.topics.subscribe(topics)

    @classmethod
    @hide_arguments
    def from_config(cls, settings: Mapping[str, Any], *topics: str) -> Self:
        """Create a share consumer from Kafka's names and values, such as ``{"bootstrap.servers":
        "...", "group.id": "...", "share.acknowledgement.mode": "explicit"}``.

        Deserializers may be classes or import paths.

        Raises:
            ConfigError: as in the constructor; and if a setting exists in Java only, with the
                reason.
        """
        from aioprod.config.kafka_properties import client_arguments  # most pass arguments

        with client_arguments(
            SHARE_CONSUMER, settings, lambda given: client_id(given.get("group_id"))
        ) as arguments:
            return cls(topics=topics, **arguments)

    # -- start and close ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the cluster, within ``default_api_timeout_ms``. After a failure, you can call
        it again.

        A server that accepts a connection and then closes it is retried. The first call for records
        joins the group.

        Raises:
            BrokerConnectionError: if no bootstrap server answers; the message has each reason.
            KafkaTimeoutError: if a server accepts connections, but does not return the brokers of
                its cluster in time.
            AuthenticationError: if the broker refuses the credentials.
            ConsumerClosedError: if the consumer was closed before, or is closed during the call.
            WrongEventLoopError: if it was started in another event loop, or in another process.
        """
        await self._core.start()

    async def close(self, timeout_ms: float | None = CLOSE_TIMEOUT_MS) -> None:
        """Send the last acknowledgements, release all other records, leave the group, and close all
        connections, within ``timeout_ms``.

        As in Java, records that were returned and not acknowledged are released, also in implicit
        mode: call :meth:`commit` first to accept them. A call that waits in another task, and a
        ``start`` in progress, raise ConsumerClosedError. A second ``close`` waits for the first,
        and shortens it if its limit is earlier. A ``close`` that is cancelled closes at once: the
        broker then releases the records.

        Raises:
            ConfigError: if ``timeout_ms`` is not a finite number of at least 0; nothing is closed.
            WrongEventLoopError: if the consumer was started in another event loop or process.
        """
        await self._core.close(timeout_ms)

    async def __aenter__(self) -> Self:
        """Start, as :meth:`start` does."""
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close, as :meth:`close` does."""
        await self.close()

    def __del__(self) -> None:
        if "_core" in self.__dict__:  # the settings were valid
            self._core.runtime.dropped(self, self._core)

    # -- records -----------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ShareRecord[K_co, V_co]:
        return await self._core.records.next()

    async def getmany(
        self,
        max_records: int | None = None,
        timeout_ms: float | None = None,
        *,
        fetch: bool = True,
    ) -> list[ShareRecord[K_co, V_co]]:
        """Return the next records as soon as any are available. In implicit mode, accept the
        records that were returned before.

        Args:
            max_records: the maximum number of records to return; ``max_poll_records`` by default.
            timeout_ms: how long to wait for the first record, after which the list is empty; None
                waits forever, also during transient errors.
            fetch: whether to request further records. If False, only records that have arrived
                before are returned: a busy application keeps its membership by such calls.

        Raises:
            ConsumerStateError: if a record is not acknowledged in explicit mode (unless
                ``max_lock_renewal_ms`` is set), if the consumer is
                not started, or if nothing is subscribed.
            DeserializationError, CorruptRecordError: if the record can't be read. It is released;
                the next call returns the records after it.
            UnsupportedVersionError: if the cluster has no share groups, or not the
                ``share_acquire_mode``.
            BrokerError, AuthenticationError: if a request is not authorized, or refused for another
                reason that a retry does not cure; raised once for each failure.
            WakeupError: if ``wakeup`` was called.
            ConcurrentUseError: if another task waits in a call of this consumer.
            ConsumerClosedError: if the consumer is closed.
            ConfigError: if ``max_records`` is below 1, or an argument is not a number.
        """
        return await self._core.records.getmany(max_records, timeout_ms, fetch)

    def wakeup(self) -> None:
        """Interrupt the call that waits, or the next one, with WakeupError.

        Any task of the consumer's event loop may call it.
        """
        self._core.guard.wakeup()

    # -- topics ------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str] | str) -> None:
        """Read these topics, instead of earlier ones, together with the group's members.

        Records of other topics that were fetched and not returned are released.

        Raises:
            ConfigError: if a topic's name is invalid.
        """
        self._core.topics.subscribe(topics)

    async def unsubscribe(self) -> None:
        """Leave the group, within 5 seconds. Records that were returned can still be acknowledged;
        records that were fetched and not returned are released.
        """
        await self._core.topics.unsubscribe()

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics."""
        return self._core.assignment.topics

    # -- acknowledgements --------------------------------------------------------------------------

    def acknowledge(
        self, record: ShareRecord, kind: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """Acknowledge a record in explicit mode. Any task of the event loop may call it.

        The acknowledgement is sent with the next fetch, by :meth:`commit`, or after 100 ms. The
        outcome is that of :meth:`commit`, and goes to ``acknowledgement_commit_callback``. A record
        whose lock is renewed (RENEW) is still to be acknowledged, but not before the next call for
        records.

        Raises:
            ConsumerStateError: in implicit mode, or if the record is acknowledged already, or was
                not returned by this consumer.
            UnsupportedVersionError: for RENEW, if the broker is older than Kafka 4.2.
            ConfigError: if an argument has another type.
        """
        self._core.acknowledgements.acknowledge(record, kind)

    async def commit(
        self, timeout_ms: float | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Send all acknowledgements, and wait for their outcomes. In implicit mode, accept all
        records that were returned.

        Args:
            timeout_ms: the limit; ``default_api_timeout_ms`` by default.

        Returns:
            The outcomes since the last ``commit`` that has returned, also of acknowledgements that
            were sent without it: by partition None if the broker has confirmed all, or else the
                first
            error; some of the records may then be delivered again.

        Raises:
            KafkaTimeoutError: if there is no outcome in time. The client continues to send the
                acknowledgements, even if the call is cancelled.
            WakeupError, ConcurrentUseError, ConsumerClosedError, ConsumerStateError: as in
                :meth:`getmany`.
        """
        return await self._core.acknowledgements.commit(timeout_ms)

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """The time for which the broker locks records for this member, in milliseconds
        (``share.record.lock.duration.ms`` of the group); None before the first fetch.
        """
        return self._core.fetcher.lock_timeout_ms

    # -- state and metrics -------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerState:
        """The current state of the consumer, for health checks. Any task may read it."""
        return self._core.health.state

    def metrics(self) -> Mapping[str, float]:
        """Return the current metrics, by Kafka's names; see docs/metrics.md."""
        return self._core.metrics()

    def metrics_by_topic(self) -> Mapping[str, Mapping[str, float]]:
        """Return the metrics of each topic."""
        return self._core.metrics_by_topic()

    def metrics_by_partition(self) -> Mapping[TopicPartition, Mapping[str, float]]:
        """Return the metrics of each assigned partition."""
        return self._core.metrics_by_partition()

    async def client_instance_id(self, timeout_ms: float | None = None) -> uuid.UUID:
        """See :meth:`aioprod.Producer.client_instance_id`; any task may call it, and the limit is
        ``request_timeout_ms``.
        """
        return await self._core.runtime.client_instance_id(timeout_ms)
