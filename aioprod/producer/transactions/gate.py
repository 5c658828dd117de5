"""The interface of transactions to the rest of the producer, and its implementation without
``transactional_id``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from aioprod.cluster.runtime import ClientRuntime
from aioprod.config.producer import ProducerConfig
from aioprod.counts import counted
from aioprod.errors import KafkaError, TransactionStateError
from aioprod.logs import Logger, get_logger
from aioprod.metrics import ProducerMetrics
from aioprod.net.backoff import Backoff
from aioprod.net.brokers import Brokers
from aioprod.net.refusals import principal_of
from aioprod.producer.accumulator import RecordAccumulator
from aioprod.producer.batch import ProducerBatch
from aioprod.producer.producer_id import ProducerIdRequest
from aioprod.producer.sequences import ProducerState
from aioprod.types import TopicPartition

if TYPE_CHECKING:
    from aioprod.producer.transactions.manager import TransactionManager

log: Logger = get_logger(__name__)


class SendStatus(Protocol):
    """The state that each call that sends checks.

    Attributes:
        may_append: whether a record may be appended now; the cheap form of
            :meth:`Transactions.check_may_send`.
        number: the number of the current transaction, or of the last one; None without
            transactions.
    """

    @property
    def may_append(self) -> bool: ...

    @property
    def number(self) -> int | None: ...


class AlwaysOpen:
    """The status of a producer without transactions: every record may be appended."""

    __slots__ = ("may_append", "number")

    def __init__(self) -> None:
        self.may_append: bool = True
        self.number: int | None = None


class Transactions(Protocol):
    """The transactions of a producer, as used by the send path, the sender, start and close."""

    @property
    def transactional(self) -> bool:
        """True if each record belongs to a transaction. The coordinator then assigns epochs."""

    @property
    def status(self) -> SendStatus:
        """The state that each call that sends checks; always the same object."""

    @property
    def in_transaction(self) -> bool:
        """True if a transaction is open and no commit or abort is ending it yet."""

    @property
    def blocks_readers(self) -> bool:
        """True if the coordinator may have an open transaction, which blocks consumers of committed
        records until this producer, or its timeout, ends it.
        """

    @property
    def produce_adds_partitions(self) -> bool:
        """True if the newest version of Produce may be used. From version 12 on a broker adds the
        partition to the transaction (KIP-890), so the client must not add it.
        """

    @property
    def lost(self) -> int:
        """The number of accepted records that were not delivered because the producer failed.
        Records of a transaction don't count: without its commit they have no effect.
        """

    @property
    def producer_id_error(self) -> KafkaError | None:
        """The reason why no broker has granted a producer id yet, if known."""

    async def start(self) -> None:
        """Get the producer id, if it is needed before the first record."""

    def ensure_producer_id(self) -> None:
        """Ask for a producer id in the background if one is needed and missing."""

    def check_may_send(self) -> None:
        """Check that a record may be appended now.

        Raises:
            TransactionStateError: if no transaction is open.
            AbortableTransactionError, FatalProducerError: if the transaction, or the producer, has
                failed.
        """

    def partition_used(self, tp: TopicPartition) -> None:
        """Note that a batch was opened for the partition."""

    def may_send(self, tp: TopicPartition) -> bool:
        """Return whether the partition's batches may be sent now."""

    def batch_sent(self, tp: TopicPartition) -> None:
        """Note that a batch is being sent."""

    def batch_stored(self) -> None:
        """Note that a broker has stored a batch."""

    def batch_failed(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Note that a batch has failed. If the caller that ends the transaction gets the error,
        mark the batch's failure as seen.
        """

    def record_refused(self, tp: TopicPartition, error: KafkaError) -> None:
        """Note that a record was refused before it was in a batch."""

    def fail(self, error: KafkaError) -> None:
        """Fail the producer: all records without an outcome, and all later calls."""

    async def end_transaction(self) -> None:
        """End the open transaction before the producer closes.

        Raises:
            KafkaError: if the transaction can't be ended.
        """

    def stop(self) -> None:
        """Cancel all background tasks at once."""

    async def close(self) -> None:
        """Stop, and wait until all background tasks have ended."""

    def manager(self) -> TransactionManager:
        """Return the object that implements the public calls.

        Raises:
            TransactionStateError: if no ``transactional_id`` is set.
        """


class NoTransactions:
    """A producer without ``transactional_id``. If it is idempotent, any broker assigns its producer
    id.
    """

    transactional: Final = False
    in_transaction: Final = False
    blocks_readers: Final = False
    produce_adds_partitions: Final = True

    def __init__(
        self,
        config: ProducerConfig,
        producer: ProducerState,
        brokers: Brokers,
        accumulator: RecordAccumulator,
        rng: random.Random,
        wake: Callable[[], None],
    ) -> None:
        self.status: Final = AlwaysOpen()
        self.lost: int = 0
        self._config = config
        self._producer = producer
        self._accumulator = accumulator
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self._producer_id = ProducerIdRequest(
            brokers,
            producer,
            backoff,
            wake=wake,
            on_fatal=self.fail,
            principal=principal_of(config),
        )

    @property
    def producer_id_error(self) -> KafkaError | None:
        """The error of the last attempt to get a producer id."""
        return self._producer_id.last_error

    async def start(self) -> None:
        """Do nothing: a producer id is requested when the first batch is to be sent."""

    def ensure_producer_id(self) -> None:
        """Ask any broker for a producer id, if the producer is idempotent."""
        # After a final refusal, or after close, the accumulator is closed.
        if (
            self._producer.identity is None
            and self._config.enable_idempotence
            and self._accumulator.closed is None
        ):
            self._producer_id.start()

    def check_may_send(self) -> None:
        """Accept every record."""

    def partition_used(self, tp: TopicPartition) -> None:
        """Do nothing."""

    def may_send(self, tp: TopicPartition) -> bool:
        """Return True: every batch may be sent."""
        return True

    def batch_sent(self, tp: TopicPartition) -> None:
        """Do nothing."""

    def batch_stored(self) -> None:
        """Do nothing."""

    def batch_failed(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Do nothing: each record's delivery has the error."""

    def record_refused(self, tp: TopicPartition, error: KafkaError) -> None:
        """Do nothing: the record's delivery has the error."""

    def fail(self, error: KafkaError) -> None:
        """Fail all records without an outcome, and log how many accepted ones are not delivered."""
        undelivered = self._accumulator.undelivered
        self.lost += undelivered
        self._accumulator.abort(error)
        if undelivered:
            log.error(
                "producer %r has failed, %s not delivered: %s",
                self._config.client_id,
                counted(undelivered, "accepted record"),
                error,
            )

    async def end_transaction(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Stop requesting a producer id."""
        self._producer_id.stop()

    async def close(self) -> None:
        """Stop requesting a producer id, and wait until the task has ended."""
        await self._producer_id.close()

    def manager(self) -> TransactionManager:
        """Raise TransactionStateError: no ``transactional_id`` is set."""
        raise TransactionStateError("transactional_id is not set: set it to use transactions")


def make_transactions(
    config: ProducerConfig,
    producer: ProducerState,
    runtime: ClientRuntime,
    accumulator: RecordAccumulator,
    metrics: ProducerMetrics,
    rng: random.Random,
    wake: Callable[[], None],
) -> Transactions:
    """Make transactions if ``transactional_id`` is set, else :class:`NoTransactions`."""
    if config.transactional_id is None:
        return NoTransactions(config, producer, runtime.brokers, accumulator, rng, wake)
    from aioprod.producer.transactions.manager import TransactionManager

    return TransactionManager(
        config,
        producer,
        runtime.coordinators,
        lambda names: runtime.metadata.snapshot.topic_ids(names),
        accumulator,
        metrics,
        rng,
        wake,
    )
