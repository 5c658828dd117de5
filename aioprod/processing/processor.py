"""The public processors, of single records and of batches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeAlias, TypeVar, Unpack, overload

from aioprod import ConfigError, Deserializer
from aioprod.config.checks import in_range
from aioprod.processing.config import ProcessorSettings
from aioprod.processing.group_processor import ProcessorBase
from aioprod.processing.records import BatchHandler, Handler
from aioprod.processing.scheduling import Order
from aioprod.public_module import set_module
from aioprod.types import Headers

K = TypeVar("K")
V = TypeVar("V")

Reads: TypeAlias = Callable[[str, Headers, bytes | None], K]
"""A deserializer that returns K."""


@set_module("aioprod.processing")
class Processor(ProcessorBase, Generic[K, V]):
    """Calls a coroutine for each record of topics, many at a time, and commits finished records.

    Use it as ``await processor.run()`` in a worker, as ``async with processor:`` in another
    program, or as the lifespan of a FastAPI application. It creates its own consumer and producer.
    docs/processing.md states the guarantees.

    Args:
        handler: called with a :class:`Record`. It returns None, or records to send. If it raises,
            the retries apply.
        topics: the topics to read.
        key_deserializer, value_deserializer: as in :class:`aioprod.Consumer`; without them keys and
            values are bytes. If one fails, the record goes to the dead-letter topic with its bytes.
        settings: the fields of :class:`ProcessorConfig`; ``group_id`` is required. Settings that
            all clients share, such as ``bootstrap_servers`` and security, are accepted, too.

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
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        **settings: Unpack[ProcessorSettings],
    ) -> None:
        self._build(handler, topics, key_deserializer, value_deserializer, settings)


@set_module("aioprod.processing")
class BatchProcessor(ProcessorBase, Generic[K, V]):
    """A :class:`Processor` whose handler takes a list of records.

    A call gets the available records, at least one and at most ``max_batch_records``, of several
    keys and partitions; those of a key are in order. If it fails, its records are handled again one
    by one, so that only the failing record is retried. With ``exactly_once`` a
    batch has records of one partition, and ``order="partition"`` is required.

    Args:
        handler: called with a list of :class:`Record`.
        max_batch_records: the most records of a call.

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
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        **settings: Unpack[ProcessorSettings],
    ) -> None:
        in_range(1, 100_000)("max_batch_records", max_batch_records)
        self._build(
            handler, topics, key_deserializer, value_deserializer, settings, max_batch_records
        )
        if self.config.is_exactly_once and self.config.order != Order.PARTITION:
            raise ConfigError(
                f"order={str(self.config.order)!r} with batches and guarantee='exactly_once': must "
                "be 'partition', so that a transaction has all records of a batch, or none"
            )
