"""The producer's calls for transactions: a base class of :class:`aioprod.Producer`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Self

from aioprod.errors import KafkaError
from aioprod.metrics import ProducerMetrics, TransactionStep
from aioprod.producer.transactions.gate import Transactions
from aioprod.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    PreparedTransaction,
    TopicPartition,
)

if TYPE_CHECKING:
    from aioprod.producer.transactions.manager import TransactionManager


class TransactionInterface:
    """Exactly-once over several partitions and consumed offsets (KIP-98, KIP-447, KIP-890); needs
    ``transactional_id``.
    """

    _transactions: Transactions
    _metrics: ProducerMetrics

    def _check_running(self) -> None:
        """Raise an error if the producer is closed or not started."""
        raise NotImplementedError

    def _now(self) -> float:
        """Return the event loop's time in seconds."""
        raise NotImplementedError

    async def init_transactions(self) -> None:
        """Fence older producers with the same ``transactional_id``, and abort their transactions.

        ``start`` has done so already, so this returns at once. It exists for code written for
        Java's producer or librdkafka, which require the call. If a new epoch is needed, wait for it
        at most ``max_block_ms``.

        Raises:
            TransactionStateError: if no ``transactional_id`` is set, or a transaction is open.
            KafkaTimeoutError: if it takes longer. It continues; call again to wait for it.
            FatalProducerError: if the coordinator refuses, and would refuse every later call.
        """
        await self._timed("init", self._transactional().init())

    async def begin_transaction(self) -> None:
        """Open a transaction; wait at most ``max_block_ms`` for the end of the previous one.

        Raises:
            TransactionStateError: if one is open already.
        """
        await self._timed("begin", self._transactional().begin())

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group_metadata: str | ConsumerGroupMetadata,
    ) -> None:
        """Commit a consumer group's positions with this transaction (KIP-447): either both take
        effect, or neither. Wait at most ``max_block_ms``.

        Args:
            offsets: the offset of the next record to read, by partition.
            group_metadata: ``consumer.group_metadata()`` of the consumer that read the records. A
                group id alone does not fence a replaced member.

        Raises:
            AbortableTransactionError: if the member was replaced, or the group refuses; abort.
        """
        await self._timed(
            "send-offsets", self._transactional().send_offsets(offsets, group_metadata)
        )

    async def prepare_transaction(self) -> PreparedTransaction | None:
        """Write all records, and leave the transaction open to be ended here or by another process.

        ``close`` does not end a prepared transaction: it stays open until
        ``transaction_timeout_ms`` has passed. This producer can still commit or abort it, and can't
        begin another one before.

        Returns:
            The data with which another process can end the transaction; None if nothing was
            written.

        Raises:
            TransactionStateError: if no transaction is open.
            KafkaTimeoutError: if it takes longer than ``max_block_ms``. It continues; call again to
                wait for it.
            KafkaError: if a record of the transaction has failed; abort.
        """
        return await self._transactional().prepare()

    async def commit_transaction(self) -> None:
        """Send the remaining records, then make the whole transaction visible. Wait at most
        ``max_block_ms``; after a timeout, call it again.

        Raises:
            KafkaError: if a record of the transaction has failed; abort.
        """
        await self._timed("commit", self._transactional().commit())

    async def abort_transaction(self) -> None:
        """Drop the unsent records; consumers that read committed records never see the sent ones.
        Wait at most ``max_block_ms``.
        """
        await self._timed("abort", self._transactional().abort())

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Run an ``async with`` block in a transaction: commit at its end, abort if it raises or is
        cancelled.

        Begin, commit and abort wait at most ``max_block_ms`` each.
        """
        await self.begin_transaction()
        try:
            yield self
            await self.commit_transaction()
        except BaseException:
            # The caller has to get the block's error. The abort continues in its own task.
            with contextlib.suppress(KafkaError):
                if self._transactions.in_transaction:
                    await self.abort_transaction()
            raise

    async def _timed(self, step: TransactionStep, operation: Coroutine[Any, Any, None]) -> None:
        started = self._now()
        try:
            await operation
        finally:
            self._metrics.transaction_step(step, self._now() - started)

    def _transactional(self) -> TransactionManager:
        manager = self._transactions.manager()
        self._check_running()
        return manager
