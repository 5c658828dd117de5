"""Code of the user's that sees every record on its way out and its outcome (``interceptor.classes``, KIP-42)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from aioprod.errors import KafkaError
from aioprod.types import ProducerRecord, RecordMetadata, TopicPartition

logger = logging.getLogger(__name__)


class ProducerInterceptor:
    """Base class: override what you need. All methods run in the event loop and must be quick.

    An exception from one is logged, once until it succeeds again, and breaks neither the send nor the other interceptors.
    """

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Called once where the producer made this object from a class or an import path, with its settings but not its passwords."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Called in ``send``, before key and value are serialized; the record returned goes on in its place."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        """The broker has the record, or it was given up: then ``error`` says why, and offset and timestamp are -1."""

    def on_send_error(self, record: ProducerRecord, topic_partition: TopicPartition | None, error: Exception) -> None:
        """``send`` failed, so the record was never queued; the partition is None where it was not chosen yet."""

    def on_delivery(self, record: ProducerRecord, metadata: RecordMetadata, error: KafkaError | None) -> None:
        """Called after ``on_acknowledgement``, with the record that ``on_send`` returned. Overriding it keeps each record until its outcome."""

    def close(self) -> None:
        """Called when the producer has closed."""


class InterceptorChain:
    """Several interceptors as one, in their order; false where there is none.

    Attributes:
        wants_records: whether one overrides ``on_delivery``, so that records have to be kept until their outcome.
    """

    def __init__(self, interceptors: Iterable[ProducerInterceptor] = ()) -> None:
        self._interceptors = tuple(interceptors)
        self._failing: set[tuple[int, str]] = set()
        # Only what is overridden is called: this runs for every record.
        self._on_send = self._overriding("on_send")
        self._on_acknowledgement = self._overriding("on_acknowledgement")
        self._on_send_error = self._overriding("on_send_error")
        self._on_delivery = self._overriding("on_delivery")
        self.wants_records = bool(self._on_delivery)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record as the last interceptor returned it; each sees the last good one."""
        for index, interceptor in self._on_send:
            try:
                changed = interceptor.on_send(record)
                if not isinstance(changed, ProducerRecord):
                    raise TypeError(f"it returned {type(changed).__name__}, ProducerRecord is expected")
            except Exception as error:
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
            except Exception as own:
                self._failed(index, "on_acknowledgement", own)
            else:
                self._succeeded(index, "on_acknowledgement")

    def on_send_error(self, record: ProducerRecord, topic_partition: TopicPartition | None, error: Exception) -> None:
        """Tell all that a send failed."""
        for index, interceptor in self._on_send_error:
            try:
                interceptor.on_send_error(record, topic_partition, error)
            except Exception as own:
                self._failed(index, "on_send_error", own)
            else:
                self._succeeded(index, "on_send_error")

    def on_delivery(self, record: ProducerRecord, metadata: RecordMetadata, error: KafkaError | None) -> None:
        """Tell those that asked for it of a record's outcome."""
        for index, interceptor in self._on_delivery:
            try:
                interceptor.on_delivery(record, metadata, error)
            except Exception as own:
                self._failed(index, "on_delivery", own)
            else:
                self._succeeded(index, "on_delivery")

    def close(self) -> None:
        """Close all, whatever one of them raises."""
        for index, interceptor in enumerate(self._interceptors):
            try:
                interceptor.close()
            except Exception as error:
                self._failed(index, "close", error)

    def _overriding(self, method: str) -> list[tuple[int, ProducerInterceptor]]:
        own = getattr(ProducerInterceptor, method)
        return [(index, one) for index, one in enumerate(self._interceptors) if getattr(getattr(one, method), "__func__", None) is not own]

    def _failed(self, index: int, method: str, error: Exception) -> None:
        if (index, method) not in self._failing:
            self._failing.add((index, method))
            name = type(self._interceptors[index]).__name__
            logger.warning("interceptor %s failed in %s; not logged again until it succeeds", name, method, exc_info=error)

    def _succeeded(self, index: int, method: str) -> None:
        if self._failing:
            self._failing.discard((index, method))
