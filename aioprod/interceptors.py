"""Interceptors of producers and consumers (``interceptor.classes``, KIP-42)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aioprod.errors import KafkaError
from aioprod.types import (
    ConsumerRecord,
    OffsetAndMetadata,
    ProducerRecord,
    RecordMetadata,
    TopicPartition,
)
from aioprod.user_code import Plugins

__all__ = ["ConsumerInterceptor", "ProducerInterceptor"]


class ProducerInterceptor:
    """Base class of producer interceptors; override the methods that you need.

    All methods run in the event loop and must not block. An error in a method is logged, once until
    the method succeeds again; it affects neither the record nor other interceptors.
    KeyboardInterrupt and SystemExit are also raised by the event loop, after the producer has
    finished its current operation.
    """

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Configure this object, if the producer created it from a class or an import path.

        Args:
            settings: the settings of the producer, without secrets.
        """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send instead. Called by ``send``, before key and value are
        serialized.
        """
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        """Called when the broker has acknowledged a record, or its delivery has failed. If it has
        failed, ``error`` is set, and offset and timestamp are -1.
        """

    def on_send_error(
        self, record: ProducerRecord, topic_partition: TopicPartition | None, error: Exception
    ) -> None:
        """Called when ``send`` has failed and the record is not queued. ``topic_partition`` is None
        if the partition was not chosen yet.
        """

    def on_delivery(
        self, record: ProducerRecord, metadata: RecordMetadata, error: KafkaError | None
    ) -> None:
        """Called after ``on_acknowledgement``, with the record that ``on_send`` returned. If this
        method is overridden, records stay in memory until their outcome.
        """

    def close(self) -> None:
        """Called when the producer is closed."""


class ConsumerInterceptor:
    """Base class of consumer interceptors; override the methods that you need.

    All methods run in the event loop and must not block. An error in a method is logged, once until
    the method succeeds again; it affects neither the records nor other interceptors.
    KeyboardInterrupt and SystemExit are also raised by the event loop, after the consumer has
    finished its current operation.
    """

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Configure this object, if the consumer created it from a class or an import path.

        Args:
            settings: the settings of the consumer, without secrets.
        """

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Return the records for the application. Called with records of one partition, just before
        the application gets them.
        """
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Called when offsets have been committed."""

    def close(self) -> None:
        """Called when the consumer is closed."""


class ConsumerInterceptorChain(Plugins[ConsumerInterceptor]):
    """The interceptors of a consumer."""

    def __init__(self, interceptors: Iterable[ConsumerInterceptor]) -> None:
        super().__init__(ConsumerInterceptor, interceptors)

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Return the records of the last interceptor. If one fails, the next gets its records."""
        return self.change("on_consume", records, list, "a list of ConsumerRecord")

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Call ``on_commit`` of all interceptors."""
        self.notify("on_commit", offsets)


class InterceptorChain(Plugins[ProducerInterceptor]):
    """The interceptors of a producer.

    Attributes:
        wants_records: whether an interceptor overrides ``on_delivery``, so that the producer must
            keep records until their outcome.
    """

    def __init__(self, interceptors: Iterable[ProducerInterceptor] = ()) -> None:
        super().__init__(ProducerInterceptor, interceptors)
        self.wants_records: bool = self.wants("on_delivery")

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record of the last interceptor. If one fails, the next gets its record."""
        return self.change("on_send", record, ProducerRecord, "a ProducerRecord")

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        """Call ``on_acknowledgement`` of all interceptors."""
        self.notify("on_acknowledgement", metadata, error)

    def on_send_error(
        self, record: ProducerRecord, topic_partition: TopicPartition | None, error: Exception
    ) -> None:
        """Call ``on_send_error`` of all interceptors."""
        self.notify("on_send_error", record, topic_partition, error)

    def on_delivery(
        self, record: ProducerRecord, metadata: RecordMetadata, error: KafkaError | None
    ) -> None:
        """Call ``on_delivery`` of the interceptors that override it."""
        self.notify("on_delivery", record, metadata, error)
