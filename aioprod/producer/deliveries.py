"""The result of ``send_many`` and ``send_arrow``."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from itertools import compress
from typing import overload

from aioprod.errors import KafkaError
from aioprod.producer.batch import BatchState, ProducerBatch
from aioprod.producer.delivery import Delivery, delivery_of
from aioprod.public_module import set_module
from aioprod.types import RecordMetadata


@set_module("aioprod.producer")
class Deliveries(Sequence[Delivery]):
    """The deliveries of many records, in the records' order: a sequence that makes each
    :class:`Delivery` when it is accessed.

    Await it for the metadata of all records. :meth:`wait` only waits for the outcomes, without cost
    per record. Cancelling a task that waits does not cancel the records.
    """

    __slots__ = ("_count", "_numbers", "_positions", "_starts", "_stretches")

    def __init__(self) -> None:
        self._count = 0
        self._starts: list[int] = []
        # Batch, index of the first record in it, number of records.
        self._stretches: list[tuple[ProducerBatch, int, int]] = []
        # The records' numbers in the order of the stretches, and the reverse; None if the stretches
        # are in the records' order.
        self._numbers: array[int] | None = None
        self._positions: array[int] | None = None

    def __repr__(self) -> str:
        pending = failed = 0
        for batch, _, count in self._parts():
            pending += count * (batch.state is BatchState.PENDING)
            failed += count * (batch.error is not None)
        return f"<Deliveries of {self._count} records, {pending} pending, {failed} failed>"

    def add_stretch(
        self, batch: ProducerBatch, first: int, count: int, numbers: array[int] | None = None
    ) -> None:
        """Add consecutive records of a batch: the next ones, or those with these numbers. Each
        number must be added exactly once in all.
        """
        if numbers is not None or self._numbers is not None:
            self._numbers = self._numbers or array("Q", range(self._count))
            self._numbers += numbers or array("Q", range(self._count, self._count + count))
        if self._stretches:
            last_batch, last_first, last_count = self._stretches[-1]
            if last_batch is batch and last_first + last_count == first:
                self._stretches[-1] = batch, last_first, last_count + count
                self._count += count
                return
        self._starts.append(self._count)
        self._stretches.append((batch, first, count))
        self._count += count

    def add_others(self, batch: ProducerBatch, total: int) -> None:
        """Add the missing ones of ``total`` records, with a batch that has failed."""
        numbers = None
        if self._numbers is not None:
            missing = bytearray(b"\1" * total)
            for number in self._numbers:
                missing[number] = 0
            numbers = array("Q", compress(range(total), missing))
        self.add_stretch(batch, 0, total - self._count, numbers)

    def add(self, delivery: Delivery) -> None:
        """Add the next record."""
        self.add_stretch(*delivery.position, 1)

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
        position = number if self._numbers is None else self._position(number)
        at = bisect_right(self._starts, position) - 1
        batch, first, _ = self._stretches[at]
        return delivery_of(batch, first + position - self._starts[at])

    def __iter__(self) -> Iterator[Delivery]:
        if self._numbers is not None:
            yield from map(self.__getitem__, range(self._count))
            return
        for batch, first, count in self._stretches:
            for index in range(first, first + count):
                yield delivery_of(batch, index)

    def _position(self, number: int) -> int:
        assert self._numbers is not None
        if self._positions is None:
            self._positions = array("Q", bytes(8 * self._count))
            for position, its_number in enumerate(self._numbers):
                self._positions[its_number] = position
        return self._positions[number]

    def done(self) -> bool:
        """Return whether the outcomes of all records are known."""
        return all(batch.state is not BatchState.PENDING for batch, _, _ in self._parts())

    def exceptions(self) -> dict[int, KafkaError]:
        """Return why records were not delivered, by their number in this sequence, from 0. Records
        without an outcome are left out.
        """
        found: dict[int, KafkaError] = {}
        position = 0
        for batch, _, count in self._parts():
            error = batch.failure() if batch.state is not BatchState.PENDING else None
            if error is not None:
                found.update(
                    dict.fromkeys(
                        (self._numbers or range(self._count))[position : position + count], error
                    )
                )
            position += count
        return found if self._numbers is None else dict(sorted(found.items()))

    async def wait(self) -> None:
        """Wait until all records have their outcome, which takes ``delivery_timeout_ms`` at most.

        Raises:
            KafkaError: if a record was not delivered: the error of the first one.
                :meth:`exceptions` returns all errors.
        """
        # By batch: each record with a key may be its own stretch.
        batches = dict.fromkeys(batch for batch, _, _ in self._stretches)
        for batch in batches:
            await _end_of(batch)
        if any(map(_has_failed, batches)):
            for error in self.exceptions().values():
                raise error.with_traceback(None)

    def __await__(self) -> Generator[object, None, list[RecordMetadata]]:
        """Wait for the metadata of all records, within ``delivery_timeout_ms``; raise as
        :meth:`wait` does.
        """
        yield from self.wait().__await__()
        places = [
            batch.place(index)
            for batch, first, count in self._parts()
            for index in range(first, first + count)
        ]
        return (
            places
            if self._numbers is None
            else [places[self._position(number)] for number in range(self._count)]
        )

    def _parts(self) -> Iterator[tuple[ProducerBatch, int, int]]:
        """Yield the stretches as they are now: those of a split batch are in its parts."""
        for batch, first, count in self._stretches:
            yield from _parts_of(batch, first, count)


async def _end_of(batch: ProducerBatch) -> None:
    await batch.wait()
    for _, part in batch.parts:
        await _end_of(part)


def _has_failed(batch: ProducerBatch) -> bool:
    return batch.error is not None or any(_has_failed(part) for _, part in batch.parts)


def _parts_of(
    batch: ProducerBatch, first: int, count: int
) -> Iterator[tuple[ProducerBatch, int, int]]:
    if batch.state is not BatchState.SPLIT:
        yield batch, first, count
        return
    ends = [start for start, _ in batch.parts[1:]] + [batch.count]
    for (start, part), end in zip(batch.parts, ends, strict=True):
        low, high = max(start, first), min(end, first + count)
        if low < high:
            yield from _parts_of(part, low - start, high - low)
