"""``AIOKafkaProducer`` on :class:`aioprod.Producer`."""

from __future__ import annotations

import asyncio
import itertools
import random
import ssl
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Self

import aioprod
from aioprod.codecs import CODECS
from aioprod.compat.aiokafka.client import ClientView
from aioprod.compat.aiokafka.errors import IllegalOperation
from aioprod.compat.aiokafka.partitioner import DefaultPartitioner, PartitionerOfKafkaPython
from aioprod.compat.aiokafka.producer.futures import Futures, RecordFuture
from aioprod.compat.aiokafka.producer.message_accumulator import (
    BatchBuilder,
)
from aioprod.compat.aiokafka.settings import producer_settings, warn_deprecated
from aioprod.compat.aiokafka.structs import RecordMetadata, TopicPartition, check_offsets
from aioprod.compat.aiokafka.translation import aiokafka_errors, translated
from aioprod.public_module import Uncopyable

_missing = object()  # FastStream imports it
_DEFAULT_PARTITIONER = DefaultPartitioner()
_numbers = itertools.count(1)

Serialize = Callable[[Any], bytes | None]
Partition = Callable[[bytes | None, Sequence[int], Sequence[int]], int]
Headers = Sequence[tuple[str, bytes]]


class AIOKafkaProducer(Uncopyable):
    """aiokafka's producer, implemented on :class:`aioprod.Producer`.

    Settings, defaults and errors are aiokafka's. docs/aiokafka.md lists the differences.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | Iterable[str] = "localhost",
        client_id: str | None = None,
        metadata_max_age_ms: int = 300_000,
        request_timeout_ms: int = 40_000,
        api_version: str | None = None,
        acks: Any = _missing,
        key_serializer: Serialize | None = None,
        value_serializer: Serialize | None = None,
        compression_type: str | None = None,
        max_batch_size: int = 16_384,
        partitioner: Partition = _DEFAULT_PARTITIONER,
        max_request_size: int = 1_048_576,
        linger_ms: float = 0,
        retry_backoff_ms: int = 100,
        security_protocol: str = "PLAINTEXT",
        ssl_context: ssl.SSLContext | None = None,
        connections_max_idle_ms: int | None = 540_000,
        enable_idempotence: bool = False,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: Any = None,
    ) -> None:
        given = locals()
        warn_deprecated(loop, api_version)
        enable_idempotence = enable_idempotence or transactional_id is not None
        given["acks"] = _checked_acks(acks, enable_idempotence)
        given["enable_idempotence"] = enable_idempotence
        if compression_type is not None and not CODECS.get(compression_type):
            raise ValueError("Invalid compression type!")
        given["client_id"] = client_id or f"aiokafka-producer-{next(_numbers)}"
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._takes_bytes = key_serializer is value_serializer is None
        self._partitioner = (
            partitioner
            if callable(partitioner)
            else PartitionerOfKafkaPython(partitioner, max_batch_size)
        )
        self._hashes_keys = type(partitioner) is DefaultPartitioner  # as aioprod's default does
        self._max_batch_size = max_batch_size
        self._transactional_id = transactional_id
        self._futures = Futures(has_acks=given["acks"] != 0)
        self._in_transaction = False
        self._producer = producer = aioprod.Producer(**producer_settings(given))
        self._closed = False
        self.client: ClientView = ClientView(
            bootstrap_servers, given["client_id"], partial(_partitions_of, producer)
        )

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the cluster."""
        with aiokafka_errors():
            await self._producer.start()

    async def stop(self) -> None:
        """Deliver the accepted records, and close the connections."""
        self._closed = True
        with aiokafka_errors():
            await self._producer.stop()

    async def flush(self) -> None:
        """Wait until every accepted record has an outcome."""
        with aiokafka_errors():
            await self._producer.flush()

    def __del__(self, _warnings: Any = warnings) -> None:
        if self.__dict__.get("_closed") is False:  # else the settings were invalid
            _warnings.warn(f"Unclosed AIOKafkaProducer {self!r}", ResourceWarning, source=self)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    # -- records -----------------------------------------------------------------------------------

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions; wait for its metadata."""
        return await self.client._wait_on_metadata(topic)

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> RecordFuture:
        """Put a record into a batch, and return a future of its :class:`RecordMetadata`, or of None
        with ``acks=0``.
        """
        assert not (value is None and key is None), "give a key or a value"
        try:
            if self._producer.known_partitions(topic) is None:
                await self.client._wait_on_metadata(topic)
            given = key, value
            if not self._takes_bytes:
                key, value = self._serialize(key, value)
            if partition is not None or key is None or not self._hashes_keys:
                partition = self._partition(topic, partition, *given, key, value)
            delivery = await self._producer.send(
                topic, value, key, partition, timestamp_ms, headers or ()
            )
        except aioprod.KafkaError as error:
            raise translated(error) from error
        return self._futures.of(delivery)

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> RecordMetadata | Any:
        """Send a record, and wait until it is acknowledged."""
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    def create_batch(self) -> BatchBuilder:
        """Return an empty batch for :meth:`send_batch`."""
        return BatchBuilder(self._max_batch_size, self._serialize)

    async def send_batch(
        self, batch: BatchBuilder, topic: str, *, partition: int | None
    ) -> RecordFuture:
        """Send a batch to a partition, and return a future of the metadata of its first record."""
        await self.client._wait_on_metadata(topic)
        partition = self._partition(topic, partition, None, None, None, None)
        batch.close()
        records = [record._replace(topic=topic, partition=partition) for record in batch.records]
        with aiokafka_errors():
            deliveries = await self._producer.send_many(topic, records)
        return self._futures.of_batch(deliveries)

    def _serialize(self, key: Any, value: Any) -> tuple[bytes | None, bytes | None]:
        if self._key_serializer is not None:
            key = self._key_serializer(key)
        if self._value_serializer is not None:
            value = self._value_serializer(value)
        return key, value

    def _partition(
        self,
        topic: str,
        partition: int | None,
        key: Any,
        value: Any,
        serialized_key: bytes | None,
        serialized_value: bytes | None,
    ) -> int:
        # OpenTelemetry's instrumentation calls it with these parameters.
        known = self._producer.known_partitions(topic)
        assert known is not None, "Unknown topic"
        if partition is not None:
            assert 0 <= partition < known, "Unrecognized partition"
            return partition
        if serialized_key is None and self._hashes_keys:
            return known.available[int(random.random() * len(known.available))]
        all_partitions, available = list(range(known)), list(known.available)
        if isinstance(self._partitioner, PartitionerOfKafkaPython):
            return self._partitioner.partition(
                topic, key, serialized_key, value, serialized_value, all_partitions, available
            )
        return self._partitioner(serialized_key, all_partitions, available)

    # -- transactions ------------------------------------------------------------------------------

    async def begin_transaction(self) -> None:
        """Begin a transaction."""
        await self._change_transaction(self._producer.begin_transaction)
        self._in_transaction = True

    async def commit_transaction(self) -> None:
        """Send the remaining records, and commit the transaction."""
        self._in_transaction = False
        await self._change_transaction(self._producer.commit_transaction)

    async def abort_transaction(self) -> None:
        """Abort the transaction: consumers of committed records never see its records."""
        self._in_transaction = False
        await self._change_transaction(self._producer.abort_transaction)

    def transaction(self) -> TransactionContext:
        """Return a context manager that commits at its end, or aborts after an exception."""
        return TransactionContext(self)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, Any], group_id: str
    ) -> None:
        """Commit a group's positions with the transaction."""
        self._ensure_transactional()
        if not self._in_transaction:
            raise IllegalOperation("Not in the middle of a transaction")
        if not group_id or not isinstance(group_id, str):
            raise ValueError(group_id)
        checked = check_offsets(offsets)
        with aiokafka_errors():
            await self._producer.send_offsets_to_transaction(
                {tp: aioprod.OffsetAndMetadata(*offset) for tp, offset in checked.items()},
                group_id,
            )

    async def _change_transaction(self, change: Callable[[], Any]) -> None:
        self._ensure_transactional()
        with aiokafka_errors():
            try:
                await change()
            except aioprod.TransactionStateError as error:
                raise AssertionError(f"Invalid state transition: {error}") from error

    def _ensure_transactional(self) -> None:
        if self._transactional_id is None:
            raise IllegalOperation("set transactional_id to use transactions")


class TransactionContext:
    """The context manager that :meth:`AIOKafkaProducer.transaction` returns."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer

    async def __aenter__(self) -> Self:
        await self._producer.begin_transaction()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None:
            await self._producer.commit_transaction()
            return
        try:
            await self._producer.abort_transaction()
        except Exception as error:
            if not isinstance(error.__cause__, aioprod.FatalProducerError):
                raise


async def _partitions_of(producer: aioprod.Producer, topic: str) -> list[int]:
    with aiokafka_errors():
        return await producer.partitions_for(topic)


def _checked_acks(acks: Any, enable_idempotence: bool) -> Any:
    if acks is not _missing and acks not in (0, 1, -1, "all"):
        raise ValueError("Invalid ACKS parameter")
    if acks is _missing:
        return "all" if enable_idempotence else 1
    if enable_idempotence and acks not in (-1, "all"):
        raise ValueError(f"acks={acks} not supported if enable_idempotence=True")
    return "all" if acks == -1 else acks
