"""The transactions of one producer: the interface for the send path, the sender and the public
calls. :mod:`aioprod.producer.transactions.tasks` does the work.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from aioprod.closing import all_in_turn
from aioprod.config.producer import ProducerConfig
from aioprod.errors import KafkaError, ProducerFencedError
from aioprod.metrics import ProducerMetrics
from aioprod.producer.batch import ProducerBatch, place_of
from aioprod.producer.sequences import ProducerState
from aioprod.producer.transactions import requests
from aioprod.producer.transactions.calls import CoordinatorRequests
from aioprod.producer.transactions.coordinator_state import CoordinatorState, TopicIdLookup
from aioprod.producer.transactions.operations import Operation
from aioprod.producer.transactions.reply_actions import batch_failure
from aioprod.producer.transactions.states import Call, TransactionState, TransactionStatus
from aioprod.producer.transactions.tasks import WRITING, TransactionBatches, TransactionTasks
from aioprod.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    PreparedTransaction,
    TopicPartition,
)

_S = TransactionState


class TransactionManager:
    """The transactions of one producer.

    Args:
        config: the producer's settings; ``transactional_id`` is set.
        producer: gets the producer id and epoch from the coordinator; requests new epochs.
        coordinators: sends requests to coordinators.
        topic_ids: returns the ids of topics; none if one is not known.
        batches: the producer's batches.
        metrics: gets the time that :meth:`start` takes.
        rng: source of jitter.
        wake: called when the sender has to run.

    Attributes:
        status: the producer's state.
    """

    status: TransactionStatus

    transactional: Final = True
    lost: Final = 0
    producer_id_error: Final = None

    def __init__(
        self,
        config: ProducerConfig,
        producer: ProducerState,
        coordinators: CoordinatorRequests,
        topic_ids: TopicIdLookup,
        batches: TransactionBatches,
        metrics: ProducerMetrics,
        rng: random.Random,
        wake: Callable[[], None],
    ) -> None:
        assert config.transactional_id is not None
        self.status = status = TransactionStatus(config.transactional_id)
        self._id = config.transactional_id
        self._config = config
        self._batches = batches
        self._metrics = metrics
        self._session = session = CoordinatorState(config, producer, coordinators, topic_ids, rng)
        self._tasks = TransactionTasks(config, producer, session, status, batches, wake)

    @property
    def state(self) -> TransactionState:
        """The producer's state."""
        return self.status.state

    @property
    def error(self) -> KafkaError | None:
        """The cause of an error state; None in other states."""
        return self.status.error

    # -- for the send path and the sender ----------------------------------------------------------

    @property
    def in_transaction(self) -> bool:
        """True if a transaction is open and no commit or abort is ending it yet."""
        return self.state in (_S.IN_TRANSACTION, _S.PREPARING, _S.PREPARED, _S.ABORTABLE_ERROR)

    @property
    def blocks_readers(self) -> bool:
        """True if the coordinator may have an open transaction, which blocks consumers of committed
        records until this producer, or its timeout, ends it.
        """
        return (
            self._session.perhaps_begun
            and self.state is not _S.PREPARED
            and not isinstance(self.error, ProducerFencedError)
        )

    @property
    def produce_adds_partitions(self) -> bool:
        """True if brokers add partitions to the transaction, from Produce version 12 on (KIP-890).
        If not, no such version may be used.
        """
        return self._session.v2

    def check_may_send(self) -> None:
        """Check that a record may be appended now.

        Raises:
            TransactionStateError: if no transaction is open.
            AbortableTransactionError, FatalProducerError: if the transaction, or the producer, has
                failed.
        """
        if not self.status.may_append:
            self.status.check(Call.SEND, _S.IN_TRANSACTION)

    def partition_used(self, tp: TopicPartition) -> None:
        """Add a partition to the transaction, or wait until that is possible: a batch was opened
        for it.
        """
        session = self._session
        if session.v2:
            if session.previous.awaited:
                self._tasks.await_previous_end()
        elif tp not in session.added and self.state in WRITING:
            self._tasks.add_partition(tp)

    def ensure_producer_id(self) -> None:
        """Do nothing: :meth:`start` has got one."""

    def manager(self) -> TransactionManager:
        """Return this object."""
        return self

    def may_send(self, tp: TopicPartition) -> bool:
        """Return whether the partition's batches may be sent now."""
        if self.state is _S.FATAL_ERROR:
            return False
        session = self._session
        if session.v2:
            return not session.previous.awaited or self._tasks.await_previous_end()
        if tp in session.added:
            return True
        self.partition_used(tp)
        return False

    def batch_sent(self, tp: TopicPartition) -> None:
        """Note that a batch is sent: the partition may have records of the transaction now."""
        self._session.batch_sent()

    def batch_stored(self) -> None:
        """Note that a batch is stored, so the coordinator knows the transaction."""
        self._session.batch_stored()

    def batch_failed(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Fail the transaction: a batch of it has failed. The caller that ends the transaction gets
        the error, so the batch's failure counts as seen.
        """
        self.record_refused(batch.tp, error)
        batch.failure()

    def record_refused(self, tp: TopicPartition, error: KafkaError) -> None:
        """Fail the transaction: a record of it is lost."""
        where = f"transactional_id={self._id!r}: {place_of(tp)}"
        self._tasks.fail(batch_failure(where, error))

    def fail(self, error: KafkaError) -> None:
        """Fail the producer: all records without an outcome, and all later calls."""
        # Set the state first; otherwise a running commit would take the end of its batches for
        # success.
        all_in_turn(
            (partial(self._tasks.fail_permanently, error), partial(self._batches.abort, error))
        )

    # -- calls -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Do what :meth:`init` does, as part of the producer's start. After a failure no task runs,
        and it may be called again.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            self.status.check(Call.START, _S.UNINITIALIZED, _S.INITIALIZING)
            operation = self._tasks.running_init()
            try:
                await self._join(operation, self._deadline(), Call.START)
            finally:
                await operation.cancel()
        finally:
            self._metrics.transaction_step("init", loop.time() - started)

    async def init(self) -> None:
        """Get the producer id, unless :meth:`start` has done so. That fences an older producer and
        aborts its open transaction.

        Raises:
            TransactionStateError: if a transaction is open.
            KafkaTimeoutError: if it takes longer than ``max_block_ms``. It continues; call again to
                wait for it.
            FatalProducerError: if the coordinator refuses, and would refuse every later call.
            BrokerError: if an ACL is missing.
        """
        self.status.check(Call.INIT, _S.UNINITIALIZED, _S.INITIALIZING, _S.READY)
        if self.state is not _S.READY:
            await self._join(self._tasks.running_init(), self._deadline(), Call.INIT)

    async def begin(self) -> None:
        """Open a transaction. This sends no request, unless :meth:`init` has to run first.

        Wait for a commit or abort that still runs.

        Raises:
            TransactionStateError: if one is open already.
            KafkaError: see :meth:`init`; and if an earlier transaction has failed and is not
                aborted.
        """
        deadline = self._deadline()
        while self.state is not _S.READY or self.status.closed is not None:
            self.status.check(
                Call.BEGIN, _S.UNINITIALIZED, _S.INITIALIZING, _S.COMMITTING, _S.ABORTING
            )
            in_progress = (
                self._tasks.running_end()
                if self.state in (_S.COMMITTING, _S.ABORTING)
                else self._tasks.running_init()
            )
            await self._join(in_progress, deadline, Call.BEGIN)
        self._tasks.begin()

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group: str | ConsumerGroupMetadata,
    ) -> None:
        """Add a consumer group's positions to the transaction (KIP-447).

        Raises:
            SerializationError: if an argument has the wrong type or is outside its limits.
            TransactionStateError: if no transaction is open.
            KafkaTimeoutError: if it takes longer than ``max_block_ms``. It continues; make the same
                call again to wait for it.
            AbortableTransactionError: if the coordinator refuses, for example because the group's
                member was replaced; abort.
            FatalProducerError: if the coordinator accepts nothing more from this producer.
        """
        self.status.check(Call.SEND_OFFSETS, _S.IN_TRANSACTION)
        arguments = (requests.checked_offsets(offsets), requests.checked_group(group))
        if not arguments[0]:
            return
        deadline = self._deadline()
        while (running := self._tasks.offsets) is not None and running.in_progress:
            if running.arguments == arguments:
                await self._join(running, deadline, Call.SEND_OFFSETS)
                return
            await running.wait(Call.SEND_OFFSETS, self._config.max_block_ms, deadline)
            self.status.check(Call.SEND_OFFSETS, _S.IN_TRANSACTION)
        operation = self._tasks.send_offsets(*arguments)
        await self._join(operation, deadline, Call.SEND_OFFSETS)

    async def prepare(self) -> PreparedTransaction | None:
        """Write all records, and leave the transaction open. Return the data with which another
        process can end it; None if nothing was written.

        Raises:
            KafkaError: see :meth:`commit`.
        """
        deadline = self._deadline()
        if not self._tasks.take_unseen_success(Call.PREPARE):
            self.status.check(Call.PREPARE, _S.IN_TRANSACTION, _S.PREPARING, _S.PREPARED)
            if self.state is not _S.PREPARED:
                await self._join(self._tasks.towards(_S.PREPARING), deadline, Call.PREPARE)
        return self._session.prepared()

    async def commit(self) -> None:
        """Write all records, then make them visible together.

        Raises:
            TransactionStateError: if no transaction is open.
            AbortableTransactionError: if part of it has failed; abort.
            KafkaTimeoutError: if it takes longer than ``max_block_ms``. It continues; call again to
                wait for it.
            TransactionAbortedError: if another task has aborted it during the call.
            FatalProducerError: if the producer has failed. Whether the commit happened is unknown,
                also to a new producer.
        """
        deadline = self._deadline()
        if not self._tasks.take_unseen_success(Call.COMMIT):
            self.status.check(Call.COMMIT, _S.IN_TRANSACTION, _S.PREPARED, _S.COMMITTING)
            await self._join(self._tasks.towards(_S.COMMITTING), deadline, Call.COMMIT)

    async def abort(self) -> None:
        """Drop the unsent records; consumers that read committed records never see the sent ones.

        An abort replaces a commit that was not sent to the coordinator yet.

        Raises:
            TransactionStateError: if no transaction is open, or its commit is in flight.
            KafkaTimeoutError: if it takes longer than ``max_block_ms``. It continues; call again to
                wait for it.
            FatalProducerError: if the producer has failed. The written records stay invisible.
        """
        deadline = self._deadline()
        if not self._tasks.take_unseen_success(Call.ABORT):
            if not self._tasks.overtake_commit():
                self.status.check(
                    Call.ABORT,
                    _S.IN_TRANSACTION,
                    _S.PREPARING,
                    _S.PREPARED,
                    _S.ABORTABLE_ERROR,
                    _S.ABORTING,
                )
            await self._join(self._tasks.towards(_S.ABORTING), deadline, Call.ABORT)

    async def end_transaction(self) -> None:
        """End the open transaction before the producer closes: wait for its commit or abort, or
        abort it. A prepared transaction is left for the process that ends it.

        Raises:
            KafkaError: see :meth:`commit` and :meth:`abort`.
        """
        if self.state is _S.COMMITTING:
            await self._join(self._tasks.running_end(), self._deadline(), Call.COMMIT)
        elif self.state is _S.PREPARED and self._tasks.outcome_was_seen:
            return
        elif self.in_transaction or self.state is _S.ABORTING:
            await self.abort()

    def stop(self) -> None:
        """Cancel all operations at once, before the producer fails the remaining batches: a commit
        must not take their end for success.
        """
        self.status.close()
        self._tasks.stop()

    async def close(self) -> None:
        """Stop, and wait until all tasks have ended; their callers get ProducerClosedError."""
        self.stop()
        await self._tasks.close()

    # -- waiting -----------------------------------------------------------------------------------

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._config.max_block_ms / 1000

    async def _join(self, operation: Operation, deadline: float, call: Call) -> None:
        """Wait until an operation has ended, and raise its error if it failed."""
        await operation.wait(call, self._config.max_block_ms, deadline)
        operation.raise_failure(call, self.status.closed or self.error)
