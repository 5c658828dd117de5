"""The producer's calls for transactions, apart from those for sending: a base class of
:class:`aioprod.Producer`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Any, Self

from aioprod.errors import KafkaError
from aioprod.metrics import ProducerMetrics, TransactionStep
from aioprod.producer.transactions.gate import Transactions
from aioprod.producer.transactions.manager import TransactionManager
from aioprod.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    PreparedTransaction,
    TopicPartition,
)


class TransactionInterface:
    """Exactly-once over several partitions and consumed offsets (KIP-98, KIP-447, KIP-890); needs
    ``transactional_id``.
    """

    _transactions: Transactions
    _metrics: ProducerMetrics

    def _check_running(self) -> None:
        """Raise where the producer is closed or not started."""
        raise NotImplementedError

    def _now(self) -> float:
        """Seconds of the event loop's clock."""
        raise NotImplementedError

    async def init_transactions(self) -> None:
        """Make certain that older producers with the same ``transactional_id`` are fenced off, and
        their open transactions aborted.

        ``start`` has done that already, so this returns at once. It is there for code that is
        written for Java's producer or librdkafka's, where it has to be called. Waits at most
        ``max_block_ms``, where the coordinator has to be asked for a new epoch.

        Raises:
            TransactionStateError: no ``transactional_id`` is set, or a transaction is open.
            KafkaTimeoutError: it goes on behind the scenes: call again to go on waiting.
            FatalProducerError: not allowed.
        """
        await self._timed("init", self._transactional().init())

    async def begin_transaction(self) -> None:
        """Open a transaction. Where :meth:`init_transactions` was not called this does the same,
        within ``max_block_ms``.

        Raises:
            TransactionStateError: one is open already.
        """
        await self._timed("begin", self._transactional().begin())

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group_metadata: str | ConsumerGroupMetadata,
    ) -> None:
        """Commit positions of a consumer group with this transaction (KIP-447): both happen, or
        neither. Waits at most ``max_block_ms``.

        Args:
            offsets: for each partition the offset of the next record to read.
            group_metadata: of the consumer that read the records; a group's name alone does not
                fence off a replaced member.

        Raises:
            AbortableTransactionError: the member was replaced, or the group refuses: abort.
        """
        await self._timed(
            "send-offsets", self._transactional().send_offsets(offsets, group_metadata)
        )

    async def prepare_transaction(self) -> PreparedTransaction | None:
        """Have all records written, and leave the transaction open for whoever is to end it, here
        or in another process.

        ``close`` leaves a prepared transaction alone, so that it outlives the producer until
        ``transaction_timeout_ms`` is over. This producer may still commit or abort it, and can
        begin no other before.

        Returns:
            What the transaction is ended with; None where nothing was written, so that there is
            nothing to end.

        Raises:
            TransactionStateError: no transaction is open.
            KafkaTimeoutError: not done within ``max_block_ms``. It goes on; call again to go on
                waiting.
            KafkaError: a record of the transaction failed; abort.
        """
        return await self._transactional().prepare()

    async def commit_transaction(self) -> None:
        """Send what is left, then make all of the transaction visible. Waits at most
        ``max_block_ms``; after a time-out call it again.

        Raises:
            KafkaError: a record of the transaction failed; abort.
        """
        await self._timed("commit", self._transactional().commit())

    async def abort_transaction(self) -> None:
        """Drop what was not sent, and have the rest never seen by consumers that read committed
        records. Waits at most ``max_block_ms``.
        """
        await self._timed("abort", self._transactional().abort())

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """``async with producer.transaction():`` commits at the end, and aborts where the block
        raises or is cancelled.

        Beginning, committing and aborting wait at most ``max_block_ms`` each.
        """
        await self.begin_transaction()
        try:
            yield self
            await self.commit_transaction()
        except BaseException:
            # The block's own error is what the caller has to see; the abort runs in a task of the
            # manager's.
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
