"""Exactly once: outputs and positions are committed in one transaction (KIP-447).

Handlers run on while a transaction is committed. The outputs of a record are kept until all earlier
records of its partition are done. Then a transaction sends them together with the position after
them. If the transaction is aborted, the next one sends the same outputs and positions. No handler
is called a second time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextvars import Context
from dataclasses import dataclass

from aioprod import (
    AbortableTransactionError,
    Consumer,
    ConsumerGroupMetadata,
    FatalProducerError,
    KafkaError,
    KafkaTimeoutError,
    OffsetAndMetadata,
    Producer,
    ProducerRecord,
    TransactionAbortedError,
)
from aioprod.logs import Logger, get_logger
from aioprod.processing.guarantees import Guarantee, changed_positions
from aioprod.processing.observers import ProcessorMetrics
from aioprod.processing.partitions import PartitionProgress
from aioprod.processing.scheduling import Item
from aioprod.running_loop import start_task

log: Logger = get_logger(__name__)

# After these errors the next transaction may succeed: the group rebalanced, a broker was down.
_MAY_SUCCEED = (AbortableTransactionError, KafkaTimeoutError, TransactionAbortedError)
_RETRY_S = 0.1
_CLOSE_S = 1.0


@dataclass(slots=True)
class _Part:
    """One partition's part of a transaction."""

    position: OffsetAndMetadata
    records: int
    outputs: list[ProducerRecord]


_Parts = dict[PartitionProgress, _Part]


class ExactlyOnce(Guarantee):
    """One transaction at a time, with the outputs of all records before a position.

    Args:
        interval_s: how long a transaction collects outputs.
        pressing: the number of completed records of a partition at which a transaction begins
            before that.
        failing_limit_s: how long transactions may fail before the processor stops.
        on_change: called when records were committed.
        on_failure: called with the error if the producer can't continue.
    """

    sends_ahead = False  # outputs wait for the transaction

    def __init__(
        self,
        consumer: Consumer,
        producer: Producer,
        metrics: ProcessorMetrics,
        interval_s: float,
        pressing: int,
        failing_limit_s: float,
        on_change: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._consumer = consumer
        self._producer = producer
        self._metrics = metrics
        self._interval_s = interval_s
        self._pressing = pressing
        self._failing_limit_s = failing_limit_s
        self._failing_since: float | None = None
        self._on_change = on_change
        self._on_failure = on_failure
        self._due = 0.0
        self._task: asyncio.Task[None] | None = None
        self._failed = False
        self._pressed = False

    async def deliver(self, items: Sequence[Item], outputs: Sequence[ProducerRecord]) -> None:
        """Keep the outputs for the transaction that commits the position after the records.

        The records of several items are consecutive in one partition, so a position is after all of
        them or before all of them.
        """
        for item in items[:-1]:
            item.partition.completed.complete(item.record.offset)
        last = items[-1]
        last.partition.completed.complete(last.record.offset, outputs)
        if last.partition.completed.uncommitted >= self._pressing:
            self._pressed = True

    def backlog(self, partition: PartitionProgress) -> int:
        """Return the number of records that are not committed by a transaction."""
        return partition.completed.incomplete + partition.completed.uncommitted

    def is_pressing(self) -> bool:
        """Return whether a transaction should begin before the end of the interval."""
        return self._pressed and self._failing_since is None and not self._is_running

    @property
    def _is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def commit_if_due(self, now: float, partitions: Collection[PartitionProgress]) -> None:
        """Begin a transaction with all completed records, unless one is in progress."""
        if self._is_running or self._failed:
            return
        if now < self._due and not self.is_pressing():
            return
        self._due = now + self._interval_s
        self._begin(partitions)

    async def commit_now(self, partitions: Collection[PartitionProgress], deadline: float) -> None:
        """Commit the completed records of these partitions, after the transaction in progress."""
        loop = asyncio.get_running_loop()
        while not self._failed:
            if self._is_running:
                assert self._task is not None
                # Not cancelled at the deadline: its outcome would be unknown, and it may have other
                # partitions, which stay assigned.
                await asyncio.wait([self._task], timeout=max(deadline - loop.time(), 0))
            if self._is_running or loop.time() >= deadline or not self._begin(partitions):
                return
            if self._failing_since is not None:
                await asyncio.sleep(_RETRY_S)

    async def close(self) -> None:
        """End the transaction in progress; the producer aborts it."""
        if self._is_running:
            assert self._task is not None
            self._task.cancel()
            await asyncio.wait([self._task], timeout=_CLOSE_S)

    # -- one transaction ---------------------------------------------------------------------------

    def _begin(self, partitions: Collection[PartitionProgress]) -> bool:
        parts = {
            partition: _Part(position, records, list(partition.completed.outputs))
            for partition, (position, records) in changed_positions(partitions).items()
        }
        self._pressed = False
        if not parts:
            return False
        member = self._consumer.group_metadata()
        # An empty context: it sends outputs of many handlers, so no handler's context fits.
        self._task = start_task(
            self._run(parts, member), name="aioprod-transaction", context=Context()
        )
        return True

    async def _run(self, parts: _Parts, member: ConsumerGroupMetadata) -> None:
        now = asyncio.get_running_loop().time
        try:
            await self._transact(parts, member)
        except _MAY_SUCCEED as error:
            if self._failing_since is None:
                self._failing_since = now()
                log.warning("a transaction was aborted; retrying: %s", error)
            if now() - self._failing_since >= self._failing_limit_s:
                self._fail(error)
            self._due = now() + _RETRY_S
        except Exception as error:
            self._fail(error)
        else:
            self._failing_since = None
            for partition, part in parts.items():
                partition.completed.committed(part.position.offset, part.records, len(part.outputs))
            self._metrics.committed({each.tp: part.position.offset for each, part in parts.items()})
        self._on_change()

    def _fail(self, error: BaseException) -> None:
        self._failed = True
        self._on_failure(error)

    async def _transact(self, parts: _Parts, member: ConsumerGroupMetadata) -> None:
        """Commit outputs and positions.

        Raises:
            KafkaError: one of ``_MAY_SUCCEED`` if nothing was committed; another one if the outcome
                is unknown, or a retry does not help.
        """
        producer = self._producer
        await producer.begin_transaction()
        try:
            for part in parts.values():
                for output in part.outputs:
                    await producer.send(*output)
            positions = {partition.tp: part.position for partition, part in parts.items()}
            await producer.send_offsets_to_transaction(positions, member)
            await self._until_done(producer.commit_transaction)
        except FatalProducerError:
            raise
        except KafkaError:
            try:
                await self._until_done(producer.abort_transaction)
            except KafkaError as problem:
                raise _unknown(problem) from problem
            raise

    async def _until_done(self, call: Callable[[], Awaitable[None]]) -> None:
        """Retry after timeouts: the operation continues meanwhile, and its outcome is returned.

        Raises:
            KafkaError: if it has no outcome within the limit.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._failing_limit_s
        while True:
            try:
                return await call()
            except KafkaTimeoutError as error:
                if loop.time() >= deadline:
                    raise _unknown(error) from error
                log.warning("waiting for the transaction coordinator: %s", error)


def _unknown(error: KafkaError) -> KafkaError:
    return KafkaError(f"it is not known whether a transaction was committed: {error}")
