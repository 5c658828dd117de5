"""Outputs that were sent, and are not acknowledged yet. The next record of the same key is handled
meanwhile; a record is done when all of its outputs are acknowledged.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aioprod import Delivery, KafkaError, Producer, ProducerRecord
from aioprod.processing.guarantees import Completion
from aioprod.processing.observers import ProcessorMetrics
from aioprod.processing.partitions import PartitionProgress
from aioprod.processing.scheduling import Item, OrderedScheduler


@dataclass(slots=True, eq=False)
class _Call:
    """The outputs of one call of the handler.

    Attributes:
        items: the records of the call, each with its ``handling`` at that time.
        left: the number of outputs without an outcome.
        seconds: the duration of the handler.
        error: the first error of an output.
        abandoned: whether sending failed, or was cancelled, before the last output.
    """

    items: list[tuple[Item, int]]
    left: int
    seconds: float
    error: KafkaError | None = None
    abandoned: bool = False


class SentOutputs:
    """Sends outputs, and marks the records as done when they are acknowledged.

    The records whose outputs have no outcome yet, and the ones after them in their lanes, are kept
    in ``Lane.sent``. If an output fails, its record returns to the head of its lane with the error.
    If it is retried, the later records are handled again, too: the last outputs of a key are in
    order.

    Args:
        on_change: called when records are done, with their partition if it is the same for all.
        on_failed: called with the records of a call, if there are several, before they are handled
            again one by one.
        on_bug: called with an error that stops the processor.
    """

    def __init__(
        self,
        producer: Producer,
        scheduler: OrderedScheduler,
        completion: Completion,
        metrics: ProcessorMetrics,
        on_change: Callable[[PartitionProgress | None], None],
        on_failed: Callable[[list[Item], KafkaError, float], None],
        on_bug: Callable[[BaseException], None],
    ) -> None:
        self._producer = producer
        self._scheduler = scheduler
        self._completion = completion
        self._metrics = metrics
        self._on_change = on_change
        self._on_failed = on_failed
        self._on_bug = on_bug
        self._calls: dict[_Call, None] = {}

    def __len__(self) -> int:
        """The number of calls whose outputs have no outcome yet."""
        return len(self._calls)

    def are_of(self, partition: PartitionProgress, offset: int) -> bool:
        """Return whether a record has outputs without an outcome."""
        return any(
            item.partition is partition and item.record.offset == offset
            for call in list(self._calls)
            for item, _ in call.items
        )

    async def send(
        self, items: Sequence[Item], outputs: Sequence[ProducerRecord], seconds: float
    ) -> None:
        """Send outputs. Their records are done when all outputs are acknowledged.

        Raises:
            KafkaError: if the producer refuses an output. Its records are then not done.
        """
        call = _Call([], len(outputs), seconds)
        self._calls[call] = None
        for item in items:
            item.handling += 1
            call.items.append((item, item.handling))
            item.acknowledged = False
            item.lane.sent.append(item)
            item.partition.sending += 1

        def ended(delivery: Delivery) -> None:
            self._ended(call, delivery)

        send = self._producer.send
        try:
            for output in outputs:
                delivery = await send(*output)
                if delivery.done():  # refused by the producer
                    await delivery
                delivery.add_done_callback(ended)
        except BaseException:
            call.abandoned = True
            self._end(call)
            for item in items:
                self.forget(item)
            raise

    def passed(self, items: Sequence[Item]) -> None:
        """Mark records without outputs as done. They are handled again if an earlier one of their
        lane is.
        """
        for item in items:
            if item.lane.sent:
                item.handling += 1
                item.acknowledged = True
                item.lane.sent.append(item)

    def forget(self, item: Item) -> None:
        """Stop keeping the later records of a record's lane: it is not retried before them."""
        lane = item.lane
        if item in lane.sent:
            lane.sent.remove(item)
            self._scheduler.trim(lane)

    def handle_later_again(self, item: Item, now: float) -> None:
        """Handle the records again that came after one whose outputs failed."""
        lane = item.lane
        if item not in lane.sent:
            return
        later = [each for each in lane.sent if each.arrival > item.arrival]
        lane.sent = deque(each for each in lane.sent if each.arrival < item.arrival)
        for each in later:
            if each not in lane.items:  # otherwise one of its own outputs has failed, too
                each.handling += 1
                self._completion.reopen(each)
                self._scheduler.put_in(each, now)

    def _ended(self, call: _Call, delivery: Delivery) -> None:
        if call.abandoned:
            return
        call.left -= 1
        call.error = call.error or delivery.exception()
        if call.left:
            return
        try:
            self._end(call)
            if call.error is None:
                self._done(call)
            else:
                self._failed(call, call.error)
        except BaseException as bug:  # the event loop would only log it
            self._on_bug(bug)
            raise

    def _end(self, call: _Call) -> None:
        del self._calls[call]
        for item, _ in call.items:
            item.partition.sending -= 1

    def _done(self, call: _Call) -> None:
        # The other ones are handled again, after an earlier record of their key.
        done = [item for item, handling in call.items if item.handling == handling]
        self._completion.done(done)
        for item in done:
            item.acknowledged = True
            self._scheduler.trim(item.lane)
        first, _ = call.items[0]
        self._metrics.handled(first.record, len(call.items), call.seconds)
        self._on_change(first.partition if len(call.items) == 1 else None)

    def _failed(self, call: _Call, error: KafkaError) -> None:
        now = asyncio.get_running_loop().time()
        items = [
            item
            for item, handling in call.items
            if item.handling == handling and not item.partition.closed
        ]
        one_by_one = len(call.items) > 1 and self._completion.repeats
        if items and one_by_one:
            self._on_failed(items, error, call.seconds)
        for item in items:
            item.alone, item.was_in_batch = True, one_by_one
            item.output_error = error
            item.handling += 1
            self._scheduler.put_in(item, now)
        self._on_change(None)
