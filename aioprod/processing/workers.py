"""Calls the handler in tasks, and decides what follows its success or failure."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from operator import itemgetter

from aioprod import (
    ConsumerRecord,
    DeserializationError,
    KafkaError,
    Producer,
    TopicPartition,
)
from aioprod.foreign_text import repr_of
from aioprod.logs import Logger, get_logger
from aioprod.processing.config import CommonConfig
from aioprod.processing.errors import ProcessingError
from aioprod.processing.failure_headers import forwarded, origin_of
from aioprod.processing.guarantees import Completion
from aioprod.processing.observers import DeadLettered, HandlerFailed, ProcessorMetrics
from aioprod.processing.partitions import PartitionProgress
from aioprod.processing.records import HandlerCalls, outputs_of, place_of
from aioprod.processing.retries import Forward, Release, RetryInPlace, decide
from aioprod.processing.scheduling import Item, OrderedScheduler
from aioprod.processing.sent_outputs import SentOutputs
from aioprod.running_loop import start_task
from aioprod.user_code import ENDS_PROGRAM, is_cancelled

log: Logger = get_logger(__name__)

# Handlers that never wait would block the event loop.
_TURN_S = 0.01


class Workers:
    """Up to ``concurrency`` tasks that take records from the scheduler.

    Args:
        calls: has the handler, and creates its argument.
        on_change: called when records are done, with their partition if it is the same for all.
        on_failure: called with the error if the processor can't continue.

    Attributes:
        stopped: whether no further call of the handler begins.
    """

    def __init__(
        self,
        config: CommonConfig,
        calls: HandlerCalls,
        scheduler: OrderedScheduler,
        completion: Completion,
        producer: Producer,
        metrics: ProcessorMetrics,
        on_change: Callable[[PartitionProgress | None], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._config = config
        self._policy = config.policy
        self._retry_topics = {retry.topic for retry in config.policy.retry_topics}
        self._calls = calls
        self._scheduler = scheduler
        self._completion = completion
        self._metrics = metrics
        self._rng = random.Random()
        self._on_change = on_change
        self._on_failure = on_failure
        self._sent = SentOutputs(
            producer,
            scheduler,
            completion,
            metrics,
            self._outputs_ended,
            self._one_by_one,
            on_failure,
        )
        self._tasks: dict[asyncio.Task[None], list[Item]] = {}
        self._called_at: dict[asyncio.Task[None], float] = {}
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        self._turn = 0  # counts iterations of the event loop in which handlers run
        self._turn_ends = 0.0
        self._turn_is_counted = False
        self.stopped: bool = False

    @property
    def in_flight(self) -> int:
        """The number of records that are being handled."""
        return sum(map(len, list(self._tasks.values())))

    def in_flight_records(self) -> list[ConsumerRecord]:
        """Return the records that are being handled, as stored."""
        return [item.record for items in list(self._tasks.values()) for item in items]

    @property
    def sending(self) -> int:
        """The number of calls of the handler whose outputs are not all acknowledged."""
        return len(self._sent)

    def is_sending(self, partition: PartitionProgress, offset: int) -> bool:
        """Return whether a record has outputs that are not acknowledged yet."""
        return self._sent.are_of(partition, offset)

    def is_handling(self, partition: PartitionProgress, offset: int) -> bool:
        """Return whether a record is being handled."""
        return any(
            item.partition is partition and item.record.offset == offset
            for items in self._tasks.values()
            for item in items
        )

    def longest_call_s(self) -> float:
        """Return the duration in seconds of the oldest call that is running; 0 without one. Any
        thread may call it.
        """
        oldest = self._oldest_call()
        return 0.0 if oldest is None else oldest[0].get_loop().time() - oldest[1]

    def longest_call(self) -> str:
        """Describe the first record of the oldest call that is running; empty without one."""
        oldest = self._oldest_call()
        items = [] if oldest is None else self._tasks.get(oldest[0])
        return place_of(items[0].record) if items else ""

    def _oldest_call(self) -> tuple[asyncio.Task[None], float] | None:
        return min(list(self._called_at.items()), key=itemgetter(1), default=None)

    def start_due(self) -> None:
        """Start tasks for the records that can be handled now, and set a timer for the next one
        that becomes due.
        """
        now = asyncio.get_running_loop().time()
        while not self.stopped and len(self._tasks) < self._config.concurrency:
            items = self._take(now)
            if not items:
                break
            task = start_task(self._work(items), name="aioprod-handler")
            self._tasks[task] = items
            task.add_done_callback(self._ended)
        self._set_timer()

    def cancel(self, partition: PartitionProgress | None = None) -> None:
        """Cancel the calls of the handler with records of a partition, or all calls."""
        for task, items in list(self._tasks.items()):
            if partition is None or any(item.partition is partition for item in items):
                task.cancel()

    async def close(self) -> None:
        """Cancel all tasks, and wait for them, at most a second: a handler may ignore the
        cancellation.
        """
        self.stopped = True
        self._set_timer()
        self.cancel()
        if self._tasks:
            _, left = await asyncio.wait(list(self._tasks), timeout=1)
            if left:
                log.warning("%d handlers have ignored their cancellation", len(left))

    # -- tasks -------------------------------------------------------------------------------------

    def _take(self, now: float) -> list[Item]:
        items = self._scheduler.take(now, self._calls.most_records)
        for item in items:
            item.partition.active += 1
        return items

    async def _work(self, items: list[Item]) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        now = loop.time()
        while items:
            turn = self._present_turn(loop)
            self._called_at[task] = now
            again = await self._handle(items, time.perf_counter())
            now = loop.time()
            self._tasks[task] = []
            self._release(items, again, now)
            self._on_change(items[0].partition if len(items) == 1 else None)
            if turn == self._turn and now > self._turn_ends:  # the handler did not wait
                await asyncio.sleep(0)
                now = loop.time()
            if self.stopped:
                return
            self._tasks[task] = items = self._take(now)
            if self._scheduler.has_next and len(self._tasks) < self._config.concurrency:
                self.start_due()

    def _present_turn(self, loop: asyncio.AbstractEventLoop) -> int:
        """Return the number of this iteration of the event loop. `_TURN_S` limits it for all tasks
        together: yielding after each handler that has waited takes a quarter of a record's time
        with 1,000 tasks.
        """
        if not self._turn_is_counted:
            self._turn_is_counted = True
            self._turn_ends = loop.time() + _TURN_S
            loop.call_soon(self._next_turn)
        return self._turn

    def _next_turn(self) -> None:
        self._turn += 1
        self._turn_is_counted = False

    def _release(self, items: list[Item], again: bool, now: float) -> None:
        for item in reversed(items):
            item.partition.active -= 1
            if again:
                keep_order = self._policy.keep_order or len(items) > 1
                self._scheduler.put_back(item, now, keep_order=keep_order)
            else:
                self._scheduler.finish(item, now)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._called_at.pop(task, None)
        try:
            self._release(self._tasks.pop(task), again=False, now=task.get_loop().time())
        except BaseException as bug:
            self._on_failure(bug)
            raise
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                self._on_failure(error)
        self._on_change(None)
        if not self.stopped and self._scheduler.has_next:
            self.start_due()

    def _set_timer(self) -> None:
        due = None if self.stopped else self._scheduler.next_due
        if self._timer is not None:
            if self._timer_at == due and not self._timer.cancelled():
                return
            self._timer.cancel()
            self._timer = None
        if due is not None and len(self._tasks) < self._config.concurrency:
            self._timer_at = due
            self._timer = asyncio.get_running_loop().call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.start_due()

    # -- one call ----------------------------------------------------------------------------------

    async def _handle(self, items: list[Item], began: float) -> bool:
        """Call the handler; return whether to handle the records again."""
        if items[0].output_error is not None:
            return await self._output_failed(items[0], items[0].output_error)
        try:
            argument = await self._calls.argument(items)
            with self._metrics.handling(items, self._calls.of_batches):
                returned = await self._calls.handler(argument)
                seconds = time.perf_counter() - began
                outputs = outputs_of(returned)
                if outputs and self._completion.sends_ahead:
                    await self._sent.send(items, outputs, seconds)
                    return False  # the acknowledgements decide what follows
                await self._completion.deliver(items, outputs)
        except ENDS_PROGRAM:
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise
            return await self._failed(items, error, time.perf_counter() - began)
        self._sent.passed(items)
        self._metrics.handled(items[0].record, len(items), seconds)
        return False

    async def _output_failed(self, item: Item, error: KafkaError) -> bool:
        """Do what follows the failure of an output that was sent; return whether to handle the
        record again.
        """
        item.output_error = None
        if not item.was_in_batch:
            return await self._failed([item], error, 0.0)
        item.was_in_batch = False
        self._repeat(item)
        return True

    def _repeat(self, item: Item) -> None:
        """Handle a record again, and with it the later ones of its lane that were handled before
        the failure of its outputs.
        """
        if self._policy.keep_order:
            self._sent.handle_later_again(item, asyncio.get_running_loop().time())
        else:
            self._sent.forget(item)

    def _outputs_ended(self, partition: PartitionProgress | None) -> None:
        """Continue after the acknowledgements of a call's outputs, or their errors."""
        self._on_change(partition)
        if partition is None and self._scheduler.has_next:
            self.start_due()

    def _one_by_one(self, items: list[Item], error: BaseException, seconds: float) -> None:
        self._report_failure(items, error, "one by one", seconds)

    async def _failed(self, items: list[Item], error: BaseException, seconds: float) -> bool:
        """Do what follows a failure; return whether to handle the records again."""
        if len(items) > 1 and self._completion.repeats:
            for item in items:
                item.alone = True
            self._one_by_one(items, error, seconds)
            return True
        for item in items:
            topic, here = item.record.topic, item.attempt_here
            letters = self._config.dead_letter_topic
            may_release = self._completion.may_release(item)
            decision = decide(
                self._policy, letters, error, topic, here, self._rng, may_release=may_release
            )
            if isinstance(decision, RetryInPlace):
                self._report_failure([item], error, "retry", seconds)
                item.attempt_here += 1
                item.due = asyncio.get_running_loop().time() + decision.delay_s
                self._repeat(item)
                return True
            self._sent.forget(item)
            if isinstance(decision, Release):
                self._report_failure([item], error, "release", seconds)
                self._completion.release(item)
            elif isinstance(decision, Forward):
                step = "dead letter" if decision.is_dead_letter else decision.topic
                self._report_failure([item], error, step, seconds)
                await self._forward(item, error, decision)
            else:
                await self._give_up(item, error, seconds)
        return False

    async def _forward(self, item: Item, error: BaseException, decision: Forward) -> None:
        record = item.record
        origin = origin_of(record, is_retry=record.topic in self._retry_topics)
        calls = item.attempt - isinstance(error, DeserializationError)
        output = forwarded(
            record, origin, decision.topic, self._config.group_id, error, calls, item.delivery_count
        )
        try:
            await self._completion.deliver([item], [output])
        except KafkaError as problem:
            self._on_failure(_stopped(record, f"can't be sent to {decision.topic!r}", problem))
        else:
            if decision.is_dead_letter:
                log.warning("%s is in %r: %s", place_of(record), decision.topic, repr_of(error))
                self._metrics.dead_lettered(DeadLettered(record, decision.topic, calls, error))

    async def _give_up(self, item: Item, error: BaseException, seconds: float) -> None:
        dropped = self._completion.drops
        self._report_failure([item], error, "stop" if dropped is None else "drop", seconds)
        if dropped is None:
            self._on_failure(_stopped(item.record, "was not processed", error))
            return
        log.error("%s is %s: the handler failed", place_of(item.record), dropped, exc_info=error)
        await self._completion.drop(item)

    def _report_failure(
        self, items: list[Item], error: BaseException, next_step: str, seconds: float
    ) -> None:
        topic, partition, offset = items[0].record[:3]
        event = HandlerFailed(
            topic, partition, offset, len(items), items[0].attempt, error, next_step, seconds
        )
        self._metrics.failed(event)


def _stopped(record: ConsumerRecord, what: str, error: BaseException) -> ProcessingError:
    stopped = ProcessingError(
        f"{place_of(record)} {what}; it is not committed, and the processor stops: "
        f"{repr_of(error)}",
        TopicPartition(record.topic, record.partition),
        record.offset,
    )
    stopped.__cause__ = error
    return stopped
