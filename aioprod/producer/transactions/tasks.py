"""The work of transactions: each operation (init, offsets, prepare, commit, abort) runs in its own
task.

Callers only wait for it: after a caller was cancelled or has timed out it continues, and the next
call of the same method waits for it. A failure sets the state before any caller wakes. Decisions
are synchronous; an operation that was cancelled from outside can be restarted at any point.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Protocol

from aioprod.config.producer import ProducerConfig
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    AbortableTransactionError,
    FatalProducerError,
    KafkaError,
    TransactionAbortedError,
)
from aioprod.logs import Logger, get_logger
from aioprod.producer.sequences import ProducerState
from aioprod.producer.transactions.calls import Attempts
from aioprod.producer.transactions.coordinator_state import CoordinatorState
from aioprod.producer.transactions.operations import Flush, Operation
from aioprod.producer.transactions.states import Call, TransactionState, TransactionStatus
from aioprod.running_loop import start_task
from aioprod.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

log: Logger = get_logger(__name__)

_S = TransactionState
_CLOSE_TIMEOUT_S = 1.0
# A failure in these states fails the transaction.
WRITING = (_S.IN_TRANSACTION, _S.PREPARING, _S.COMMITTING)


class TransactionBatches(Protocol):
    """The methods used of :class:`aioprod.producer.accumulator.RecordAccumulator`."""

    def drop_unsent(self, error: KafkaError, /) -> None:
        """Fail the batches that were never sent, and those that would have to be sent again."""

    async def flush(self) -> None:
        """Return when every batch has its outcome; no batch lingers until then."""

    def abort(self, error: KafkaError, /) -> None:
        """Fail every batch, and refuse further records."""


class TransactionTasks:
    """Runs the operations of one producer's transactions, and turns their failures into state.

    Args:
        producer: knows whether the next transaction needs a new epoch.
        session: sends the requests to coordinators.
        status: the producer's state.
        batches: the producer's batches.
        wake: called when the sender has to run.

    Attributes:
        offsets: the last operation that sent offsets in this transaction.
    """

    def __init__(
        self,
        config: ProducerConfig,
        producer: ProducerState,
        session: CoordinatorState,
        status: TransactionStatus,
        batches: TransactionBatches,
        wake: Callable[[], None],
    ) -> None:
        assert config.transactional_id is not None
        self.offsets: Operation | None = None
        self._id = config.transactional_id
        self._client_id = config.client_id
        self._producer = producer
        self._session = session
        self._status = status
        self._batches = batches
        self._wake = wake
        self._flush = Flush(batches.flush)
        self._adding: Attempts | None = None
        self._awaiting: asyncio.Task[None] | None = None
        self._ending: Operation | None = None
        self._initializing: Operation | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # -- operations --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Open a transaction, which needs no request."""
        self._ending = None
        self._status.begin()

    def take_unseen_success(self, call: Call) -> bool:
        """Return whether this call succeeded while no caller waited for it, and mark the outcome as
        seen: the method was called again.
        """
        ended = self._ending
        return ended is not None and ended.call is call and ended.take_unseen_success()

    @property
    def outcome_was_seen(self) -> bool:
        """True if a caller has received the result of the last prepare, commit or abort."""
        return self._ending is not None and self._ending.seen

    def overtake_commit(self) -> bool:
        """End a commit or a prepare that was not sent to the coordinator; return whether one was
        running.
        """
        ending = self._ending
        if (
            self._status.state not in (_S.PREPARING, _S.COMMITTING)
            or ending is None
            or ending.attempts.count
        ):
            return False
        ending.overtake()
        return True

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> Operation:
        """Start to add offsets to the transaction."""
        attempts = Attempts()
        self.offsets = self._start(
            Call.SEND_OFFSETS,
            self._commit_offsets(attempts, offsets, group),
            attempts,
            (offsets, group),
        )
        self.offsets.task.add_done_callback(self._offsets_ended)
        return self.offsets

    def stop(self) -> None:
        """Cancel all tasks."""
        for task in list(self._tasks):
            task.cancel()

    async def close(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        self.stop()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=_CLOSE_TIMEOUT_S)

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
        task = start_task(work, name=f"aioprod-{name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Retrieve the exception: no caller may wait, and the state has the failure.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    def running_init(self) -> Operation:
        """Return the operation that gets a producer id or epoch; start it if it is not running."""
        running = self._initializing
        if running is None or not running.in_progress:
            if self._status.state is not _S.INITIALIZING:
                self._status.go(_S.INITIALIZING)
            attempts = Attempts()
            running = self._initializing = self._start(
                Call.INIT, self._initialize(attempts), attempts
            )
        return running

    def towards(self, state: TransactionState) -> Operation:
        """Enter a state, and return the operation that belongs to it."""
        if self._status.state is not state:
            self._status.go(state)
            self._ending = None
        return self.running_end()

    def running_end(self) -> Operation:
        """Return the operation that prepares or ends the transaction, by the state; start it if it
        is not running.
        """
        running = self._ending
        if running is None or not running.in_progress:
            attempts = Attempts()
            works = {
                _S.PREPARING: (Call.PREPARE, self._prepare),
                _S.COMMITTING: (Call.COMMIT, self._commit),
                _S.ABORTING: (Call.ABORT, self._abort),
            }
            call, work = works[self._status.state]
            running = self._ending = self._start(call, work(attempts), attempts)
        return running

    async def _initialize(self, attempts: Attempts) -> None:
        try:
            await self._session.initialize(attempts)
        except FatalProducerError as error:
            self.fail_permanently(error)
            raise
        except KafkaError:
            self._status.go(_S.UNINITIALIZED)
            raise
        except Exception as error:
            raise self._fault(error) from error
        self._status.go(_S.READY)

    def add_partition(self, tp: TopicPartition) -> None:
        """Start to add a partition to the transaction (first protocol)."""
        self._session.to_add.add(tp)
        running = self._adding
        if running is None or running.task is None or running.task.done():
            # The task runs after its caller's turn, so one request adds all its partitions.
            self._adding = attempts = Attempts()
            task = self._spawn(self._add_partitions(attempts), "add-partitions")
            attempts.run_by(task)
            # If it is cancelled from outside, the sender asks again, which starts another task.
            task.add_done_callback(lambda _: self._wake())

    def await_previous_end(self) -> bool:
        """Start to wait for the end of the previous transaction, which wakes the sender. Return
        False: no records may be sent before.
        """
        if self._awaiting is None or self._awaiting.done():
            self._awaiting = self._spawn(self._session.previous.wait(), "await-previous-end")
            self._awaiting.add_done_callback(lambda _: self._wake())
        return False

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
        if task.cancelled() and self._status.closed is None and self._status.state in WRITING:
            # The offsets may be missing: the transaction must not be committed.
            self.fail(
                AbortableTransactionError(
                    ErrorCode.TRANSACTION_ABORTABLE,
                    "send_offsets_to_transaction() was cancelled from outside",
                )
            )

    async def _prepare(self, attempts: Attempts) -> None:
        with self._failures_noted():
            await self._all_written(Call.PREPARE, _S.PREPARING)
            self._status.go(_S.PREPARED)

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
            for in_progress in (
                self._adding,
                self.offsets.attempts if self.offsets is not None else None,
            ):
                if in_progress is not None and in_progress.task is not None:
                    in_progress.stop()
                    await asyncio.wait([in_progress.task])
            await self._outcomes()
            self._status.check(Call.ABORT, _S.ABORTING)
            await self._session.end(attempts, commit=False)
            self._ended()

    async def _all_written(self, call: Call, state: TransactionState) -> None:
        """Wait until all records of the transaction are written; raise if one has failed, or if the
        state has changed.
        """
        await self._outcomes()
        if self.offsets is not None:
            await asyncio.wait([self.offsets.task])
        self._status.check(call, state)

    async def _outcomes(self) -> None:
        """Wait until all batches have their outcome, or until the state changes."""
        state = self._status.state
        await self._flush.run(lambda: self._status.state is state)

    def _ended(self) -> None:
        """Prepare for the next transaction."""
        self._session.forget_transaction()
        self.offsets = None
        self._status.end()
        if not self._producer.epoch_needed:
            self._status.go(_S.READY)
        else:
            # The call that ends the transaction does not wait for this; the next begin() does.
            self._status.go(_S.INITIALIZING)
            if self._status.closed is None:
                self.running_init()

    # -- failures ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _failures_noted(self) -> Iterator[None]:
        """Set the state after an exception of an operation."""
        try:
            yield
        except KafkaError as error:
            if error is not self._status.closed:
                self.fail(error)
            raise
        except Exception as error:
            raise self._fault(error) from error

    def _fault(self, error: Exception) -> KafkaError:
        fatal = KafkaError(f"transactional_id={self._id!r}: {error!r}; close this producer")
        self.fail_permanently(fatal)
        log.error(
            "%s: transactional_id=%r: unexpected error; please report it",
            self._client_id,
            self._id,
            exc_info=error,
        )
        return fatal

    def fail(self, error: AbortableTransactionError | KafkaError) -> None:
        """Fail the transaction, or the producer if the error is not an abortable one."""
        if not isinstance(error, AbortableTransactionError):
            self.fail_permanently(error)
            return
        if error.code == ErrorCode.UNKNOWN_PRODUCER_ID:
            self._producer.request_epoch()
        if self._status.state not in WRITING:
            return
        self._status.go(_S.ABORTABLE_ERROR, error)
        # Later: the sender may be iterating over its batches.
        asyncio.get_running_loop().call_soon(self._batches.drop_unsent, error)
        self._give_up()
        log.warning("%s: %s", self._client_id, error)

    def fail_permanently(self, error: KafkaError) -> None:
        """Fail the producer."""
        if self._status.state is _S.FATAL_ERROR:
            return
        self._status.go(_S.FATAL_ERROR, error)
        asyncio.get_running_loop().call_soon(self._batches.abort, error)
        self._give_up()
        if self.offsets is not None:
            self.offsets.attempts.stop()
        log.error("%s: %s", self._client_id, error)

    def _give_up(self) -> None:
        """End the waits for records or partitions of the failed transaction."""
        self._session.to_add.clear()
        if self._adding is not None:
            self._adding.stop()
        self._flush.give_up()
