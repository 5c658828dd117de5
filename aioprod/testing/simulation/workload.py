"""The producers of a run: they send, wait, flush, commit and close as their plan says, with
cancellations, and note all of it.
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
from aioprod.testing.simulation.history import (
    CANCELLED,
    FLUSH,
    Content,
    Ending,
    Place,
    ProducerTrace,
    SentRecord,
    TransactionTrace,
    error_name,
)
from aioprod.testing.simulation.scenario import TOPIC, ProducerPlan
from aioprod.testing.simulation.world import World
from aioprod.types import ProducerRecord, TopicPartition

_MOST_TRIES = 20
_PAUSE_SECONDS = 0.05
_KEYS = 12
_CROWD_SHARE = 0.03
_FILLER = b"".join(b"%x" % (number * 2_654_435_761 % 4_093) for number in range(2_000))
_FATAL = (FatalProducerError, TransactionStateError)


class ProducerActor:
    """Lives through one plan.

    Attributes:
        producer: the one at work.
    """

    def __init__(self, world: World, plan: ProducerPlan, partitions: int) -> None:
        self.plan = plan
        self._world = world
        self._history = world.history
        self._rng = world.loop.random(plan.name)
        self._partitions = partitions
        self._delivery_limit = plan.settings["delivery_timeout_ms"] / 1000
        self._block_limit = plan.settings["max_block_ms"] / 1000
        self.producer = Producer(
            world.bootstrap_servers,
            rng=world.loop.random(f"{plan.name} client"),
            clock=world.loop.wall_clock,
            client_id=plan.name,
            **plan.settings,
        )
        self.trace = ProducerTrace(
            plan.name,
            plan.promise,
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

    # -- the course of it --------------------------------------------------------------------------

    async def run(self) -> None:
        """Do all that the plan says, up to the point where only closing is left."""
        quitting = (
            None
            if self.plan.quits_after is None
            else self._world.loop.create_task(self._quit(self.plan.quits_after))
        )
        await asyncio.sleep(self.plan.after)
        if await self._start():
            if self.plan.transactional_id is None:
                await self._send_from_tasks()
            else:
                await self._run_transactions()
        if quitting is not None:
            await quitting

    async def _quit(self, after: float) -> None:
        await asyncio.sleep(after)
        await self.close()

    async def close(self) -> None:
        """Close, and look for what is left."""
        if self._closing:
            return
        self._closing = True
        plan = self.plan
        limit = (
            self._delivery_limit if plan.close_timeout_ms is None else plan.close_timeout_ms / 1000
        )
        # The tasks behind it get a second each, and connections another.
        error = await self._call(
            "close", self.producer.close(plan.close_timeout_ms), limit + 2.0, may_cancel=True
        )
        if error is not None:
            await self._call("close again", self.producer.close(0), 3.0)
        for waiter in [waiter for waiter in self._waiters if not waiter.done()]:
            await asyncio.wait([waiter], timeout=1.0)
            if not waiter.done():
                self.trace.leftovers.append(f"{waiter.get_name()} waits for ever")
                waiter.cancel()
        self._look_for_leftovers()

    async def probe(self) -> None:
        """When all is well again, a producer that is not lost can send to every partition."""
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
            self._transaction = self._history.begin(self.plan.name, self._next())
        await self._call("probe", self._probe(), limit, must_succeed=self._should_be_live())
        if self._transaction is not None:
            await self._end_transaction(commit=True)

    def _should_be_live(self) -> bool:
        # What a producer of short patience promises is a failure in time, no success.
        return (
            self._delivery_limit >= 5.0
            and not self.plan.may_be_fatal
            and "max_request_size" not in self.plan.settings
        )

    async def _probe(self) -> None:
        for partition in range(self._partitions):
            await self._probe_partition(partition)

    async def _probe_partition(self, partition: int) -> None:
        """One try may fail where there is little room, or where no retries are left for a leader
        that moved: several may not.
        """
        for left in reversed(range(_MOST_TRIES)):
            delivery = await self._send(partition, self._rng, may_cancel=False)
            try:
                if delivery is None:
                    raise KafkaError("the record was not taken")
                await delivery
                return
            except KafkaError:
                if not left or self._transaction is not None:
                    raise
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _start(self) -> bool:
        for _ in range(_MOST_TRIES):
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
        # Each bootstrap address is tried once, at the same time or one after another.
        settings = self.plan.settings
        one: int = (
            settings["socket_connection_setup_timeout_max_ms"] + settings["request_timeout_ms"]
        )
        identity = 0.0 if self.plan.transactional_id is None else self._block_limit
        return 4 * one / 1000 + identity

    def _is_open(self) -> bool:
        return self.producer._core.admission.started and not self._closing

    # -- sending -----------------------------------------------------------------------------------

    async def _send_from_tasks(self) -> None:
        tasks = [
            self._world.loop.create_task(
                self._send_some(number), name=f"{self.plan.name} sender {number}"
            )
            for number in range(self.plan.tasks)
        ]
        await asyncio.gather(*tasks)

    async def _send_some(self, task: int) -> None:
        rng = self._world.loop.random(f"{self.plan.name} {self._serial} {task}")
        for _ in range(self.plan.records):
            if self._closing:
                return
            if self.plan.pause and rng.random() < 1 / self.plan.burst:
                await asyncio.sleep(rng.expovariate(1 / (self.plan.pause * self.plan.burst)))
            delivery = await self._send(
                rng.randrange(self._partitions) if rng.random() < 0.4 else None, rng
            )
            if delivery is None:
                # Others do it in a loop too: not at once, or nothing else would come to its turn.
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
        """Many tasks at once, with the same few keys: some send one record, some a list."""
        create, name = self._world.loop.create_task, f"{self.plan.name} crowd"
        left, tasks = self.plan.crowd, list[asyncio.Task[Any]]()
        while left > 0:
            size = rng.choice([1, 1, 1, 1, 5])
            work = self._send(None, rng) if size == 1 else self._send_list(size, rng)
            tasks.append(create(work, name=name))
            left -= size
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
            delivery: Delivery = await self._given([record], send, rng, may_cancel=may_cancel)
        except asyncio.CancelledError:
            self._history.refused(record, CANCELLED)
            return None
        except (KafkaError, SerializationError) as error:
            self._history.refused(record, error_name(error))
            return None
        self._taken(record, delivery, is_alone=True)
        return delivery

    async def _send_list(self, size: int, rng: random.Random) -> None:
        """Send a list of records; what raises says nothing of each of them."""
        plan, transaction = self.plan, self._transaction_number()
        records = [
            self._history.send(plan.name, TOPIC, self._make_content(rng), None, transaction)
            for _ in range(size)
        ]
        for record in records:
            record.waits = 1 + size
        given = [
            ProducerRecord(TOPIC, value, key, headers=headers)
            for key, value, headers in (record.content for record in records)
        ]
        try:
            deliveries: Deliveries = await self._given(
                records, partial(self.producer.send_many, TOPIC, given), rng
            )
        except (asyncio.CancelledError, KafkaError):
            for record in records:
                self._history.refused(record, CANCELLED)
            return
        for record, delivery in zip(records, deliveries, strict=True):
            self._taken(record, delivery, is_alone=False)

    async def _given(
        self,
        records: list[SentRecord],
        call: Callable[[], Coroutine[Any, Any, Any]],
        rng: random.Random,
        *,
        may_cancel: bool = True,
    ) -> Any:
        """Call a method of the producer, perhaps in a task that is cancelled."""

        async def begin() -> Any:
            for record in records:
                self._history.begins(record)
            return await call()

        if not (may_cancel and self._draws_cancellation(rng)):
            return await begin()
        task = self._world.loop.create_task(begin(), name=f"{self.plan.name} send")
        alarm = self._world.loop.call_later(
            rng.choice([0.0, 1e-6, 2e-6, rng.uniform(0, 0.02)]), task.cancel
        )
        try:
            return await task
        finally:
            alarm.cancel()

    def _taken(self, record: SentRecord, delivery: Delivery, *, is_alone: bool) -> None:
        self._history.taken(record)
        if delivery.done():
            # One of a list may have been sent, and have failed, while others of the list still
            # waited.
            self._resolved(
                record, delivery, never_left=is_alone and delivery.exception() is not None
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
            record, Place(TopicPartition(metadata.topic, metadata.partition), metadata.offset)
        )

    def _make_content(self, rng: random.Random) -> Content:
        start = rng.randrange(1_000)
        filler = _FILLER[start : start + rng.randrange(self.plan.value_size + 1)]
        key = b"key-%d" % rng.randrange(_KEYS) if rng.random() < 0.3 else None
        headers = [("name", b"value"), ("empty", None)] if rng.random() < 0.1 else []
        return Content.of(key, b"%d %s" % (len(self._history.records), filler), headers)

    def _watch(self, delivery: Delivery, rng: random.Random) -> None:
        """Await the delivery in a task, as an application would; some of these are cancelled."""
        name = f"{self.plan.name} waits for a delivery"
        waiter = self._world.loop.create_task(_wait_quietly(delivery), name=name)
        self._waiters.add(waiter)
        if self._draws_cancellation(rng):
            self._world.loop.call_later(rng.uniform(0, 0.1), waiter.cancel)

    def _draws_cancellation(self, rng: random.Random) -> bool:
        return rng.random() < self.plan.cancel_share

    # -- transactions ------------------------------------------------------------------------------

    def _next(self) -> int:
        self._serial += 1
        return self._serial

    def _transaction_number(self) -> int | None:
        return None if self._transaction is None else self._transaction.number

    async def _run_transactions(self) -> None:
        if not await self._persist("init", self.producer.init_transactions):
            return
        for _ in range(self.plan.transactions):
            if self._transaction is None:
                if not await self._persist("begin", self.producer.begin_transaction):
                    return
                self._transaction = self._history.begin(self.plan.name, self._next())
            await self._send_from_tasks()
            commit = self._rng.random() < 0.8
            if self._rng.random() < 0.3:
                commit = await self._send_position(self._transaction) and commit
            if not await self._end_transaction(commit=commit):
                return

    async def _send_position(self, trace: TransactionTrace) -> bool:
        """Have the transaction commit a position for a consumer group; tell whether that is
        certain.
        """
        trace.group_position = len(self._history.transactions)
        offsets = {TopicPartition(TOPIC, 0): trace.group_position}
        group = group_of(self.plan.transactional_id or "")
        return await self._persist(
            "send offsets", lambda: self.producer.send_offsets_to_transaction(offsets, group)
        )

    async def _end_transaction(self, *, commit: bool) -> bool:
        """Bring the open transaction to its end; tell whether the producer can go on."""
        trace, self._transaction = self._transaction, None
        assert trace is not None
        if commit:
            self._history.asks_commit(trace)
            limit = self._block_limit
            for _ in range(_MOST_TRIES):
                error = await self._call(
                    "commit", self.producer.commit_transaction(), limit, may_cancel=True
                )
                if error is None:
                    self._history.end(trace, Ending.COMMITTED)
                    return True
                if not isinstance(error, KafkaTimeoutError | asyncio.CancelledError):
                    break
            else:
                self._history.end(trace, Ending.UNKNOWN)
                return False
            if not isinstance(error, AbortableTransactionError):
                return self._lost(trace, error)
        if await self._persist("abort", self.producer.abort_transaction):
            self._history.end(trace, Ending.ABORTED)
            return True
        self._history.end(trace, Ending.UNKNOWN)
        return False

    def _lost(self, trace: TransactionTrace, error: BaseException) -> bool:
        self._history.end(trace, Ending.UNKNOWN)
        self._note_fatal(error)
        return False

    def _note_fatal(self, error: BaseException) -> None:
        if not self._closing:
            self.trace.fatal = error_name(error)

    async def _persist(self, name: str, method: Any) -> bool:
        """Call again after time-outs and cancellations; tell whether it succeeded in the end."""
        for _ in range(_MOST_TRIES):
            error = await self._call(name, method(), self._block_limit, may_cancel=True)
            if error is None:
                return True
            if isinstance(error, _FATAL):
                self._note_fatal(error)
            if isinstance(error, (*_FATAL, AbortableTransactionError)) or self._closing:
                return False
            await asyncio.sleep(_PAUSE_SECONDS)
        return False

    # -- calls, and what is left -------------------------------------------------------------------

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
        return await self._world.call(
            self.plan.name, name, work, limit, cancel_after=cancel_after, must_succeed=must_succeed
        )

    def _look_for_leftovers(self) -> None:
        producer, leftovers = self.producer, self.trace.leftovers
        pool = producer._pool
        if pool.available != pool.total:
            leftovers.append(
                f"{pool.total - pool.available} of {pool.total} bytes of memory were not given back"
            )
        if pool.reserved or pool.waiting:
            leftovers.append(
                f"{pool.reserved} bytes of memory are reserved, {pool.waiting} callers wait "
                "for some"
            )
        if producer._core.appender.waiting:
            leftovers.append(
                f"{producer._core.appender.waiting} calls wait in line at their partitions"
            )
        if producer._accumulator.incomplete:
            leftovers.append(f"{len(producer._accumulator.incomplete)} batches have no outcome")
        if producer._sender.in_flight:
            leftovers.append(f"{producer._sender.in_flight} requests are in flight")
        if producer._brokers.connected:
            leftovers.append(f"{producer._brokers.connected} connections are open")


def group_of(transactional_id: str) -> str:
    """The consumer group whose positions a transactional id commits."""
    return f"group-{transactional_id}"


async def _wait_quietly(delivery: Delivery) -> None:
    try:
        await delivery
    except KafkaError:
        pass
