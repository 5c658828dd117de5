"""The result of ``send``: a view of the record's batch, without a future per record."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Generator
from contextvars import Context, copy_context
from typing import Final

from aioprod.errors import KafkaError
from aioprod.misuse import DELIVERY_OF_OTHERS, names_others
from aioprod.native import accelerated_type
from aioprod.producer.batch import BatchState, ProducerBatch, place_of
from aioprod.public_module import set_module
from aioprod.types import RecordMetadata

_new_tuple: Final = tuple.__new__


@names_others(DELIVERY_OF_OTHERS)
@accelerated_type
@set_module("aioprod.producer")
class Delivery:
    """The outcome of one record. Await it for the :class:`RecordMetadata`, any number of times and
    from any task of the event loop.

    Cancelling a task that awaits it does not cancel the record. If the record fails and no caller
    checks its delivery, the failure is logged when the delivery is garbage-collected.

    It has the methods of an :class:`asyncio.Future` that ask for an outcome, so asyncio's tools
    accept it: :func:`asyncio.wait`, :func:`asyncio.gather`, :func:`asyncio.wait_for` and others.
    """

    # In C it is unknown to the garbage collector, which would visit the hundreds of thousands that
    # a program may keep. So a batch that has ended must not refer to what may lead to a delivery.

    # Set by delivery_of and send: a constructor would double the time to make one.
    __slots__ = ("_batch", "_index")
    _batch: ProducerBatch
    _index: int

    def __repr__(self) -> str:
        batch = self._now()
        where = place_of(batch.tp)
        if batch.state is BatchState.PENDING:
            return f"<Delivery to {where}, pending>"
        if batch.error is not None:
            return f"<Delivery to {where}, failed: {batch.error}>"
        offset = batch.place(self._index).offset
        return f"<Delivery to {where}, stored" + (f" at offset {offset}>" if offset >= 0 else ">")

    def __copy__(self) -> Delivery:
        return delivery_of(self._batch, self._index)

    @property
    def position(self) -> tuple[ProducerBatch, int]:
        """The batch in which the record was put, and its index there."""
        return self._batch, self._index

    def done(self) -> bool:
        """Return whether the outcome is known."""
        return self._now().state is not BatchState.PENDING

    def result(self) -> RecordMetadata:
        """Return where the record is stored.

        Raises:
            asyncio.InvalidStateError: if the outcome is not known yet.
            KafkaError: if the record was not delivered.
        """
        if not self.done():
            raise asyncio.InvalidStateError("the delivery has no outcome yet")
        return self._batch.metadata(self._index)

    def exception(self) -> KafkaError | None:
        """Return why the record was not delivered; None if it was.

        Raises:
            asyncio.InvalidStateError: if the outcome is not known yet.
        """
        if not self.done():
            raise asyncio.InvalidStateError("the delivery has no outcome yet")
        return self._batch.failure()

    def cancelled(self) -> bool:
        """Return False: a record that was accepted is delivered or fails."""
        return False

    def cancel(self, msg: object = None) -> bool:
        """Do nothing and return False: a record that was accepted can't be taken back.

        Cancel the task that awaits the delivery to end the wait, or abort the transaction to
        discard its records.
        """
        return False

    @property
    def _asyncio_future_blocking(self) -> bool | None:
        # asyncio.isfuture() is True for False, and False for None. gather() and wait_for() cancel a
        # future and wait until it has ended, which takes a record up to delivery_timeout_ms. So
        # only a delivery with an outcome is one: for others these make a task that awaits it, and
        # cancelling that ends the wait at once.
        return False if self.done() else None

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the producer."""
        return self._batch.loop

    def add_done_callback(
        self, callback: Callable[[Delivery], object], *, context: Context | None = None
    ) -> None:
        """Call ``callback(delivery)`` when the outcome is known; soon, if it is known already.

        An exception in the callback is logged and does not affect other records. KeyboardInterrupt
        and SystemExit stop the event loop, as in its other callbacks.

        Args:
            callback: gets this delivery, and should not block.
            context: the callback runs in a copy of it; in a copy of the current one if None.
        """
        # A copy, since the context may be the one that ends the batch: it can't be entered twice.
        copied = copy_context() if context is None else context.copy()
        self._now().add_callback(self._index, callback, self, copied)

    def remove_done_callback(self, callback: Callable[[Delivery], object]) -> int:
        """Remove all callbacks of this record that are equal to ``callback``, and return their
        number. Callbacks are removed by themselves when the outcome is known.
        """
        return self._now().remove_callbacks(self._index, callback)

    def _now(self) -> ProducerBatch:
        """Return the batch that has the record now: a part of the first one if it was split."""
        if self._batch.state is BatchState.SPLIT:
            self._batch, self._index = self._batch.part_of(self._index)
        return self._batch

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        """Wait for the outcome, which is known within ``delivery_timeout_ms``."""
        batch = self._batch
        if batch.base_offset < 0:
            return (yield from self._wait())
        # Without RecordMetadata's constructor it takes 0.25 us instead of 0.45.
        index, timestamps = self._index, batch.timestamps
        return _new_tuple(
            RecordMetadata,
            (
                batch.topic,
                batch.partition,
                batch.base_offset + index,
                timestamps[bisect_right(batch.starts, index) - 1]
                if len(timestamps) > 1
                else timestamps[0],
                batch.key_sizes[index] if batch.key_sizes else -1,
                batch.value_sizes[index] if batch.value_sizes else -1,
            ),
        )

    def _wait(self) -> Generator[object, None, RecordMetadata]:
        while (stored := self._stored()) is None:
            batch = self._now()
            if batch.state is not BatchState.PENDING:
                return batch.metadata(self._index)
            waiter = batch.new_waiter()  # a coroutine that waits for it would cost as much again
            try:
                yield from waiter
            finally:
                batch.forget_waiter(waiter)
        return stored

    def _stored(self) -> RecordMetadata | None:
        """Return the metadata of a record that is stored; None if it has failed, or its offset is
        not known.
        """
        batch = self._batch
        return batch.place(self._index) if batch.base_offset >= 0 else None


def delivery_of(batch: ProducerBatch, index: int) -> Delivery:
    """Return the delivery of one record of a batch."""
    delivery = Delivery()
    delivery._batch = batch
    delivery._index = index
    return delivery
