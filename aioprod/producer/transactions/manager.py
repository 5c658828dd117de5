"""Runs the transactions of one producer: holds the state, makes the coordinators' calls, tells the
sender what may go.

Each operation (init, offsets, commit, abort) runs in a task of its own. Callers only wait for it:
whoever is cancelled or runs out of time leaves it under way, and the same call again goes on
waiting. A failure puts the state right before any waiter wakes. Decisions are synchronous; an
operation that was killed from outside can be started anew at any point.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Final, Protocol

from aioprod.config.producer import ProducerConfig
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    AbortableTransactionError,
    FatalProducerError,
    KafkaError,
    ProducerClosedError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionStateError,
)
from aioprod.metrics import ProducerMetrics
from aioprod.producer.batch import ProducerBatch
from aioprod.producer.reporting import place_of
from aioprod.producer.sequences import ProducerState
from aioprod.producer.transactions import requests
from aioprod.producer.transactions.calls import Attempts, CoordinatorRequests
from aioprod.producer.transactions.coordinator_session import CoordinatorSession
from aioprod.producer.transactions.operations import Flush, Operation
from aioprod.producer.transactions.states import Call, TransactionState, may_follow, refusal
from aioprod.producer.transactions.verdicts import batch_failure
from aioprod.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    PreparedTransaction,
    TopicPartition,
)

log = logging.getLogger(__name__)

_S = TransactionState
_CLOSE_TIMEOUT_S = 1.0
# What fails in these is a failure of the transaction.
_WRITING = (_S.IN_TRANSACTION, _S.PREPARING, _S.COMMITTING)


class TransactionBatches(Protocol):
    """What is asked of :class:`aioprod.producer.accumulator.RecordAccumulator`."""

    def drop_unsent(self, error: KafkaError, /) -> None:
        """Fail the batches that were never sent, and those that would have to be sent again."""

    async def flush(self) -> None:
        """Return when every batch has its outcome; meanwhile nothing lingers."""

    def abort(self, error: KafkaError, /) -> None:
        """Fail every batch, and refuse further records."""


class TransactionManager:
    """The transactions of one producer.

    Args:
        config: the producer's settings; ``transactional_id`` is set.
        producer: gets the identity that the coordinator gives; asks for a new epoch.
        coordinators: where requests go.
        batches: the producer's batches.
        metrics: gets the time that :meth:`start` takes.
        rng: jitter.
        wake: called when the sender should look again.

    Attributes:
        state: where the producer stands.
        error: what brought it into one of the two error states.
        may_append: whether a record may be taken now; the cheap form of :meth:`check_may_send`.
        number: how many transactions were begun.
    """

    transactional: Final = True
    lost: Final = 0
    producer_id_error: Final = None

    def __init__(
        self,
        config: ProducerConfig,
        producer: ProducerState,
        coordinators: CoordinatorRequests,
        batches: TransactionBatches,
        metrics: ProducerMetrics,
        rng: random.Random,
        wake: Callable[[], None],
    ) -> None:
        assert config.transactional_id is not None
        self.state = _S.UNINITIALIZED
        self.error: KafkaError | None = None
        self.may_append, self.number = False, 0
        self._id = config.transactional_id
        self._config = config
        self._producer = producer
        self._session = CoordinatorSession(config, producer, coordinators, rng)
        self._batches = batches
        self._metrics = metrics
        self._wake = wake
        self._flush = Flush(batches.flush, self._spawn)
        self._adding: Attempts | None = None
        self._offsets: Operation | None = None
        self._ending: Operation | None = None
        self._initializing: Operation | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed: ProducerClosedError | None = None

    # -- asked and told by the send path and by the sender -----------------------------------------

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open that no commit or abort is ending yet."""
        return self.state in (_S.IN_TRANSACTION, _S.PREPARING, _S.PREPARED, _S.ABORTABLE_ERROR)

    @property
    def holds_up_readers(self) -> bool:
        """Whether the coordinator may have a transaction that nothing but this producer, or its
        timeout, ends.
        """
        return (
            self._session.perhaps_begun
            and self.state is not _S.PREPARED
            and not isinstance(self.error, ProducerFencedError)
        )

    @property
    def produce_adds_partitions(self) -> bool:
        """Whether brokers add partitions to the transaction by themselves, from Produce version 12
        on (KIP-890). Else no such version may be used.
        """
        return self._session.v2

    def check_may_send(self) -> None:
        """Whether a record may be taken now.

        Raises:
            TransactionStateError: no transaction is open.
            AbortableTransactionError, FatalProducerError: the transaction, or the producer, has
            failed.
        """
        if not self.may_append:
            self._check(Call.SEND, _S.IN_TRANSACTION)

    def partition_used(self, tp: TopicPartition) -> None:
        """A batch was opened for the partition: it becomes part of the transaction."""
        session = self._session
        if not session.v2 and tp not in session.added and self.state in _WRITING:
            session.to_add.add(tp)
            self._ensure_adding()

    def ensure_producer_id(self) -> None:
        """Do nothing: there is one since :meth:`start`."""

    def manager(self) -> TransactionManager:
        """Return this object."""
        return self

    def may_send(self, tp: TopicPartition) -> bool:
        """Whether the partition's batches may go to the broker now."""
        if self.state is _S.FATAL_ERROR:
            return False
        if self._session.v2 or tp in self._session.added:
            return True
        self.partition_used(tp)
        return False

    def batch_sent(self, tp: TopicPartition) -> None:
        """A batch leaves now: from here on something of the transaction may be in the partition."""
        self._session.batch_sent()

    def batch_stored(self) -> None:
        """A broker has taken a batch, so the coordinator knows of the transaction."""
        self._session.batch_stored()

    def batch_failed(self, batch: ProducerBatch, error: KafkaError) -> None:
        """A batch of the transaction was given up. The caller that ends the transaction gets the
        error.
        """
        self.record_refused(batch.tp, error)
        batch.failure()

    def record_refused(self, tp: TopicPartition, error: KafkaError) -> None:
        """A record of the transaction is lost: the transaction can't be committed any more."""
        failure = batch_failure(f"transactional_id={self._id!r}: {place_of(tp)}", error)
        if isinstance(failure, AbortableTransactionError):
            self._fail(failure)
        else:
            self._fail_fatally(failure)

    # -- calls -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Do what :meth:`init` does, as part of the producer's start: after a failure nothing goes
        on, and it may be called again.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            self._check(Call.START, _S.UNINITIALIZED, _S.INITIALIZING)
            operation = self._running_init()
            try:
                await self._join(operation, self._deadline(), Call.START)
            finally:
                await operation.end()
        finally:
            self._metrics.transaction_step("init", loop.time() - started)

    async def init(self) -> None:
        """Unless :meth:`start` has: get the producer id, which fences off an older producer and has
        its open transaction aborted.

        Raises:
            TransactionStateError: a transaction is open.
            KafkaTimeoutError: not done within ``max_block_ms``. It goes on; call again to go on
                waiting.
            FatalProducerError: refused for good.
            BrokerError: refused for now: the right to it is missing.
        """
        self._check(Call.INIT, _S.UNINITIALIZED, _S.INITIALIZING, _S.READY)
        if self.state is not _S.READY:
            await self._join(self._running_init(), self._deadline(), Call.INIT)

    async def begin(self) -> None:
        """Open a transaction. No request is sent for it, unless :meth:`init` is still to be done.

        A commit or abort whose caller has left is waited for.

        Raises:
            TransactionStateError: one is open already.
            KafkaError: as for :meth:`init`; and what an earlier transaction failed with, until it
                is aborted.
        """
        deadline = self._deadline()
        while self.state is not _S.READY or self._closed is not None:
            self._check(Call.BEGIN, _S.UNINITIALIZED, _S.INITIALIZING, _S.COMMITTING, _S.ABORTING)
            under_way = (
                self._running_end()
                if self.state in (_S.COMMITTING, _S.ABORTING)
                else self._running_init()
            )
            await self._join(under_way, deadline, Call.BEGIN)
        self._ending, self.number = None, self.number + 1
        self._go(_S.IN_TRANSACTION)

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group: str | ConsumerGroupMetadata,
    ) -> None:
        """Put a consumer group's positions into the transaction (KIP-447). No offsets, no request.

        Raises:
            SerializationError: an argument is of the wrong type or outside its limits.
            TransactionStateError: no transaction is open.
            KafkaTimeoutError: not done within ``max_block_ms``. It goes on; the same call again
                goes on waiting.
            AbortableTransactionError: refused, for example because the group's member was replaced:
                abort.
            FatalProducerError: refused for good.
        """
        self._check(Call.SEND_OFFSETS, _S.IN_TRANSACTION)
        arguments = (requests.checked_offsets(offsets), requests.checked_group(group))
        if not arguments[0]:
            return
        deadline = self._deadline()
        while (running := self._offsets) is not None and running.under_way:
            if running.arguments == arguments:
                await self._join(running, deadline, Call.SEND_OFFSETS)
                return
            await running.over(Call.SEND_OFFSETS, self._config.max_block_ms, deadline)
            self._check(Call.SEND_OFFSETS, _S.IN_TRANSACTION)
        attempts = Attempts()
        self._offsets = self._start(
            Call.SEND_OFFSETS, self._commit_offsets(attempts, *arguments), attempts, arguments
        )
        self._offsets.task.add_done_callback(self._offsets_ended)
        await self._join(self._offsets, deadline, Call.SEND_OFFSETS)

    async def prepare(self) -> PreparedTransaction | None:
        """Have all records written, and leave the transaction open; None where nothing was written.
        Raises what :meth:`commit` does.
        """
        deadline = self._deadline()
        if not self._succeeded_unseen(Call.PREPARE):
            self._check(Call.PREPARE, _S.IN_TRANSACTION, _S.PREPARING, _S.PREPARED)
            if self.state is not _S.PREPARED:
                await self._join(self._towards(_S.PREPARING), deadline, Call.PREPARE)
        return self._session.prepared()

    async def commit(self) -> None:
        """Have all records written, then make them visible together.

        Raises:
            TransactionStateError: no transaction is open.
            AbortableTransactionError: something of it failed: abort.
            KafkaTimeoutError: not done within ``max_block_ms``. It goes on; call again to go on
                waiting.
            TransactionAbortedError: another task aborted it meanwhile.
            FatalProducerError: nothing more can be done with this producer. Whether the commit
                happened, a new one can't tell either.
        """
        deadline = self._deadline()
        if not self._succeeded_unseen(Call.COMMIT):
            self._check(Call.COMMIT, _S.IN_TRANSACTION, _S.PREPARED, _S.COMMITTING)
            await self._join(self._towards(_S.COMMITTING), deadline, Call.COMMIT)

    async def abort(self) -> None:
        """Drop what was not sent, and have the rest never shown to consumers that read committed
        records.

        A commit that was called but not sent to the coordinator yet is overtaken.

        Raises:
            TransactionStateError: no transaction is open, or its commit is on its way.
            KafkaTimeoutError: not done within ``max_block_ms``. It goes on; call again to go on
                waiting.
            FatalProducerError: nothing more can be done with this producer. What it wrote stays
                invisible.
        """
        deadline = self._deadline()
        if not self._succeeded_unseen(Call.ABORT):
            if (
                self.state in (_S.PREPARING, _S.COMMITTING)
                and self._ending is not None
                and not self._ending.attempts.count
            ):
                self._ending.overtake()
            else:
                self._check(
                    Call.ABORT,
                    _S.IN_TRANSACTION,
                    _S.PREPARING,
                    _S.PREPARED,
                    _S.ABORTABLE_ERROR,
                    _S.ABORTING,
                )
            await self._join(self._towards(_S.ABORTING), deadline, Call.ABORT)

    async def settle(self) -> None:
        """Leave no transaction open, before the producer closes: wait for the commit or abort under
        way, abort one that neither is called for.

        One that is prepared belongs to whoever was told so, and is left alone.

        Raises:
            KafkaError: as :meth:`commit` and :meth:`abort` do.
        """
        if self.state is _S.COMMITTING:
            await self._join(self._running_end(), self._deadline(), Call.COMMIT)
        elif self.state is _S.PREPARED and self._ending is not None and self._ending.seen:
            return
        elif self.in_transaction or self.state is _S.ABORTING:
            await self.abort()

    def stop(self) -> None:
        """End all that is under way, at once: before the producer fails what is left, which no
        commit may pass by.
        """
        self._closed = self._closed or ProducerClosedError("the producer is closed")
        self.may_append = False
        for task in list(self._tasks):
            task.cancel()

    async def close(self) -> None:
        """Stop, and wait until it has ended; whoever waits for it gets ProducerClosedError."""
        self.stop()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=_CLOSE_TIMEOUT_S)

    # -- waiting -----------------------------------------------------------------------------------

    def _check(self, call: Call, *allowed: TransactionState) -> None:
        if self._closed is not None:
            raise self._closed.with_traceback(None)
        if self.state not in allowed:
            # The errors that hold are raised time and again: without their old tracebacks, or these
            # would grow for ever.
            raise (
                self.error.with_traceback(None)
                if self.error is not None
                else TransactionStateError(refusal(call, self.state))
            )

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._config.max_block_ms / 1000

    async def _join(self, operation: Operation, deadline: float, call: Call) -> None:
        """Wait until it is over and share its outcome."""
        await operation.over(call, self._config.max_block_ms, deadline)
        operation.outcome(call, self._closed or self.error)

    def _succeeded_unseen(self, call: Call) -> bool:
        """Whether this call succeeded while nobody waited for it: its caller has come back to hear
        of it.
        """
        ended = self._ending
        return ended is not None and ended.call is call and ended.succeeds_unseen()

    # -- operations --------------------------------------------------------------------------------

    def _start(
        self,
        call: Call,
        work: Coroutine[Any, Any, None],
        attempts: Attempts,
        arguments: object = None,
    ) -> Operation:
        task = self._spawn(work, call.value)
        attempts.run_by(task)
        return Operation(call, task, attempts, arguments)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=f"aioprod-{name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Nobody may be waiting; the state tells of a failure.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    def _running_init(self) -> Operation:
        """The operation that gets a producer id or an epoch, started where it is not under way."""
        running = self._initializing
        if running is None or not running.under_way:
            if self.state is not _S.INITIALIZING:
                self._go(_S.INITIALIZING)
            attempts = Attempts()
            running = self._initializing = self._start(
                Call.INIT, self._initialize(attempts), attempts
            )
        return running

    def _towards(self, state: TransactionState) -> Operation:
        """The operation that goes with a state, which is entered where that is not done yet."""
        if self.state is not state:
            self._go(state)
            self._ending = None
        return self._running_end()

    def _running_end(self) -> Operation:
        """The operation that prepares or ends the transaction, as the state says; started where it
        is not under way.
        """
        running = self._ending
        if running is None or not running.under_way:
            attempts = Attempts()
            works = {
                _S.PREPARING: (Call.PREPARE, self._prepare),
                _S.COMMITTING: (Call.COMMIT, self._commit),
                _S.ABORTING: (Call.ABORT, self._abort),
            }
            call, work = works[self.state]
            running = self._ending = self._start(call, work(attempts), attempts)
        return running

    async def _initialize(self, attempts: Attempts) -> None:
        try:
            await self._session.initialize(attempts)
        except FatalProducerError as error:
            self._fail_fatally(error)
            raise
        except KafkaError:
            self._go(_S.UNINITIALIZED)
            raise
        except Exception as error:
            raise self._fault(error) from error
        self._go(_S.READY)

    def _ensure_adding(self) -> None:
        running = self._adding
        if running is None or running.task is None or running.task.done():
            # The task has its turn after the caller's: what is sent in one go is added with one
            # request.
            self._adding = attempts = Attempts()
            task = self._spawn(self._add_partitions(attempts), "add-partitions")
            attempts.run_by(task)
            # If it is cancelled from outside, the sender asks again, which starts another task.
            task.add_done_callback(lambda _: self._wake())

    async def _add_partitions(self, attempts: Attempts) -> None:
        with self._failures_noted():
            await self._session.add_partitions(attempts, self._wake)

    async def _commit_offsets(
        self,
        attempts: Attempts,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
    ) -> None:
        with self._failures_noted():
            await self._session.commit_offsets(attempts, offsets, group)

    def _offsets_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() and self._closed is None and self.state in _WRITING:
            # Killed from outside, so they may be missing: a commit must not pass them by.
            self._fail(
                AbortableTransactionError(
                    ErrorCode.TRANSACTION_ABORTABLE,
                    "send_offsets_to_transaction() was cancelled from outside",
                )
            )

    async def _prepare(self, attempts: Attempts) -> None:
        with self._failures_noted():
            await self._all_written(Call.PREPARE, _S.PREPARING)
            self._go(_S.PREPARED)

    async def _commit(self, attempts: Attempts) -> None:
        with self._failures_noted():
            await self._all_written(Call.COMMIT, _S.COMMITTING)
            await self._session.end(attempts, commit=True)
            self._ended()

    async def _abort(self, attempts: Attempts) -> None:
        with self._failures_noted():
            self._session.to_add.clear()
            self._batches.drop_unsent(
                TransactionAbortedError(
                    f"transactional_id={self._id!r}: the transaction was aborted before the "
                    "record was sent"
                )
            )
            for under_way in (
                self._adding,
                self._offsets.attempts if self._offsets is not None else None,
            ):
                if under_way is not None and under_way.task is not None:
                    under_way.stop()
                    await asyncio.wait([under_way.task])
            await self._outcomes()
            self._check(Call.ABORT, _S.ABORTING)
            await self._session.end(attempts, commit=False)
            self._ended()

    async def _all_written(self, call: Call, state: TransactionState) -> None:
        """Wait until all that belongs to the transaction is written; raises where something of it
        is not, or the state is another by then.
        """
        await self._outcomes()
        if self._offsets is not None:
            await asyncio.wait([self._offsets.task])
        self._check(call, state)

    async def _outcomes(self) -> None:
        """Wait until all batches have their outcome, or until that does not matter any more."""
        state = self.state
        await self._flush.run(lambda: self.state is state)

    def _ended(self) -> None:
        """The transaction is over: make ready for the next."""
        self._session.forget_transaction()
        self._offsets = None
        self.error = None
        if not self._producer.epoch_needed:
            self._go(_S.READY)
        else:
            # The end is not held up by it: the next begin() waits.
            self._go(_S.INITIALIZING)
            if self._closed is None:
                self._running_init()

    # -- state -------------------------------------------------------------------------------------

    def _go(self, state: TransactionState) -> None:
        assert may_follow(self.state, state), f"from {self.state} to {state}"
        log.debug("transactional_id=%r: from %s to %s", self._id, self.state.value, state.value)
        self.state = state
        self.may_append = state is _S.IN_TRANSACTION

    @contextlib.contextmanager
    def _failures_noted(self) -> Iterator[None]:
        """Turn what an operation raises into state."""
        try:
            yield
        except AbortableTransactionError as error:
            self._fail(error)
            raise
        except KafkaError as error:
            if error is not self._closed:
                self._fail_fatally(error)
            raise
        except Exception as error:
            raise self._fault(error) from error

    def _fault(self, error: Exception) -> KafkaError:
        log.error("transactional_id=%r: a fault of this library", self._id, exc_info=error)
        fatal = KafkaError(f"transactional_id={self._id!r}: {error!r}; close this producer")
        self._fail_fatally(fatal)
        return fatal

    def _fail(self, error: AbortableTransactionError) -> None:
        if error.code == ErrorCode.UNKNOWN_PRODUCER_ID:
            self._producer.request_epoch()
        if self.state not in _WRITING:
            return
        self._go(_S.ABORTABLE_ERROR)
        self.error = error
        log.warning("%s", error)
        self._give_up()
        # Not now: the sender may be in the middle of its batches.
        asyncio.get_running_loop().call_soon(self._batches.drop_unsent, error)

    def fail(self, error: KafkaError) -> None:
        """Fail the producer: everything without an outcome, and every later call."""
        # The state first, or a commit under way would take the end of its batches for success.
        self._fail_fatally(error)
        self._batches.abort(error)

    def _fail_fatally(self, error: KafkaError) -> None:
        if self.state is _S.FATAL_ERROR:
            return
        self._go(_S.FATAL_ERROR)
        self.error = error
        log.error("%s", error)
        self._give_up()
        if self._offsets is not None:
            self._offsets.attempts.stop()
        asyncio.get_running_loop().call_soon(self._batches.abort, error)

    def _give_up(self) -> None:
        """What waits for records or partitions of the failed transaction need not wait on."""
        self._session.to_add.clear()
        if self._adding is not None:
            self._adding.stop()
        self._flush.give_up()
