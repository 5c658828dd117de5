"""What a caller gets of one record: a light view of its batch, with no future of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Final

from aioprod.errors import KafkaError
from aioprod.producer.batch import BatchState, ProducerBatch
from aioprod.public_module import set_module
from aioprod.types import RecordMetadata

_SUCCEEDED: Final = BatchState.SUCCEEDED
_new_tuple: Final = tuple.__new__


@set_module("aioprod.producer")
class Delivery:
    """One record on its way: await it for its :class:`RecordMetadata`, any number of times, from
    any task of the loop.

    Cancelling whoever awaits it never cancels the record. A failure that nobody looked at is logged
    when it is dropped.
    """

    # Filled in by whoever makes one: a constructor of its own would cost as much again.
    __slots__ = ("batch", "index")
    batch: ProducerBatch
    index: int

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._now().state is not BatchState.PENDING

    def result(self) -> RecordMetadata:
        """The record's place.

        Raises:
            asyncio.InvalidStateError: not known yet.
            KafkaError: delivery failed.
        """
        if not self.done():
            raise asyncio.InvalidStateError("the delivery has no outcome yet")
        return self.batch.metadata(self.index)

    def exception(self) -> KafkaError | None:
        """Why delivery failed; None where it did not.

        Raises:
            asyncio.InvalidStateError: not known yet.
        """
        if not self.done():
            raise asyncio.InvalidStateError("the delivery has no outcome yet")
        return self.batch.failure()

    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Call ``callback(delivery)`` once the outcome is known.

        What it raises is logged and changes nothing for other records. KeyboardInterrupt and
        SystemExit are then raised by the event loop, as from its own callbacks.
        """
        self._now().add_callback(
            self.index, lambda batch, index: callback(delivery_of(batch, index))
        )

    def _now(self) -> ProducerBatch:
        """The batch that holds the record at present: another one, where the first was split."""
        if self.batch.state is BatchState.SPLIT:
            self.batch, self.index = self.batch.part_of(self.index)
        return self.batch

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        """Wait for the outcome, which is known within ``delivery_timeout_ms``."""
        batch = self.batch
        if batch.state is _SUCCEEDED and batch.base_offset >= 0:
            # ``batch.place(index)``, written out and around RecordMetadata's own constructor: that
            # makes 0.25 us of 0.45.
            index, timestamp, writer = self.index, batch.timestamp, batch.writer
            if timestamp is None:
                timestamp = writer.timestamp(index)
            key_size = writer.key_sizes[index] if writer.key_sizes else -1
            value_size = writer.value_sizes[index] if writer.value_sizes else -1
            return _new_tuple(
                RecordMetadata,
                (
                    batch.topic,
                    batch.partition,
                    batch.base_offset + index,
                    timestamp,
                    key_size,
                    value_size,
                ),
            )
        while self._now().state is BatchState.PENDING:
            yield from self.batch.wait().__await__()
        return self.batch.metadata(self.index)


def delivery_of(batch: ProducerBatch, index: int) -> Delivery:
    """The delivery of one record of a batch."""
    delivery = Delivery()
    delivery.batch = batch
    delivery.index = index
    return delivery
