"""The public processors of consumer groups: of single records and of batches."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, Unpack, overload

from aioprod import (
    ConfigError,
    ConsumerSettings,
    ConsumerStateError,
    TopicPartition,
)
from aioprod.config.checks import in_range
from aioprod.misuse import names_cures
from aioprod.processing.base_runner import Stage
from aioprod.processing.clients import make_admin, make_consumer, make_producer
from aioprod.processing.config import ProcessorConfig, ProcessorSettings, split
from aioprod.processing.guarantees import AtLeastOnce, AtMostOnce, Guarantee
from aioprod.processing.health import ProcessorState
from aioprod.processing.inbox.guarantee import ExactlyOnceInDatabase
from aioprod.processing.lifetime import (
    ProcessorLife,
    check_handler,
    checked_deserializers,
    checked_topics,
)
from aioprod.processing.observers import ProcessorMetrics
from aioprod.processing.records import AnyHandler, BatchHandler, Handler, HandlerCalls
from aioprod.processing.runner import Runner
from aioprod.processing.scheduling import Order, OrderedScheduler
from aioprod.processing.transactions import ExactlyOnce
from aioprod.processing.workers import Workers
from aioprod.public_module import set_module
from aioprod.serializing import AnyDeserializer, K, Reads, V
from aioprod.types import K_co, V_co

_MOST_POLL_RECORDS = 500
_FAILING_TRANSACTIONS_S = 60.0
_FAILING_DATABASE_S = 60.0


@names_cures(shown="Processor")
class ProcessorBase(ProcessorLife):
    """The common parts of both kinds of processors."""

    config: ProcessorConfig
    _runner: Runner

    def _build(
        self,
        handler: AnyHandler,
        topics: tuple[str, ...],
        key_deserializer: AnyDeserializer | None,
        value_deserializer: AnyDeserializer | None,
        settings: ProcessorSettings,
        batch_records: int | None = None,
    ) -> None:
        check_handler(handler)
        deserializers = checked_deserializers(key_deserializer, value_deserializer)
        config, shared = split(ProcessorConfig, settings, ConsumerSettings)
        named = checked_topics(topics, config)
        self.config = config
        rng = random.Random()
        self._consumer = make_consumer(
            config, shared, rng, min(_MOST_POLL_RECORDS, config.max_pending_records // 2)
        )
        if config.drain_timeout_ms >= self._consumer.config.max_poll_interval_ms:
            raise ConfigError(
                f"drain_timeout_ms={config.drain_timeout_ms}: must be below max_poll_interval_ms="
                f"{self._consumer.config.max_poll_interval_ms}, after which other members "
                "get the partitions"
            )
        self._producer = make_producer(config, shared, rng)
        scheduler = OrderedScheduler(
            Order(config.order), one_lane=config.is_exactly_once or config.is_in_database
        )
        metrics = ProcessorMetrics(config.observers)
        self._runner = runner = Runner(
            config,
            named,
            self._consumer,
            self._producer,
            scheduler,
            (*deserializers, metrics),
        )
        if config.is_in_database:
            in_database = self._make_inbox(metrics, shared)
            handler = in_database.calls(handler)
            guarantee: Guarantee = in_database
        else:
            guarantee = self._make_guarantee(metrics)
        workers = Workers(
            config,
            HandlerCalls(config, handler, batch_records, deserializers),
            scheduler,
            guarantee,
            self._producer,
            metrics,
            runner.changed,
            runner.fail,
        )
        runner.connect(workers, guarantee)
        self._connect(self._consumer.config.client_id, scheduler, metrics, workers)

    def _make_guarantee(self, metrics: ProcessorMetrics) -> Guarantee:
        config, consumer, producer = self.config, self._consumer, self._producer
        interval_s = (config.commit_interval_ms or 0) / 1000
        if config.guarantee == "at_most_once":
            return AtMostOnce(consumer, producer, metrics)
        if config.guarantee == "at_least_once":
            return AtLeastOnce(consumer, producer, metrics, interval_s)
        return ExactlyOnce(
            consumer,
            producer,
            metrics,
            interval_s,
            max(1, config.max_pending_records // 4),
            _FAILING_TRANSACTIONS_S,
            self._runner.changed,
            self._runner.fail,
        )

    def _make_inbox(
        self, metrics: ProcessorMetrics, shared: Mapping[str, Any]
    ) -> ExactlyOnceInDatabase:
        config = self.config
        assert config.inbox is not None
        return ExactlyOnceInDatabase(
            (self._consumer, self._producer, make_admin(shared)),
            metrics,
            (config.commit_interval_ms or 0) / 1000,
            config.inbox,
            config.group_id,
            config.concurrency,
            _FAILING_DATABASE_S,
            self._runner.fail,
        )

    # -- state -------------------------------------------------------------------------------------

    def _running_state(self, polls: bool, limit_s: float) -> ProcessorState:
        return self._reading_state(self._consumer.state, self._runner.joined, polls, limit_s)

    # -- metrics -----------------------------------------------------------------------------------

    def metrics(self) -> Mapping[str, float]:
        """Return counts since the start, and current gauges; see docs/processing.md."""
        lags = self.lag().values()
        return {
            **self._common_metrics(),
            "records-lag-max": max(lags, default=0),
            "assigned-partitions": len(self._runner.partitions),
        }

    def metrics_by_partition(self) -> Mapping[TopicPartition, Mapping[str, float]]:
        """Return ``records-in-flight`` (in handlers), ``records-pending`` (read and not done) and
        ``records-lag`` of each assigned partition. The lag is missing before the first fetch.
        """
        lags = self.lag()
        return {
            tp: {
                "records-in-flight": float(partition.active),
                "records-pending": float(partition.completed.incomplete),
                **({"records-lag": float(lags[tp])} if tp in lags else {}),
            }
            for tp, partition in self._runner.partitions.copy().items()
        }

    def lag(self) -> Mapping[TopicPartition, int]:
        """Return the number of offsets between the position to commit and the end of each assigned
        partition, as of its last fetch. A partition without a fetch is left out.
        """
        if self._runner.stage not in (Stage.RUNNING, Stage.STOPPING):
            return {}
        lags = {}
        for tp, partition in self._runner.partitions.copy().items():
            try:
                first, end = partition.completed.first_incomplete, self._consumer.highwater(tp)
                if end is not None:
                    left = max(0, end - first) if first is not None else self._consumer.lag(tp)
                    lags[tp] = left or 0
            except (ConsumerStateError, IndexError):
                continue  # revoked meanwhile, as this may run in another thread
        return lags


@set_module("aioprod.processing")
class Processor(ProcessorBase, Generic[K_co, V_co]):
    """Calls a coroutine for each record of topics, many at a time, and commits processed records.

    Use it as ``await processor.run()`` in a worker, as ``async with processor:`` in another
    program, or as the lifespan of a FastAPI application. It creates its own consumer and producer.
    docs/processing.md states the guarantees.

    Args:
        handler: called with a :class:`Record`. It returns None, or records to send. If it raises an
            error, the record is retried.
        topics: the topics to read.
        key_deserializer, value_deserializer: as in :class:`aioprod.Consumer`; without them keys and
            values are bytes. If one fails, the record is sent to the dead-letter topic unchanged.
        settings: the fields of :class:`ProcessorConfig`; ``group_id`` is required. Settings of all
            clients are accepted, too, such as ``bootstrap_servers`` and security.

    Raises:
        ConfigError: if a setting is unknown or invalid, or contradicts another.
    """

    @overload
    def __init__(
        self: Processor[bytes | None, bytes | None],
        handler: Handler[bytes | None, bytes | None],
        *topics: str,
        key_deserializer: None = None,
        value_deserializer: None = None,
        **settings: Unpack[ProcessorSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: Processor[bytes | None, V],
        handler: Handler[bytes | None, V],
        *topics: str,
        key_deserializer: None = None,
        value_deserializer: Reads[V],
        **settings: Unpack[ProcessorSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: Processor[K, bytes | None],
        handler: Handler[K, bytes | None],
        *topics: str,
        key_deserializer: Reads[K],
        value_deserializer: None = None,
        **settings: Unpack[ProcessorSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: Processor[K, V],
        handler: Handler[K, V],
        *topics: str,
        key_deserializer: Reads[K],
        value_deserializer: Reads[V],
        **settings: Unpack[ProcessorSettings],
    ) -> None: ...
    def __init__(
        self,
        handler: Callable[[Any], Awaitable[Any]],
        *topics: str,
        key_deserializer: AnyDeserializer | None = None,
        value_deserializer: AnyDeserializer | None = None,
        **settings: Unpack[ProcessorSettings],
    ) -> None:
        self._build(handler, topics, key_deserializer, value_deserializer, settings)


@set_module("aioprod.processing")
class BatchProcessor(ProcessorBase, Generic[K_co, V_co]):
    """A :class:`Processor` whose handler is called with a list of records.

    A call gets the available records, at least one and at most ``max_batch_records``, of several
    keys and partitions; records of a key are in order. If it fails, each of its records is handled
    again by itself, so that only the failing record is retried. With ``exactly_once``, a batch has
    records of one partition, and ``order="partition"`` is required.

    Args:
        handler: called with a list of :class:`Record`.
        max_batch_records: the maximum number of records in a call.

    Raises:
        ConfigError: as in :class:`Processor`.
    """

    @overload
    def __init__(
        self: BatchProcessor[bytes | None, bytes | None],
        handler: BatchHandler[bytes | None, bytes | None],
        *topics: str,
        max_batch_records: int = 100,
        key_deserializer: None = None,
        value_deserializer: None = None,
        **settings: Unpack[ProcessorSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: BatchProcessor[bytes | None, V],
        handler: BatchHandler[bytes | None, V],
        *topics: str,
        max_batch_records: int = 100,
        key_deserializer: None = None,
        value_deserializer: Reads[V],
        **settings: Unpack[ProcessorSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: BatchProcessor[K, bytes | None],
        handler: BatchHandler[K, bytes | None],
        *topics: str,
        max_batch_records: int = 100,
        key_deserializer: Reads[K],
        value_deserializer: None = None,
        **settings: Unpack[ProcessorSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: BatchProcessor[K, V],
        handler: BatchHandler[K, V],
        *topics: str,
        max_batch_records: int = 100,
        key_deserializer: Reads[K],
        value_deserializer: Reads[V],
        **settings: Unpack[ProcessorSettings],
    ) -> None: ...
    def __init__(
        self,
        handler: Callable[[Any], Awaitable[Any]],
        *topics: str,
        max_batch_records: int = 100,
        key_deserializer: AnyDeserializer | None = None,
        value_deserializer: AnyDeserializer | None = None,
        **settings: Unpack[ProcessorSettings],
    ) -> None:
        in_range(1, 100_000)("max_batch_records", max_batch_records)
        self._build(
            handler, topics, key_deserializer, value_deserializer, settings, max_batch_records
        )
        if self.config.is_exactly_once and self.config.order != "partition":
            raise ConfigError(
                f"order={str(self.config.order)!r} with batches and guarantee='exactly_once': must "
                "be 'partition', so that a transaction contains all records of a batch or none"
            )
