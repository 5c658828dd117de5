"""Code of the user's that sees every record on its way out or in, and what becomes of it
(``interceptor.classes``, KIP-42).
"""

from __future__ import annotations

import logging
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
from aioprod.user_code import surface

logger = logging.getLogger(__name__)


class ProducerInterceptor:
    """Base class: override what you need. All methods run in the event loop and must be quick.

    An error in one, of any kind, is logged, once until it succeeds again, and breaks neither the
    send nor the other interceptors. KeyboardInterrupt and SystemExit are then raised by the event
    loop, after the producer has finished what it is doing.
    """

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Called once where the producer made this object from a class or an import path, with its
        settings but not its passwords.
        """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Called in ``send``, before key and value are serialized; the record returned goes on in
        its place.
        """
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        """The broker has the record, or it was given up: then ``error`` says why, and offset and
        timestamp are -1.
        """

    def on_send_error(
        self, record: ProducerRecord, topic_partition: TopicPartition | None, error: Exception
    ) -> None:
        """``send`` failed, so the record was never queued; the partition is None where it was not
        chosen yet.
        """

    def on_delivery(
        self, record: ProducerRecord, metadata: RecordMetadata, error: KafkaError | None
    ) -> None:
        """Called after ``on_acknowledgement``, with the record that ``on_send`` returned.
        Overriding it keeps each record until its outcome.
        """

    def close(self) -> None:
        """Called when the producer has closed."""


class ConsumerInterceptor:
    """Base class: override what you need. All methods run in the event loop and must be quick.

    An error in one, of any kind, is logged, once until it succeeds again, and breaks neither the
    reading nor the other interceptors. KeyboardInterrupt and SystemExit are then raised by the
    event loop, after the consumer has finished what it is doing.
    """

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Called once where the consumer made this object from a class or an import path, with its
        settings but not its passwords.
        """

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Called with records of one partition right before the application gets them; those
        returned go on in their place.
        """
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These offsets are committed."""

    def close(self) -> None:
        """Called when the consumer has closed."""


class _Chain:
    """Several interceptors as one, in their order; false where there is none."""

    def __init__(self, interceptors: Iterable[Any]) -> None:
        self._interceptors = tuple(interceptors)
        self._failing: set[tuple[int, str]] = set()

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def close(self) -> None:
        """Close all, whatever one of them raises."""
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
    """A consumer's interceptors as one."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """The records as the last interceptor returned them; each sees the last good ones."""
        for index, interceptor in enumerate(self._interceptors):
            try:
                changed = interceptor.on_consume(records)
                if not isinstance(changed, list):
                    raise TypeError(
                        f"it returned {type(changed).__name__}, a list of ConsumerRecord is "
                        "expected"
                    )
            except BaseException as error:
                self._failed(index, "on_consume", error)
            else:
                records = changed
                self._succeeded(index, "on_consume")
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Tell all that offsets are committed."""
        for index, interceptor in enumerate(self._interceptors):
            try:
                interceptor.on_commit(offsets)
            except BaseException as error:
                self._failed(index, "on_commit", error)
            else:
                self._succeeded(index, "on_commit")


class InterceptorChain(_Chain):
    """A producer's interceptors as one.

    Attributes:
        wants_records: whether one overrides ``on_delivery``, so that records have to be kept until
            their outcome.
    """

    def __init__(self, interceptors: Iterable[ProducerInterceptor] = ()) -> None:
        super().__init__(interceptors)
        # Only what is overridden is called: this runs for every record.
        self._on_send = self._overriding("on_send")
        self._on_acknowledgement = self._overriding("on_acknowledgement")
        self._on_send_error = self._overriding("on_send_error")
        self._on_delivery = self._overriding("on_delivery")
        self.wants_records = bool(self._on_delivery)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record as the last interceptor returned it; each sees the last good one."""
        for index, interceptor in self._on_send:
            try:
                changed = interceptor.on_send(record)
                if not isinstance(changed, ProducerRecord):
                    raise TypeError(
                        f"it returned {type(changed).__name__}, ProducerRecord is expected"
                    )
            except BaseException as error:
                self._failed(index, "on_send", error)
            else:
                record = changed
                self._succeeded(index, "on_send")
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        """Tell all of an outcome."""
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
        """Tell all that a send failed."""
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
        """Tell those that asked for it of a record's outcome."""
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
