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
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any

from aioprod.config.producer import ProducerConfig
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    AbortableTransactionError,
    FatalProducerError,
    KafkaError,
    ProducerClosedError,
    TransactionAbortedError,
    TransactionStateError,
)
from aioprod.producer.reporting import place_of
from aioprod.producer.sequences import ProducerState
from aioprod.producer.transactions import requests
from aioprod.producer.transactions.calls import CoordinatorRequests, Repetition
from aioprod.producer.transactions.conversation import Conversation
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


class TransactionManager:
    """The transactions of one producer.

    Args:
        config: the producer's settings; ``transactional_id`` is set.
        producer: gets the identity that the coordinator gives; asks for a new epoch.
        coordinators: where requests go.
        rng: jitter.
        wake: called when the sender should look again.
        drop_unsent: fails all batches that were never sent, and what has to be sent again, with the
            error.
        wait_for_sent: flushes, and returns when every batch has its outcome.
        on_fatal: called once, with the error after which nothing may be written any more.

    Attributes:
        state: where the producer stands.
        error: what brought it into one of the two error states.
        may_append: whether a record may be taken now; the cheap form of :meth:`check_may_send`.
        number: how many transactions were begun.
    """

    def __init__(
        self,
        config: ProducerConfig,
        producer: ProducerState,
        coordinators: CoordinatorRequests,
        rng: random.Random,
        *,
        wake: Callable[[], None],
        drop_unsent: Callable[[KafkaError], None],
        wait_for_sent: Callable[[], Awaitable[None]],
        on_fatal: Callable[[KafkaError], None],
    ) -> None:
        assert config.transactional_id is not None
        self.state = _S.UNINITIALIZED
        self.error: KafkaError | None = None
        self.may_append, self.number = False, 0
        self._id = config.transactional_id
        self._config = config
        self._conversation = Conversation(config, producer, coordinators, rng)
        self._wake, self._drop_unsent = wake, drop_unsent
        self._flush = Flush(wait_for_sent, self._spawn)
        self._on_fatal = on_fatal
        self._adding: Repetition | None = None
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
        return self._conversation.perhaps_begun and self.state is not _S.PREPARED

    @property
    def produce_adds_partitions(self) -> bool:
        """Whether brokers add partitions to the transaction by themselves, from Produce version 12
        on (KIP-890). Else no such version may be used.
        """
        return self._conversation.v2

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
        conversation = self._conversation
        if not conversation.v2 and tp not in conversation.added and self.state in _WRITING:
            conversation.to_add.add(tp)
            self._ensure_adding()

    def may_send(self, tp: TopicPartition) -> bool:
        """Whether the partition's batches may go to the broker now."""
        if self.state is _S.FATAL_ERROR:
            return False
        if self._conversation.v2 or tp in self._conversation.added:
            return True
        self.partition_used(tp)
        return False

    def batch_sent(self, tp: TopicPartition) -> None:
        """A batch leaves now: from here on something of the transaction may be in the partition."""
        self._conversation.perhaps_begun = True

    def batch_stored(self) -> None:
        """A broker has taken a batch, so the coordinator knows of the transaction."""
        self._conversation.begun = True

    def batch_failed(self, tp: TopicPartition, error: KafkaError) -> None:
        """A record or a batch of the transaction was given up: the transaction can't be committed
        any more.
        """
        failure = batch_failure(f"transactional_id={self._id!r}: {place_of(tp)}", error)
        if isinstance(failure, AbortableTransactionError):
            self._fail(failure)
        else:
            self.fail(failure)

    # -- calls -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Do what :meth:`init` does, as part of the producer's start: after a failure nothing goes
        on, and it may be called again.
        """
        self._check(Call.START, _S.UNINITIALIZED, _S.INITIALIZING)
        operation = self._running_init()
        try:
            await self._join(operation, self._deadline(), Call.START)
        finally:
            await operation.end()

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
        repetition = Repetition()
        self._offsets = self._start(
            Call.SEND_OFFSETS, self._commit_offsets(repetition, *arguments), repetition, arguments
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
        return self._conversation.prepared()

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
                and not self._ending.repetition.attempts
            ):
                self._ending.overtaken = True
                self._ending.task.cancel()
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
        if ended is None or ended.call is not call or not ended.succeeded_unseen:
            return False
        ended.seen = True
        return True

    # -- operations --------------------------------------------------------------------------------

    def _start(
        self,
        call: Call,
        work: Coroutine[Any, Any, None],
        repetition: Repetition,
        arguments: object = None,
    ) -> Operation:
        repetition.task = self._spawn(work, call.value)
        return Operation(call, repetition.task, repetition, arguments)

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
            repetition = Repetition()
            running = self._initializing = self._start(
                Call.INIT, self._initialize(repetition), repetition
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
            repetition = Repetition()
            works = {
                _S.PREPARING: (Call.PREPARE, self._prepare),
                _S.COMMITTING: (Call.COMMIT, self._commit),
                _S.ABORTING: (Call.ABORT, self._abort),
            }
            call, work = works[self.state]
            running = self._ending = self._start(call, work(repetition), repetition)
        return running

    async def _initialize(self, repetition: Repetition) -> None:
        try:
            await self._conversation.initialize(repetition)
        except FatalProducerError as error:
            self.fail(error)
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
            self._adding = repetition = Repetition()
            repetition.task = self._spawn(self._add_partitions(repetition), "add-partitions")
            # Should it have been killed: the sender asks again, and so starts it anew.
            repetition.task.add_done_callback(lambda _: self._wake())

    async def _add_partitions(self, repetition: Repetition) -> None:
        with self._failures_noted():
            await self._conversation.add_partitions(repetition, self._wake)

    async def _commit_offsets(
        self,
        repetition: Repetition,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
    ) -> None:
        with self._failures_noted():
            await self._conversation.commit_offsets(repetition, offsets, group)

    def _offsets_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() and self._closed is None and self.state in _WRITING:
            # Killed from outside, so they may be missing: a commit must not pass them by.
            self._fail(
                AbortableTransactionError(
                    ErrorCode.TRANSACTION_ABORTABLE,
                    "send_offsets_to_transaction() was cancelled from outside",
                )
            )

    async def _prepare(self, repetition: Repetition) -> None:
        with self._failures_noted():
            await self._all_written(Call.PREPARE, _S.PREPARING)
            self._go(_S.PREPARED)

    async def _commit(self, repetition: Repetition) -> None:
        with self._failures_noted():
            await self._all_written(Call.COMMIT, _S.COMMITTING)
            await self._conversation.end(repetition, commit=True)
            self._ended()

    async def _abort(self, repetition: Repetition) -> None:
        with self._failures_noted():
            self._conversation.to_add.clear()
            self._drop_unsent(
                TransactionAbortedError(
                    f"transactional_id={self._id!r}: the transaction was aborted before the "
                    "record was sent"
                )
            )
            for under_way in (
                self._adding,
                self._offsets.repetition if self._offsets is not None else None,
            ):
                if under_way is not None and under_way.task is not None:
                    under_way.stop()
                    await asyncio.wait([under_way.task])
            await self._outcomes()
            self._check(Call.ABORT, _S.ABORTING)
            await self._conversation.end(repetition, commit=False)
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
        self._conversation.forget_transaction()
        self._offsets = None
        self.error = None
        if not self._conversation.epoch_needed:
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
                self.fail(error)
            raise
        except Exception as error:
            raise self._fault(error) from error

    def _fault(self, error: Exception) -> KafkaError:
        log.error("transactional_id=%r: a fault of this library", self._id, exc_info=error)
        self.fail(
            fatal := KafkaError(f"transactional_id={self._id!r}: {error!r}; close this producer")
        )
        return fatal

    def _fail(self, error: AbortableTransactionError) -> None:
        if error.code == ErrorCode.UNKNOWN_PRODUCER_ID:
            self._conversation.epoch_needed = True
        if self.state not in _WRITING:
            return
        self._go(_S.ABORTABLE_ERROR)
        self.error = error
        log.warning("%s", error)
        self._give_up()
        # Not now: the sender may be in the middle of its batches.
        asyncio.get_running_loop().call_soon(self._drop_unsent, error)

    def fail(self, error: KafkaError) -> None:
        """The producer can't go on."""
        if self.state is _S.FATAL_ERROR:
            return
        self._go(_S.FATAL_ERROR)
        self.error = error
        log.error("%s", error)
        self._give_up()
        if self._offsets is not None:
            self._offsets.repetition.stop()
        asyncio.get_running_loop().call_soon(self._on_fatal, error)

    def _give_up(self) -> None:
        """What waits for records or partitions of the failed transaction need not wait on."""
        self._conversation.to_add.clear()
        if self._adding is not None:
            self._adding.stop()
        self._flush.give_up()
