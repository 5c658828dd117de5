"""What becomes of records that workers have taken: the part of a guarantee that workers call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from aioprod import Producer, ProducerRecord
from aioprod.processing.scheduling import Item


class Settlement(ABC):
    """Ends the processing of records.

    Attributes:
        drains_queue: whether records that were read and wait for a handler are handled before the
            processor gives them up.
        repeats: whether a handler may get a record again.
        sends_ahead: whether the next record of a key is handled before the outputs of the last one
            are acknowledged.
        drops: what becomes of a record that can be neither processed nor forwarded, as a word for
            the log; None if the processor stops then.
    """

    drains_queue = False
    repeats = True
    sends_ahead = True
    drops: str | None = None

    @abstractmethod
    async def deliver(self, items: Sequence[Item], outputs: Sequence[ProducerRecord]) -> None:
        """Note that records are done, and take care of what they led to.

        Raises:
            KafkaError: if an output can't be sent. The records are not done.
        """

    def done(self, items: Sequence[Item]) -> None:
        """Note that records are done: their outputs, if any, are acknowledged."""
        for item in items:
            item.partition.completed.complete(item.record.offset)

    def reopen(self, item: Item) -> None:
        """Note that a record is handled again although it may be done."""
        item.partition.completed.reopen(item.record.offset)

    def may_release(self, item: Item) -> bool:
        """Return whether another member may get a record that was tried here in vain."""
        return False

    def release(self, item: Item) -> None:
        """Let any member get a record again."""
        raise NotImplementedError

    async def drop(self, item: Item) -> None:
        """Skip a record, as ``drops`` says."""
        raise NotImplementedError


async def send_all(producer: Producer, outputs: Sequence[ProducerRecord]) -> None:
    """Send records, and wait until all are acknowledged.

    Raises:
        KafkaError: the first error.
    """
    deliveries = [await producer.send(*output) for output in outputs]
    for delivery in deliveries:
        await delivery
