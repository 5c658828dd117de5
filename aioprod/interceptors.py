"""Interceptors of producers and consumers (``interceptor.classes``, KIP-42)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aioprod.errors import KafkaError
from aioprod.logs import get_logger
from aioprod.types import (
    ConsumerRecord,
    OffsetAndMetadata,
    ProducerRecord,
    RecordMetadata,
    TopicPartition,
)
from aioprod.user_code import surface

logger = get_logger(__name__)


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


class _Chain:
    """Calls interceptors in their order; false if there are none."""

    def __init__(self, interceptors: Iterable[Any]) -> None:
        self._interceptors = tuple(interceptors)
        self._failing: set[tuple[int, str]] = set()

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def close(self) -> None:
        """Close all interceptors, even if one raises."""
        for index, interceptor in enumerate(self._interceptors):
            try:
                interceptor.close()
            except BaseException as error:
                self._failed(index, "close", error)

    def _failed(self, index: int, method: str, error: BaseException) -> None:
        if (index, method) not in self._failing:
            self._failing.add((index, method))
            name = type(self._interceptors[index]).__name__
            logger.warning(
                "interceptor %s failed in %s; not logged again until it succeeds",
                name,
                method,
                exc_info=error,
            )
            surface(error)

    def _succeeded(self, index: int, method: str) -> None:
        if self._failing:
            self._failing.discard((index, method))


class ConsumerInterceptorChain(_Chain):
    """The interceptors of a consumer."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Return the records of the last interceptor. If one fails, the next gets its records."""
        for index, interceptor in enumerate(self._interceptors):
            try:
                changed = interceptor.on_consume(records)
                if not isinstance(changed, list):
                    raise TypeError(
                        f"must return a list of ConsumerRecord, not {type(changed).__name__}"
                    )
            except BaseException as error:
                self._failed(index, "on_consume", error)
            else:
                records = changed
                self._succeeded(index, "on_consume")
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Call ``on_commit`` of all interceptors."""
        for index, interceptor in enumerate(self._interceptors):
            try:
                interceptor.on_commit(offsets)
            except BaseException as error:
                self._failed(index, "on_commit", error)
            else:
                self._succeeded(index, "on_commit")


class InterceptorChain(_Chain):
    """The interceptors of a producer.

    Attributes:
        wants_records: whether an interceptor overrides ``on_delivery``, so that the producer must
            keep records until their outcome.
    """

    def __init__(self, interceptors: Iterable[ProducerInterceptor] = ()) -> None:
        super().__init__(interceptors)
        # Calls only overridden methods, as this runs for each record.
        self._on_send = self._overriding("on_send")
        self._on_acknowledgement = self._overriding("on_acknowledgement")
        self._on_send_error = self._overriding("on_send_error")
        self._on_delivery = self._overriding("on_delivery")
        self.wants_records = bool(self._on_delivery)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record of the last interceptor. If one fails, the next gets its record."""
        for index, interceptor in self._on_send:
            try:
                changed = interceptor.on_send(record)
                if not isinstance(changed, ProducerRecord):
                    raise TypeError(f"must return a ProducerRecord, not {type(changed).__name__}")
            except BaseException as error:
                self._failed(index, "on_send", error)
            else:
                record = changed
                self._succeeded(index, "on_send")
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        """Call ``on_acknowledgement`` of all interceptors."""
        for index, interceptor in self._on_acknowledgement:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except BaseException as own:
                self._failed(index, "on_acknowledgement", own)
            else:
                self._succeeded(index, "on_acknowledgement")

    def on_send_error(
        self, record: ProducerRecord, topic_partition: TopicPartition | None, error: Exception
    ) -> None:
        """Call ``on_send_error`` of all interceptors."""
        for index, interceptor in self._on_send_error:
            try:
                interceptor.on_send_error(record, topic_partition, error)
            except BaseException as own:
                self._failed(index, "on_send_error", own)
            else:
                self._succeeded(index, "on_send_error")

    def on_delivery(
        self, record: ProducerRecord, metadata: RecordMetadata, error: KafkaError | None
    ) -> None:
        """Call ``on_delivery`` of the interceptors that override it."""
        for index, interceptor in self._on_delivery:
            try:
                interceptor.on_delivery(record, metadata, error)
            except BaseException as own:
                self._failed(index, "on_delivery", own)
            else:
                self._succeeded(index, "on_delivery")

    def _overriding(self, method: str) -> list[tuple[int, ProducerInterceptor]]:
        own = getattr(ProducerInterceptor, method)
        return [
            (index, one)
            for index, one in enumerate(self._interceptors)
            if getattr(getattr(one, method), "__func__", None) is not own
        ]
