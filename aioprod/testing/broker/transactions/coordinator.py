"""The transaction coordinator: transactional ids, their producer ids and epochs, and the states of
their transactions (KIP-98, 360, 890).

It is synchronous; only transaction timeouts use the event loop. Markers are written at once, unless
a test pauses them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.transactions.transaction import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREPARED_STATES,
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
)
from aioprod.types import TopicPartition

_BUMPING_VERSION = 2  # of the feature transaction.version
MAX_TIMEOUT_MS = 900_000  # broker setting transaction.max.timeout.ms


class TransactionTimers:
    """One timeout for each open transaction. The timers are suspended while the broker is stopped.

    Args:
        expired: called with the transactional id.
    """

    def __init__(self, expired: Callable[[str], None]) -> None:
        self._expired = expired
        self._timeouts_ms: dict[str, int] = {}
        self._handles: dict[str, asyncio.Handle] = {}

    def start(self, name: str, timeout_ms: int) -> None:
        """Start the timer of a transaction."""
        self.cancel(name)
        self._timeouts_ms[name] = timeout_ms
        self._handles[name] = asyncio.get_running_loop().call_later(
            timeout_ms / 1000, self._fire, name
        )

    def cancel(self, name: str) -> None:
        """Cancel the timer of a transaction."""
        self._timeouts_ms.pop(name, None)
        handle = self._handles.pop(name, None)
        if handle is not None:
            handle.cancel()

    def suspend(self) -> None:
        """Remove all timers from the event loop, because the broker stops."""
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()

    def resume(self) -> None:
        """Restart the suspended timers, each with its full timeout."""
        for name, timeout_ms in list(self._timeouts_ms.items()):
            if name not in self._handles:
                self.start(name, timeout_ms)

    def _fire(self, name: str) -> None:
        self.cancel(name)
        self._expired(name)


class TransactionCoordinator:
    """All transactional ids of a cluster.

    Args:
        version: the finalized feature transaction.version, 0 to 2.
        new_producer_id: a function that returns a new producer id.
        write_marker: a function that ends a producer's transaction in a partition; the last
            argument is True to commit.
        end_offsets: a function that commits or drops the pending offsets of a producer's
            transaction in a group.
        now_ms: a function that returns milliseconds since 1970.
    """

    def __init__(
        self,
        *,
        version: int,
        new_producer_id: Callable[[], int],
        write_marker: Callable[[TopicPartition, ProducerIdAndEpoch, bool], None],
        end_offsets: Callable[[str, int, bool], None],
        now_ms: Callable[[], int],
    ) -> None:
        self.version = version
        self.transactions: dict[str, Transaction] = {}
        self.timers: TransactionTimers = TransactionTimers(self.expire_transaction)
        self._new_producer_id = new_producer_id
        self._write_marker = write_marker
        self._end_offsets = end_offsets
        self._now_ms = now_ms
        self._markers_wait = False

    def init_producer_id(
        self, name: str, timeout_ms: int, expected: ProducerIdAndEpoch | None
    ) -> ProducerIdAndEpoch:
        """Return the next producer id and epoch of a transactional id, which fences older
        producers.

        Args:
            name: the transactional id.
            timeout_ms: the transaction timeout in milliseconds.
            expected: the producer id and epoch that the client has, if any.

        Raises:
            RequestError: if the previous transaction is ending (CONCURRENT_TRANSACTIONS), an
                argument is invalid, or the client is fenced.
        """
        if not name:
            raise RequestError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if not 0 < timeout_ms <= MAX_TIMEOUT_MS:
            raise RequestError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"timeout_ms={timeout_ms}: must be 1 to {MAX_TIMEOUT_MS}",
            )
        transaction = self.transactions.get(name)
        if transaction is None:
            transaction = self.transactions[name] = Transaction(
                name, self._new_producer_id(), timeout_ms
            )
        if expected is not None and not transaction.accepts(expected):
            raise RequestError(
                ErrorCode.PRODUCER_FENCED,
                (f"{name} has producer id {transaction.producer_id}, not {expected.producer_id}"),
            )
        if transaction.state is TransactionState.ONGOING:
            self._fence(transaction)
            raise _concurrent(name)
        if transaction.state in PREPARED_STATES:
            raise _concurrent(name)
        transaction.renew(expected, self._new_producer_id)
        transaction.timeout_ms = timeout_ms
        transaction.state, transaction.start_time_ms = TransactionState.EMPTY, -1
        return transaction.identity

    def add(
        self,
        name: str,
        identity: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition] = (),
        group: str | None = None,
    ) -> None:
        """Add partitions, or the offsets of a consumer group, to the transaction. Begin one if none
        is open.
        """
        transaction = self._current(name, identity)
        if transaction.state is not TransactionState.ONGOING:
            transaction.state, transaction.start_time_ms = TransactionState.ONGOING, self._now_ms()
            self.timers.start(name, transaction.timeout_ms)
        transaction.partitions.update(partitions)
        if group is not None:
            transaction.groups.add(group)

    def verify(
        self,
        name: str,
        identity: ProducerIdAndEpoch,
        partition: TopicPartition | None = None,
        group: str | None = None,
    ) -> None:
        """Raise RequestError (TRANSACTION_ABORTABLE) unless the partition or the group was added to
        the open transaction (KIP-890).
        """
        transaction = self._current(name, identity)
        found = (
            partition in transaction.partitions
            if partition is not None
            else group in transaction.groups
        )
        if not found:
            raise RequestError(
                ErrorCode.TRANSACTION_ABORTABLE,
                f"{partition or group} was not added to the transaction of {name}",
            )

    def end(
        self, name: str, identity: ProducerIdAndEpoch, *, commit: bool, bump: bool
    ) -> ProducerIdAndEpoch:
        """Commit or abort, and return the producer id and epoch of the next transaction. With
        ``bump`` (transaction protocol v2), they change.

        A retry of the same request succeeds.
        """
        transaction = self._find(name)
        is_retry = bump and transaction.is_end_retried(identity)
        if not is_retry:
            transaction.check_identity(identity)
        if self._is_to_be_ended(transaction, commit, bump, is_retry):
            self._end(transaction, commit=commit, bump=bump)
            if bump and transaction.next_producer_id != NO_PRODUCER_ID:
                return ProducerIdAndEpoch(transaction.next_producer_id, 0)
        return transaction.identity

    def expire_transaction(self, transactional_id: str) -> None:
        """Abort an open transaction and fence its producer, as when its timeout has passed. Do
        nothing if no transaction is open.
        """
        transaction = self.transactions.get(transactional_id)
        if transaction is not None and transaction.state is TransactionState.ONGOING:
            self._fence(transaction)

    def pause_markers(self) -> None:
        """Write no transaction markers until :meth:`resume_markers`: transactions that end
        before that stay in PrepareCommit or PrepareAbort.
        """
        self._markers_wait = True

    def resume_markers(self) -> None:
        """Write the pending transaction markers, and stop pausing new ones."""
        self._markers_wait = False
        for transaction in self.transactions.values():
            if transaction.state in PREPARED_STATES:
                self._complete(transaction)

    def forget_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove deleted partitions from all transactions."""
        gone = set(partitions)
        for transaction in self.transactions.values():
            transaction.partitions -= gone

    def _find(self, name: str) -> Transaction:
        if not name:
            raise RequestError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        transaction = self.transactions.get(name)
        if transaction is None:
            raise RequestError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"there is no transactional id {name!r}"
            )
        return transaction

    def _current(self, name: str, identity: ProducerIdAndEpoch) -> Transaction:
        """Find the current transaction of a producer with this identity."""
        transaction = self._find(name)
        transaction.check_identity(identity)
        if transaction.state in PREPARED_STATES:
            raise _concurrent(name)
        return transaction

    def _is_to_be_ended(
        self, transaction: Transaction, commit: bool, bump: bool, is_retry: bool
    ) -> bool:
        """Return whether there is a transaction to end; raise RequestError if the state does not
        allow it.
        """
        state = transaction.state
        if state is TransactionState.ONGOING and not is_retry:
            return True
        if state is (TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT):
            raise _concurrent(transaction.transactional_id)
        if state is (
            TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        ) and (is_retry or not bump):
            return False
        if bump and not commit and not is_retry and state not in PREPARED_STATES:
            # The new epoch fences writes of this transaction that may still arrive.
            return True
        raise RequestError(
            ErrorCode.INVALID_TXN_STATE, f"{transaction.transactional_id} is in state {state.value}"
        )

    def _fence(self, transaction: Transaction) -> None:
        """Abort with an epoch that no producer has.

        Before transaction.version 2, the producer's old epoch is not accepted even in a request for
        a newer one.
        """
        transaction.last_epoch = (
            transaction.producer_epoch if self.version >= _BUMPING_VERSION else NO_EPOCH
        )
        transaction.producer_epoch += 1
        self._prepare(transaction, commit=False)

    def _end(self, transaction: Transaction, *, commit: bool, bump: bool) -> None:
        if bump:
            if transaction.is_exhausted:
                transaction.next_producer_id = self._new_producer_id()
            transaction.last_epoch, transaction.producer_epoch = (
                transaction.producer_epoch,
                transaction.producer_epoch + 1,
            )
        self._prepare(transaction, commit=commit)

    def _prepare(self, transaction: Transaction, *, commit: bool) -> None:
        self.timers.cancel(transaction.transactional_id)
        transaction.state = (
            TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        )
        if not self._markers_wait:
            self._complete(transaction)

    def _complete(self, transaction: Transaction) -> None:
        commit = transaction.state is TransactionState.PREPARE_COMMIT
        for partition in sorted(transaction.partitions):
            self._write_marker(partition, transaction.identity, commit)
        for group in sorted(transaction.groups):
            self._end_offsets(group, transaction.producer_id, commit)
        transaction.partitions, transaction.groups = set(), set()
        transaction.state = (
            TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        )
        if transaction.next_producer_id != NO_PRODUCER_ID:
            transaction.rotate(transaction.next_producer_id, keep_epoch=True)
            transaction.next_producer_id = NO_PRODUCER_ID


def _concurrent(name: str) -> RequestError:
    return RequestError(
        ErrorCode.CONCURRENT_TRANSACTIONS, f"the previous transaction of {name} has not ended yet"
    )
