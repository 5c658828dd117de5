"""The public processors of share groups: of single records and of batches."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Generic, Unpack, overload

from aioprod import (
    Admin,
    ConfigError,
    ConsumerStatus,
    KafkaError,
    ShareConsumerSettings,
    TopicPartition,
)
from aioprod.admin import ConfigResource
from aioprod.config.checks import in_range
from aioprod.misuse import names_cures
from aioprod.processing.clients import make_producer, make_share_consumer
from aioprod.processing.config import ProcessorSettings, split
from aioprod.processing.health import ProcessorState, ProcessorStatus
from aioprod.processing.lifetime import (
    ProcessorLife,
    check_handler,
    checked_deserializers,
    checked_topics,
)
from aioprod.processing.observers import ProcessorMetrics
from aioprod.processing.records import AnyHandler, BatchHandler, Handler, HandlerCalls
from aioprod.processing.scheduling import Order, OrderedScheduler
from aioprod.processing.share_config import (
    SURE_DELIVERIES,
    ShareProcessorConfig,
    ShareProcessorSettings,
)
from aioprod.processing.share_guarantee import TOTALS, ShareGuarantee
from aioprod.processing.share_runner import ShareRunner
from aioprod.processing.workers import Workers
from aioprod.public_module import set_module
from aioprod.serializing import AnyDeserializer, K, Reads, V
from aioprod.types import K_co, V_co

_DELIVERIES = "share.delivery.count.limit"


@names_cures(shown="ShareProcessor")
class ShareProcessorBase(ProcessorLife):
    """The common parts of processors of records and of batches."""

    config: ShareProcessorConfig
    _runner: ShareRunner

    def _build(
        self,
        handler: AnyHandler,
        topics: tuple[str, ...],
        key_deserializer: AnyDeserializer | None,
        value_deserializer: AnyDeserializer | None,
        settings: ShareProcessorSettings,
        batch_records: int | None = None,
    ) -> None:
        check_handler(handler)
        deserializers = checked_deserializers(key_deserializer, value_deserializer)
        _check_kind(settings)
        config, shared = split(ShareProcessorConfig, settings, ShareConsumerSettings)
        named = checked_topics(topics, config)
        self.config = config
        rng = random.Random()
        self._consumer = consumer = make_share_consumer(config, shared, rng, self._on_acknowledged)
        producer = make_producer(config, shared, rng)
        scheduler = OrderedScheduler(Order.NONE)
        metrics = ProcessorMetrics(config.observers)
        wanted = config.max_deliveries
        check = partial(_check_deliveries, config.group_id, wanted, shared)
        self._runner = runner = ShareRunner(
            config,
            named,
            consumer,
            producer,
            scheduler,
            (*deserializers, metrics),
            check if wanted > SURE_DELIVERIES else None,
        )
        self._completion = ShareGuarantee(
            producer, metrics, wanted, config.reject_failed, consumer.acknowledge
        )
        workers = Workers(
            config,
            HandlerCalls(config, handler, batch_records, deserializers),
            scheduler,
            self._completion,
            producer,
            metrics,
            runner.changed,
            runner.fail,
        )
        runner.connect(workers, self._completion)
        self._connect(consumer.config.client_id, scheduler, metrics, workers)

    def _on_acknowledged(
        self, offsets: Mapping[TopicPartition, frozenset[int]], error: KafkaError | None
    ) -> None:
        self._completion.acknowledged(offsets, error)

    def _running_state(self, polls: bool, limit_s: float) -> ProcessorState:
        busy_s = self._workers.longest_call_s()
        if busy_s > limit_s:
            error = KafkaError(
                f"the handler of {self._workers.longest_call()} has run for {busy_s:.0f} s"
            )
            return ProcessorState(ProcessorStatus.STALLED, False, False, error)
        reading = self._consumer.state
        joined = reading.status is not ConsumerStatus.REBALANCING
        return self._reading_state(reading, joined, polls, limit_s)

    def metrics(self) -> Mapping[str, float]:
        """Return counts since the start, and current gauges; see docs/processing.md."""
        return {
            **self._common_metrics(),
            **{name: float(self._metrics.totals[name]) for name in TOTALS},
            "records-pending": float(self._completion.pending),
        }

    def metrics_by_partition(self) -> Mapping[TopicPartition, Mapping[str, float]]:
        """Return ``records-in-flight`` (in handlers) by partition."""
        return {
            tp: {"records-in-flight": float(partition.active)}
            for tp, partition in self._runner.partitions.copy().items()
        }


@set_module("aioprod.processing")
class ShareProcessor(ShareProcessorBase, Generic[K_co, V_co]):
    """Calls a coroutine for each record of topics as a member of a share group (KIP-932, Kafka
    4.2), many at a time, and acknowledges each record individually.

    The members share the records like workers of a queue: without order, and there may be more
    members than partitions. If the handler returns, the record is accepted. If it raises an error,
    the record is retried, then released to any member, and finally sent to the dead-letter topic or
    rejected. Each record is handled at least once. Use it like :class:`Processor`;
    docs/processing.md explains it.

    Args:
        handler: called with a :class:`Record`. It returns None, or records to send, which are
            acknowledged before the record is accepted. If it raises an error, the record is
            retried.
        topics: the topics to read.
        key_deserializer, value_deserializer: as in :class:`aioprod.ShareConsumer`; without them
            keys and values are bytes. If one fails, the record goes to the dead-letter topic with
            its bytes, or is rejected.
        settings: the fields of :class:`ShareProcessorConfig`; ``group_id``, and either
            ``dead_letter_topic`` or ``reject_failed``, are required. Settings that all clients
            share, such as ``bootstrap_servers`` and security, are accepted, too.

    Raises:
        ConfigError: if a setting is unknown or invalid, or contradicts another.
    """

    @overload
    def __init__(
        self: ShareProcessor[bytes | None, bytes | None],
        handler: Handler[bytes | None, bytes | None],
        *topics: str,
        key_deserializer: None = None,
        value_deserializer: None = None,
        **settings: Unpack[ShareProcessorSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: ShareProcessor[bytes | None, V],
        handler: Handler[bytes | None, V],
        *topics: str,
        key_deserializer: None = None,
        value_deserializer: Reads[V],
        **settings: Unpack[ShareProcessorSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: ShareProcessor[K, bytes | None],
        handler: Handler[K, bytes | None],
        *topics: str,
        key_deserializer: Reads[K],
        value_deserializer: None = None,
        **settings: Unpack[ShareProcessorSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: ShareProcessor[K, V],
        handler: Handler[K, V],
        *topics: str,
        key_deserializer: Reads[K],
        value_deserializer: Reads[V],
        **settings: Unpack[ShareProcessorSettings],
    ) -> None: ...
    def __init__(
        self,
        handler: Callable[[Any], Awaitable[Any]],
        *topics: str,
        key_deserializer: AnyDeserializer | None = None,
        value_deserializer: AnyDeserializer | None = None,
        **settings: Unpack[ShareProcessorSettings],
    ) -> None:
        self._build(handler, topics, key_deserializer, value_deserializer, settings)


@set_module("aioprod.processing")
class ShareBatchProcessor(ShareProcessorBase, Generic[K_co, V_co]):
    """A :class:`ShareProcessor` whose handler is called with a list of records.

    A call gets the available records, at least one and at most ``max_batch_records``. If it fails,
    each of its records is handled again by itself, so that only the failing record is retried or
    forwarded. By default ``max_pending_records`` is twice ``max_batch_records``, or twice
    ``concurrency`` if that is more.

    Args:
        handler: called with a list of :class:`Record`.
        max_batch_records: the maximum number of records in a call.

    Raises:
        ConfigError: as in :class:`ShareProcessor`; and if ``max_pending_records`` is below
            ``max_batch_records``.
    """

    @overload
    def __init__(
        self: ShareBatchProcessor[bytes | None, bytes | None],
        handler: BatchHandler[bytes | None, bytes | None],
        *topics: str,
        max_batch_records: int = 100,
        key_deserializer: None = None,
        value_deserializer: None = None,
        **settings: Unpack[ShareProcessorSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: ShareBatchProcessor[bytes | None, V],
        handler: BatchHandler[bytes | None, V],
        *topics: str,
        max_batch_records: int = 100,
        key_deserializer: None = None,
        value_deserializer: Reads[V],
        **settings: Unpack[ShareProcessorSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: ShareBatchProcessor[K, bytes | None],
        handler: BatchHandler[K, bytes | None],
        *topics: str,
        max_batch_records: int = 100,
        key_deserializer: Reads[K],
        value_deserializer: None = None,
        **settings: Unpack[ShareProcessorSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: ShareBatchProcessor[K, V],
        handler: BatchHandler[K, V],
        *topics: str,
        max_batch_records: int = 100,
        key_deserializer: Reads[K],
        value_deserializer: Reads[V],
        **settings: Unpack[ShareProcessorSettings],
    ) -> None: ...
    def __init__(
        self,
        handler: Callable[[Any], Awaitable[Any]],
        *topics: str,
        max_batch_records: int = 100,
        key_deserializer: AnyDeserializer | None = None,
        value_deserializer: AnyDeserializer | None = None,
        **settings: Unpack[ShareProcessorSettings],
    ) -> None:
        in_range(1, 100_000)("max_batch_records", max_batch_records)
        if settings.get("max_pending_records") is None:
            concurrency = settings.get("concurrency", 16)
            if isinstance(concurrency, int):
                settings["max_pending_records"] = 2 * max(concurrency, max_batch_records)
        self._build(
            handler, topics, key_deserializer, value_deserializer, settings, max_batch_records
        )
        if self.config.most_pending < max_batch_records:
            raise ConfigError(
                f"max_batch_records={max_batch_records}: must be at most max_pending_records="
                f"{self.config.most_pending}"
            )


def _check_kind(settings: Mapping[str, Any]) -> None:
    """Raise ConfigError if there are settings of processors of consumer groups."""
    only = ProcessorSettings.__annotations__.keys() - ShareProcessorSettings.__annotations__.keys()
    for name in sorted(only & settings.keys()):
        raise ConfigError(
            f"{name}={settings[name]!r}: not supported, as a share group has no order, no "
            "positions and no transactions; each record is handled at least once. Processor has "
            "this setting"
        )


async def _check_deliveries(group_id: str, wanted: int, shared: dict[str, Any]) -> None:
    """Check a group's delivery limit, beyond which the broker drops a released record.

    Args:
        wanted: the number of deliveries of a record.
        shared: the settings that all clients share.

    Raises:
        ConfigError: if the group's limit is lower, or the broker does not return it.
        KafkaError: if it can't be read, such as GROUP_AUTHORIZATION_FAILED.
    """
    servers = shared.get("bootstrap_servers", "localhost:9092")
    settings = {name: value for name, value in shared.items() if name != "bootstrap_servers"}
    async with Admin(servers, **settings) as admin:
        configs = await admin.describe_configs(ConfigResource.group(group_id), names=[_DELIVERIES])
    limit = configs[_DELIVERIES].value if _DELIVERIES in configs else None
    if limit is None:
        raise ConfigError(
            f"max_deliveries={wanted}: the broker does not return {_DELIVERIES} of group "
            f"{group_id!r}; only 2 are guaranteed"
        )
    if int(limit) < wanted:
        raise ConfigError(
            f"max_deliveries={wanted}: the broker drops a record of group {group_id!r} that was "
            f"delivered {_DELIVERIES}={limit} times; raise that, or lower max_deliveries"
        )
