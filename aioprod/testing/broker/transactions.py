"""The transaction coordinator: transactional ids, their producer ids and epochs, and the states of
their transactions (KIP-98, 360, 890).

Synchronous; only the time limit of a transaction needs the event loop. Markers are written at once,
unless a test has them wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.store_error import StoreError
from aioprod.testing.broker.transaction_timers import TransactionTimers
from aioprod.types import TopicPartition

NO_PRODUCER_ID = -1
NO_EPOCH = -1
_LAST_EPOCH = 2**15 - 2  # the highest that a client gets; one more is for a marker that fences it
_BUMPING_VERSION = 2  # of the feature transaction.version
MAX_TIMEOUT_MS = 900_000  # broker setting transaction.max.timeout.ms


class TransactionState(Enum):
    """Kafka's names for the states of a transactional id."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


_PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class Identity(NamedTuple):
    """What a producer signs its batches with."""

    producer_id: int
    epoch: int


@dataclass(slots=True)
class Transaction:
    """A transactional id and its newest transaction.

    Attributes:
        timeout_ms: how long a transaction may take.
        partitions: where the transaction may have written; empty when it is over.
        groups: consumer groups that the transaction commits offsets of.
        previous_producer_id: the id before the epochs of that one ran out, -1 where there was none.
        last_epoch: the epoch before the newest bump that the producer itself asked for, -1 where
            there was none.
        next_producer_id: the id that follows when the markers are written, -1 where the present one
            stays.
        start_time_ms: when the newest transaction began, -1 before the first one of this epoch.
    """

    transactional_id: str
    producer_id: int
    timeout_ms: int
    producer_epoch: int = NO_EPOCH
    state: TransactionState = TransactionState.EMPTY
    partitions: set[TopicPartition] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    previous_producer_id: int = NO_PRODUCER_ID
    last_epoch: int = NO_EPOCH
    next_producer_id: int = NO_PRODUCER_ID
    start_time_ms: int = -1

    @property
    def identity(self) -> Identity:
        """Producer id and epoch."""
        return Identity(self.producer_id, self.producer_epoch)

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no further epoch."""
        return self.producer_epoch >= _LAST_EPOCH

    def accepts(self, expected: Identity) -> bool:
        """Tell whether a client with this identity may ask for the next epoch (KIP-360)."""
        return (
            self.producer_epoch == NO_EPOCH
            or expected.producer_id == self.producer_id
            or (expected.producer_id == self.previous_producer_id and expected.epoch >= _LAST_EPOCH)
        )

    def renew(self, expected: Identity | None, new_producer_id: Callable[[], int]) -> None:
        """Move on to the next epoch, or to a new producer id; raise StoreError (PRODUCER_FENCED)
        where ``expected`` is outdated.

        A client that asks twice, because the first answer was lost, gets the same epoch again.
        """
        if self.is_exhausted and (expected is None or expected.epoch == self.producer_epoch):
            self.rotate(new_producer_id(), keep_epoch=expected is not None)
        elif self.is_exhausted:
            raise StoreError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"{self.transactional_id}: no epoch is left"
            )  # so does Kafka
        elif expected is None:
            self.last_epoch, self.producer_epoch = NO_EPOCH, self.producer_epoch + 1
        elif self.producer_epoch == NO_EPOCH or expected.epoch == self.producer_epoch:
            self.last_epoch, self.producer_epoch = self.producer_epoch, self.producer_epoch + 1
        elif expected.epoch != self.last_epoch:
            raise StoreError(
                ErrorCode.PRODUCER_FENCED,
                (
                    f"{self.transactional_id}: epoch {expected.epoch} is older than "
                    f"{self.producer_epoch}"
                ),
            )

    def rotate(self, producer_id: int, *, keep_epoch: bool) -> None:
        """Change over to another producer id."""
        self.last_epoch = self.producer_epoch if keep_epoch else NO_EPOCH
        self.previous_producer_id, self.producer_id, self.producer_epoch = (
            self.producer_id,
            producer_id,
            0,
        )


class TransactionCoordinator:
    """All transactional ids of a cluster.

    Args:
        version: the finalized feature transaction.version, 0 to 2.
        new_producer_id: gives out producer ids.
        write_marker: ends a producer's transaction in a partition; the last argument tells whether
            it is committed.
        end_offsets: commits or drops what a producer's transaction has committed to a consumer
            group.
        now_ms: milliseconds since 1970.
    """

    def __init__(
        self,
        *,
        version: int,
        new_producer_id: Callable[[], int],
        write_marker: Callable[[TopicPartition, Identity, bool], None],
        end_offsets: Callable[[str, int, bool], None],
        now_ms: Callable[[], int],
    ) -> None:
        self.version = version
        self.transactions: dict[str, Transaction] = {}
        self.timers = TransactionTimers(self.expire_transaction)
        self._new_producer_id = new_producer_id
        self._write_marker = write_marker
        self._end_offsets = end_offsets
        self._now_ms = now_ms
        self._markers_wait = False

    def init_producer_id(self, name: str, timeout_ms: int, expected: Identity | None) -> Identity:
        """Return the next identity of a transactional id, so that older users of it are fenced.

        ``expected`` is the identity that the client has. Raises StoreError; CONCURRENT_TRANSACTIONS
        while an older transaction is being ended.
        """
        if not name:
            raise StoreError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if not 0 < timeout_ms <= MAX_TIMEOUT_MS:
            raise StoreError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"must be 1 to {MAX_TIMEOUT_MS} ms"
            )
        transaction = self.transactions.get(name)
        if transaction is None:
            transaction = self.transactions[name] = Transaction(
                name, self._new_producer_id(), timeout_ms
            )
        if expected is not None and not transaction.accepts(expected):
            raise StoreError(
                ErrorCode.PRODUCER_FENCED,
                (
                    f"{name} belongs to producer id {transaction.producer_id}, not "
                    f"{expected.producer_id}"
                ),
            )
        if transaction.state is TransactionState.ONGOING:
            self._fence(transaction)
            raise _concurrent(name)
        if transaction.state in _PREPARED:
            raise _concurrent(name)
        transaction.renew(expected, self._new_producer_id)
        transaction.timeout_ms = timeout_ms
        transaction.state, transaction.start_time_ms = TransactionState.EMPTY, -1
        return transaction.identity

    def add(
        self,
        name: str,
        identity: Identity,
        partitions: Collection[TopicPartition] = (),
        group: str | None = None,
    ) -> None:
        """Make partitions, or the offsets of a consumer group, part of the transaction; begin one
        where there is none.
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
        identity: Identity,
        partition: TopicPartition | None = None,
        group: str | None = None,
    ) -> None:
        """Raise StoreError (TRANSACTION_ABORTABLE) unless the partition or the group was added to
        the transaction that is open (KIP-890).
        """
        transaction = self._current(name, identity)
        found = (
            partition in transaction.partitions
            if partition is not None
            else group in transaction.groups
        )
        if not found:
            raise StoreError(
                ErrorCode.TRANSACTION_ABORTABLE,
                f"{partition or group} was not added to the transaction of {name}",
            )

    def end(self, name: str, identity: Identity, *, commit: bool, bump: bool) -> Identity:
        """Commit or abort and return the identity for the next transaction, which is another one
        with ``bump`` (transaction protocol v2).

        Asking again for what was done is no error.
        """
        transaction = self._find(name)
        is_retry = bump and _is_retry(transaction, identity)
        if not is_retry:
            _check_identity(transaction, identity)
        if self._is_to_be_ended(transaction, commit, bump, is_retry):
            self._end(transaction, commit=commit, bump=bump)
            if bump and transaction.next_producer_id != NO_PRODUCER_ID:
                return Identity(transaction.next_producer_id, 0)
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
        meanwhile stay in PrepareCommit or PrepareAbort.
        """
        self._markers_wait = True

    def resume_markers(self) -> None:
        """Write the pending transaction markers, and write new ones at once again."""
        self._markers_wait = False
        for transaction in self.transactions.values():
            if transaction.state in _PREPARED:
                self._complete(transaction)

    def forget_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop partitions that were deleted from all transactions."""
        gone = set(partitions)
        for transaction in self.transactions.values():
            transaction.partitions -= gone

    def _find(self, name: str) -> Transaction:
        if not name:
            raise StoreError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        transaction = self.transactions.get(name)
        if transaction is None:
            raise StoreError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"transactional id {name!r} is not known"
            )
        return transaction

    def _current(self, name: str, identity: Identity) -> Transaction:
        """Find a transaction that its producer may go on with."""
        transaction = self._find(name)
        _check_identity(transaction, identity)
        if transaction.state in _PREPARED:
            raise _concurrent(name)
        return transaction

    def _is_to_be_ended(
        self, transaction: Transaction, commit: bool, bump: bool, is_retry: bool
    ) -> bool:
        """Tell whether there is anything to do; raise StoreError where the state does not
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
        if bump and not commit and not is_retry and state not in _PREPARED:
            # nothing was added, yet something may be on its way: the new epoch shuts it out
            return True
        raise StoreError(
            ErrorCode.INVALID_TXN_STATE, f"{transaction.transactional_id} is in state {state.value}"
        )

    def _fence(self, transaction: Transaction) -> None:
        """Abort under an epoch that nobody has.

        Before transaction.version 2 its producer may not even ask for a newer epoch by its old one.
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


def _concurrent(name: str) -> StoreError:
    return StoreError(
        ErrorCode.CONCURRENT_TRANSACTIONS, f"an older transaction of {name} is being ended"
    )


def _fenced(transaction: Transaction, identity: Identity) -> StoreError:
    return StoreError(
        ErrorCode.PRODUCER_FENCED,
        (
            f"{transaction.transactional_id} has epoch {transaction.producer_epoch}, not "
            f"{identity.epoch}"
        ),
    )


def _check_identity(transaction: Transaction, identity: Identity) -> None:
    if transaction.producer_id != identity.producer_id:
        text = (
            f"{transaction.transactional_id} belongs to producer id {transaction.producer_id}, "
            f"not {identity.producer_id}"
        )
        raise StoreError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)
    if transaction.producer_epoch != identity.epoch:
        raise _fenced(transaction, identity)


def _is_retry(transaction: Transaction, identity: Identity) -> bool:
    """Tell whether a producer of protocol v2 asks for the end of a transaction again, as it shows
    by the identity from before it.

    Raises StoreError (PRODUCER_FENCED) where that end is not the last thing that happened.
    """
    is_rotated = (
        identity == (transaction.previous_producer_id, _LAST_EPOCH)
        and transaction.producer_epoch == 0
    )
    is_ended = transaction.state not in (TransactionState.EMPTY, TransactionState.ONGOING)
    if identity == (transaction.producer_id, transaction.producer_epoch - 1) or is_rotated:
        if not is_ended:
            raise _fenced(transaction, identity)
        return True
    if transaction.state in _PREPARED and identity == transaction.identity:
        raise _fenced(transaction, identity)
    return False
