"""The producers of a run: they send, flush, commit and close as their plan says, with
cancellations, and record everything in the history.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from aioprod.errors import (
    AbortableTransactionError,
    FatalProducerError,
    KafkaError,
    KafkaTimeoutError,
    SerializationError,
    TransactionStateError,
)
from aioprod.producer.deliveries import Deliveries
from aioprod.producer.delivery import Delivery
from aioprod.producer.producer import Producer
from aioprod.types import ProducerRecord, TopicPartition
from tests.simulation.history import (
    CANCELLED,
    FLUSH,
    Content,
    ProducerTrace,
    RecordPosition,
    SentRecord,
    TransactionOutcome,
    TransactionTrace,
    error_name,
)
from tests.simulation.run_context import RunContext
from tests.simulation.scenario import TOPIC, ProducerPlan

_MAX_TRIES = 20
_PAUSE_SECONDS = 0.05
_KEYS = 12
_CROWD_SHARE = 0.03
_FILLER = b"".join(b"%x" % (number * 2_654_435_761 % 4_093) for number in range(2_000))
_FATAL = (FatalProducerError, TransactionStateError)


class ProducerActor:
    """Runs a producer as its plan says."""

    def __init__(self, context: RunContext, plan: ProducerPlan, partitions: int) -> None:
        self.plan = plan
        self._context = context
        self._history = context.history
        self._rng = context.loop.random(plan.name)
        self._partitions = partitions
        self._delivery_limit = plan.settings["delivery_timeout_ms"] / 1000
        self._block_limit = plan.settings["max_block_ms"] / 1000
        self.producer = Producer(
            context.bootstrap_servers,
            rng=context.loop.random(f"{plan.name} client"),
            clock=context.loop.wall_clock,
            client_id=plan.name,
            **plan.settings,
        )
        self.trace = ProducerTrace(
            plan.name,
            plan.guarantee,
            plan.ordered,
            self._delivery_limit,
            self._block_limit,
            plan.may_be_fatal,
            plan.transactional_id,
        )
        self._history.producers[plan.name] = self.trace
        self._waiters: set[asyncio.Task[None]] = set()
        self._transaction: TransactionTrace | None = None
        self._serial = 0
        self._closing = False

    # -- the plan ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run the plan, up to closing."""
        early_close = (
            None
            if self.plan.quits_after is None
            else self._context.loop.create_task(self._close_after(self.plan.quits_after))
        )
        await asyncio.sleep(self.plan.after)
        if await self._start():
            if self.plan.transactional_id is None:
                await self._send_from_tasks()
            else:
                await self._run_transactions()
        if early_close is not None:
            await early_close

    async def _close_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.close()

    async def close(self) -> None:
        """Close the producer and check for leftovers."""
        if self._closing:
            return
        self._closing = True
        plan = self.plan
        limit = (
            self._delivery_limit if plan.close_timeout_ms is None else plan.close_timeout_ms / 1000
        )
        # `close` gives its tasks a second, and its connections another.
        error = await self._call(
            "close", self.producer.close(plan.close_timeout_ms), limit + 2.0, may_cancel=True
        )
        if error is not None:
            await self._call("close again", self.producer.close(0), 3.0)
        for waiter in [waiter for waiter in self._waiters if not waiter.done()]:
            await asyncio.wait([waiter], timeout=1.0)
            if not waiter.done():
                self.trace.leftovers.append(f"{waiter.get_name()} waits forever")
                waiter.cancel()
        self._record_leftovers()

    async def probe(self) -> None:
        """Send to each partition once all faults have ended, which must succeed."""
        if self.trace.fatal is not None or not self._is_open():
            return
        limit = 2 * (self._delivery_limit + self._block_limit)
        if self.plan.transactional_id is not None:
            if (
                await self._call(
                    "begin for the probe", self.producer.begin_transaction(), self._block_limit
                )
                is not None
            ):
                return
            self._transaction = self._history.begin(self.plan.name, self._next_number())
        await self._call("probe", self._probe(), limit, must_succeed=self._probe_must_succeed())
        if self._transaction is not None:
            await self._end_transaction(commit=True)

    def _probe_must_succeed(self) -> bool:
        # With a short delivery timeout the probe may fail.
        return (
            self._delivery_limit >= 5.0
            and not self.plan.may_be_fatal
            and "max_request_size" not in self.plan.settings
        )

    async def _probe(self) -> None:
        for partition in range(self._partitions):
            await self._probe_partition(partition)

    async def _probe_partition(self, partition: int) -> None:
        """Send until a delivery succeeds: a few may fail, as with little memory or no retries."""
        for tries_left in reversed(range(_MAX_TRIES)):
            delivery = await self._send(partition, self._rng, may_cancel=False)
            try:
                if delivery is None:
                    raise KafkaError("the record was refused")
                await delivery
                return
            except KafkaError:
                if not tries_left or self._transaction is not None:
                    raise
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _start(self) -> bool:
        for _ in range(_MAX_TRIES):
            if (
                await self._call("start", self.producer.start(), self._start_limit, may_cancel=True)
                is None
            ):
                return True
            if self._closing:
                return False
            await asyncio.sleep(_PAUSE_SECONDS)
        return False

    @property
    def _start_limit(self) -> float:
        # Each bootstrap server is tried once, concurrently or in sequence.
        settings = self.plan.settings
        one_server: int = (
            settings["socket_connection_setup_timeout_max_ms"] + settings["request_timeout_ms"]
        )
        identity = 0.0 if self.plan.transactional_id is None else self._block_limit
        return 4 * one_server / 1000 + identity

    def _is_open(self) -> bool:
        return self.producer._core.runtime.started and not self._closing

    # -- sending -----------------------------------------------------------------------------------

    async def _send_from_tasks(self) -> None:
        tasks = [
            self._context.loop.create_task(
                self._send_some(number), name=f"{self.plan.name} sender {number}"
            )
            for number in range(self.plan.tasks)
        ]
        await asyncio.gather(*tasks)

    async def _send_some(self, task: int) -> None:
        rng = self._context.loop.random(f"{self.plan.name} {self._serial} {task}")
        for _ in range(self.plan.records):
            if self._closing:
                return
            if self.plan.pause and rng.random() < 1 / self.plan.burst:
                await asyncio.sleep(rng.expovariate(1 / (self.plan.pause * self.plan.burst)))
            delivery = await self._send(
                rng.randrange(self._partitions) if rng.random() < 0.4 else None, rng
            )
            if delivery is None:
                # Without a pause, tasks whose sends fail would starve all others.
                await asyncio.sleep(0.01)
            elif rng.random() < 0.1:
                self._watch(delivery, rng)
            if self.plan.crowd and rng.random() < _CROWD_SHARE:
                await self._send_as_crowd(rng)
            if rng.random() < 0.02 and self._transaction is None:
                await self._call(
                    FLUSH, self.producer.flush(), self._delivery_limit, may_cancel=True
                )

    async def _send_as_crowd(self, rng: random.Random) -> None:
        """Send from many tasks at once with few keys: single records and lists."""
        create, name = self._context.loop.create_task, f"{self.plan.name} crowd"
        remaining, tasks = self.plan.crowd, list[asyncio.Task[Any]]()
        while remaining > 0:
            size = rng.choice([1, 1, 1, 1, 5])
            work = self._send(None, rng) if size == 1 else self._send_list(size, rng)
            tasks.append(create(work, name=name))
            remaining -= size
        await asyncio.gather(*tasks)

    async def _send(
        self, partition: int | None, rng: random.Random, *, may_cancel: bool = True
    ) -> Delivery | None:
        record = self._history.send(
            self.plan.name, TOPIC, self._make_content(rng), partition, self._transaction_number()
        )
        key, value, headers = record.content
        send = partial(self.producer.send, TOPIC, value, key, partition=partition, headers=headers)
        try:
            delivery: Delivery = await self._call_send([record], send, rng, may_cancel=may_cancel)
        except asyncio.CancelledError:
            self._history.refused(record, CANCELLED)
            return None
        except (KafkaError, SerializationError) as error:
            self._history.refused(record, error_name(error))
            return None
        self._accepted(record, delivery, is_single=True)
        return delivery

    async def _send_list(self, size: int, rng: random.Random) -> None:
        """Send a list of records. If the call raises, each of them may be stored or not."""
        plan, transaction = self.plan, self._transaction_number()
        records = [
            self._history.send(plan.name, TOPIC, self._make_content(rng), None, transaction)
            for _ in range(size)
        ]
        for record in records:
            record.waits = 1 + size
        producer_records = [
            ProducerRecord(TOPIC, value, key, headers=headers)
            for key, value, headers in (record.content for record in records)
        ]
        try:
            deliveries: Deliveries = await self._call_send(
                records, partial(self.producer.send_many, TOPIC, producer_records), rng
            )
        except (asyncio.CancelledError, KafkaError):
            for record in records:
                self._history.refused(record, CANCELLED)
            return
        for record, delivery in zip(records, deliveries, strict=True):
            self._accepted(record, delivery, is_single=False)

    async def _call_send(
        self,
        records: list[SentRecord],
        call: Callable[[], Coroutine[Any, Any, Any]],
        rng: random.Random,
        *,
        may_cancel: bool = True,
    ) -> Any:
        """Call a send method; sometimes in a task that is cancelled."""

        async def begin() -> Any:
            for record in records:
                self._history.begins(record)
            return await call()

        if not (may_cancel and self._draws_cancellation(rng)):
            return await begin()
        task = self._context.loop.create_task(begin(), name=f"{self.plan.name} send")
        alarm = self._context.loop.call_later(
            rng.choice([0.0, 1e-6, 2e-6, rng.uniform(0, 0.02)]), task.cancel
        )
        try:
            return await task
        finally:
            alarm.cancel()

    def _accepted(self, record: SentRecord, delivery: Delivery, *, is_single: bool) -> None:
        self._history.accepted(record)
        if delivery.done():
            # A record of a list may have failed while later ones waited, so it may have been sent.
            self._resolved(
                record, delivery, never_left=is_single and delivery.exception() is not None
            )
        else:
            delivery.add_done_callback(lambda done: self._resolved(record, done, never_left=False))

    def _resolved(self, record: SentRecord, delivery: Delivery, *, never_left: bool) -> None:
        error = delivery.exception()
        if error is not None:
            self._history.failed(record, error_name(error), never_left=never_left)
            return
        metadata = delivery.result()
        self._history.acknowledged(
            record,
            RecordPosition(TopicPartition(metadata.topic, metadata.partition), metadata.offset),
        )

    def _make_content(self, rng: random.Random) -> Content:
        start = rng.randrange(1_000)
        filler = _FILLER[start : start + rng.randrange(self.plan.value_size + 1)]
        key = b"key-%d" % rng.randrange(_KEYS) if rng.random() < 0.3 else None
        headers = [("name", b"value"), ("empty", None)] if rng.random() < 0.1 else []
        return Content.of(key, b"%d %s" % (len(self._history.records), filler), headers)

    def _watch(self, delivery: Delivery, rng: random.Random) -> None:
        """Await the delivery in a task, as applications do; cancel some of these tasks."""
        name = f"{self.plan.name} waits for a delivery"
        waiter = self._context.loop.create_task(_wait_quietly(delivery), name=name)
        self._waiters.add(waiter)
        if self._draws_cancellation(rng):
            self._context.loop.call_later(rng.uniform(0, 0.1), waiter.cancel)

    def _draws_cancellation(self, rng: random.Random) -> bool:
        return rng.random() < self.plan.cancel_share

    # -- transactions ------------------------------------------------------------------------------

    def _next_number(self) -> int:
        self._serial += 1
        return self._serial

    def _transaction_number(self) -> int | None:
        return None if self._transaction is None else self._transaction.number

    async def _run_transactions(self) -> None:
        if not await self._call_until_done("init", self.producer.init_transactions):
            return
        for _ in range(self.plan.transactions):
            if self._transaction is None:
                if not await self._call_until_done("begin", self.producer.begin_transaction):
                    return
                self._transaction = self._history.begin(self.plan.name, self._next_number())
            await self._send_from_tasks()
            commit = self._rng.random() < 0.8
            if self._rng.random() < 0.3:
                commit = await self._send_offset(self._transaction) and commit
            if not await self._end_transaction(commit=commit):
                return

    async def _send_offset(self, trace: TransactionTrace) -> bool:
        """Add an offset of a consumer group to the transaction; return whether it succeeded."""
        trace.group_offset = len(self._history.transactions)
        offsets = {TopicPartition(TOPIC, 0): trace.group_offset}
        group = group_of(self.plan.transactional_id or "")
        return await self._call_until_done(
            "send offsets", lambda: self.producer.send_offsets_to_transaction(offsets, group)
        )

    async def _end_transaction(self, *, commit: bool) -> bool:
        """End the open transaction; return whether the producer can continue."""
        trace, self._transaction = self._transaction, None
        assert trace is not None
        if commit:
            self._history.commit_called(trace)
            limit = self._block_limit
            for _ in range(_MAX_TRIES):
                error = await self._call(
                    "commit", self.producer.commit_transaction(), limit, may_cancel=True
                )
                if error is None:
                    self._history.end(trace, TransactionOutcome.COMMITTED)
                    return True
                if not isinstance(error, KafkaTimeoutError | asyncio.CancelledError):
                    break
            else:
                self._history.end(trace, TransactionOutcome.UNKNOWN)
                return False
            if not isinstance(error, AbortableTransactionError):
                return self._fail(trace, error)
        if await self._call_until_done("abort", self.producer.abort_transaction):
            self._history.end(trace, TransactionOutcome.ABORTED)
            return True
        self._history.end(trace, TransactionOutcome.UNKNOWN)
        return False

    def _fail(self, trace: TransactionTrace, error: BaseException) -> bool:
        self._history.end(trace, TransactionOutcome.UNKNOWN)
        self._note_fatal(error)
        return False

    def _note_fatal(self, error: BaseException) -> None:
        if not self._closing:
            self.trace.fatal = error_name(error)

    async def _call_until_done(self, name: str, method: Any) -> bool:
        """Repeat a call after timeouts and cancellations; return whether it succeeded."""
        for _ in range(_MAX_TRIES):
            error = await self._call(name, method(), self._block_limit, may_cancel=True)
            if error is None:
                return True
            if isinstance(error, _FATAL):
                self._note_fatal(error)
            if isinstance(error, (*_FATAL, AbortableTransactionError)) or self._closing:
                return False
            await asyncio.sleep(_PAUSE_SECONDS)
        return False

    # -- calls and leftovers -----------------------------------------------------------------------

    async def _call(
        self,
        name: str,
        work: Coroutine[Any, Any, Any],
        limit: float,
        *,
        may_cancel: bool = False,
        must_succeed: bool = False,
    ) -> BaseException | None:
        cancel_after = None
        if may_cancel and self._draws_cancellation(self._rng):
            cancel_after = self._rng.choice([0.0, 1e-6, 3e-6, 1e-5, self._rng.uniform(0, limit)])
        return await self._context.call(
            self.plan.name, name, work, limit, cancel_after=cancel_after, must_succeed=must_succeed
        )

    def _record_leftovers(self) -> None:
        producer, leftovers = self.producer, self.trace.leftovers
        pool = producer._pool
        if pool.available != pool.total:
            leftovers.append(
                f"{pool.total - pool.available} of {pool.total} bytes of memory were not released"
            )
        if pool.reserved or pool.waiting:
            leftovers.append(
                f"{pool.reserved} bytes of memory are reserved, {pool.waiting} callers wait "
                "for memory"
            )
        if producer._core.appender.waiting:
            leftovers.append(f"{producer._core.appender.waiting} calls wait at their partitions")
        if producer._accumulator.incomplete:
            leftovers.append(f"{len(producer._accumulator.incomplete)} batches are not complete")
        if producer._sender.in_flight:
            leftovers.append(f"{producer._sender.in_flight} requests are in flight")
        if producer._brokers.connected:
            leftovers.append(f"{producer._brokers.connected} connections are open")


def group_of(transactional_id: str) -> str:
    """Return the consumer group whose offsets a transactional id commits."""
    return f"group-{transactional_id}"


async def _wait_quietly(delivery: Delivery) -> None:
    try:
        await delivery
    except KafkaError:
        pass
