"""What a caller gets of many records that were sent at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from typing import overload

from aioprod.errors import KafkaError
from aioprod.producer.batch import BatchState, ProducerBatch
from aioprod.producer.delivery import Delivery, delivery_of
from aioprod.types import RecordMetadata


class Deliveries(Sequence[Delivery]):
    """The deliveries of many records, in the records' order: a sequence that makes each :class:`Delivery` when it is looked at.

    Await it for the places of all records, or :meth:`wait` for their outcome alone, which costs nothing per record. Cancelling whoever waits
    cancels no record.
    """

    __slots__ = ("_count", "_starts", "_stretches")

    def __init__(self) -> None:
        self._count = 0
        self._starts: list[int] = []
        # Batch, place of the first record in it, number of records.
        self._stretches: list[tuple[ProducerBatch, int, int]] = []

    def add_stretch(self, batch: ProducerBatch, first: int, count: int) -> None:
        """Add the next ``count`` records, which follow one another in a batch."""
        if self._stretches:
            last_batch, last_first, last_count = self._stretches[-1]
            if last_batch is batch and last_first + last_count == first:
                self._stretches[-1] = batch, last_first, last_count + count
                self._count += count
                return
        self._starts.append(self._count)
        self._stretches.append((batch, first, count))
        self._count += count

    def add(self, delivery: Delivery) -> None:
        """Add the next record."""
        self.add_stretch(delivery.batch, delivery.index, 1)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Delivery: ...
    @overload
    def __getitem__(self, index: slice) -> list[Delivery]: ...
    def __getitem__(self, index: int | slice) -> Delivery | list[Delivery]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._count))]
        number = index + self._count if index < 0 else index
        if not 0 <= number < self._count:
            raise IndexError(f"delivery {index} of {self._count}")
        at = bisect_right(self._starts, number) - 1
        batch, first, _ = self._stretches[at]
        return delivery_of(batch, first + number - self._starts[at])

    def __iter__(self) -> Iterator[Delivery]:
        for batch, first, count in self._stretches:
            for index in range(first, first + count):
                yield delivery_of(batch, index)

    def done(self) -> bool:
        """Whether every record's outcome is known."""
        return all(batch.state is not BatchState.PENDING for batch, _, _ in self._parts())

    def exceptions(self) -> dict[int, KafkaError]:
        """Why delivery failed, by the record's number in this sequence, from 0; of those whose outcome is known."""
        found: dict[int, KafkaError] = {}
        number = 0
        for batch, _, count in self._parts():
            error = batch.failure() if batch.state is not BatchState.PENDING else None
            if error is not None:
                found.update(dict.fromkeys(range(number, number + count), error))
            number += count
        return found

    async def wait(self) -> None:
        """Wait until every record has its outcome.

        Raises:
            KafkaError: at least one was not delivered; this is the first of them, :meth:`exceptions` gives all.
        """
        for batch, _, _ in self._stretches:
            await _end_of(batch)
        failed = [error for error in [batch.failure() for batch, _, _ in self._parts()] if error is not None]
        if failed:
            raise failed[0].with_traceback(None)

    def __await__(self) -> Generator[object, None, list[RecordMetadata]]:
        yield from self.wait().__await__()
        return [batch.place(index) for batch, first, count in self._parts() for index in range(first, first + count)]

    def _parts(self) -> Iterator[tuple[ProducerBatch, int, int]]:
        """The stretches as they are now: those of a batch that was split lie in its parts."""
        for batch, first, count in self._stretches:
            yield from _parts_of(batch, first, count)


async def _end_of(batch: ProducerBatch) -> None:
    await batch.wait()
    for _, part in batch.parts:
        await _end_of(part)


def _parts_of(batch: ProducerBatch, first: int, count: int) -> Iterator[tuple[ProducerBatch, int, int]]:
    if batch.state is not BatchState.SPLIT:
        yield batch, first, count
        return
    ends = [start for start, _ in batch.parts[1:]] + [batch.count]
    for (start, part), end in zip(batch.parts, ends, strict=True):
        low, high = max(start, first), min(end, first + count)
        if low < high:
            yield from _parts_of(part, low - start, high - low)
