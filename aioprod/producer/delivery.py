"""What a caller gets of one record: a light view of its batch, with no future of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator

from aioprod.errors import KafkaError
from aioprod.producer.batch import BatchState, ProducerBatch
from aioprod.types import RecordMetadata


class Delivery:
    """One record on its way: await it for its :class:`RecordMetadata`, any number of times, from any task of the loop.

    Cancelling whoever awaits it never cancels the record. A failure that nobody looked at is logged when it is dropped.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: ProducerBatch, index: int) -> None:
        self._batch = batch
        self._index = index

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
        return self._batch.metadata(self._index)

    def exception(self) -> KafkaError | None:
        """Why delivery failed; None where it did not.

        Raises:
            asyncio.InvalidStateError: not known yet.
        """
        if not self.done():
            raise asyncio.InvalidStateError("the delivery has no outcome yet")
        return self._batch.failure()

    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Call ``callback(delivery)`` once the outcome is known; what it raises is logged."""
        self._now().add_callback(self._index, lambda batch, index: callback(Delivery(batch, index)))

    def _now(self) -> ProducerBatch:
        """The batch that holds the record at present: another one, where the first was split."""
        if self._batch.state is BatchState.SPLIT:
            self._batch, self._index = self._batch.part_of(self._index)
        return self._batch

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        while self._now().state is BatchState.PENDING:
            yield from self._batch.wait().__await__()
        return self._batch.metadata(self._index)
