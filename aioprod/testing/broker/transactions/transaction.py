"""A transactional id: its producer id and epochs, and the state of its latest transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.errors import RequestError
from aioprod.types import TopicPartition

NO_PRODUCER_ID = -1
NO_EPOCH = -1
_LAST_EPOCH = 2**15 - 2  # the highest epoch of a client; one more is for the marker that fences it


class TransactionState(Enum):
    """Kafka's names for the states of a transactional id."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


PREPARED_STATES = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class ProducerIdAndEpoch(NamedTuple):
    """The producer id and epoch of a producer's batches."""

    producer_id: int
    epoch: int


@dataclass(slots=True)
class Transaction:
    """A transactional id and its latest transaction.

    Attributes:
        timeout_ms: the transaction timeout in milliseconds.
        partitions: the partitions of the open transaction.
        groups: the consumer groups whose offsets the open transaction commits.
        previous_producer_id: the producer id before the epochs of that one ran out, or -1.
        last_epoch: the epoch before the last bump that the producer itself requested, or -1.
        next_producer_id: the producer id after the markers are written, or -1 if it stays.
        start_time_ms: the start time of the latest transaction of this epoch, or -1.
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
    def identity(self) -> ProducerIdAndEpoch:
        """The current producer id and epoch."""
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_exhausted(self) -> bool:
        """True if the producer id has no further epoch."""
        return self.producer_epoch >= _LAST_EPOCH

    def accepts(self, expected: ProducerIdAndEpoch) -> bool:
        """Return whether a client with this producer id and epoch may get the next epoch
        (KIP-360).
        """
        return (
            self.producer_epoch == NO_EPOCH
            or expected.producer_id == self.producer_id
            or (expected.producer_id == self.previous_producer_id and expected.epoch >= _LAST_EPOCH)
        )

    def renew(
        self, expected: ProducerIdAndEpoch | None, new_producer_id: Callable[[], int]
    ) -> None:
        """Change to the next epoch or, if there is none, to a new producer id. A client that
        retries because it missed the response gets the same epoch again.

        Raises:
            RequestError: if ``expected`` is outdated (PRODUCER_FENCED).
        """
        if self.is_exhausted and (expected is None or expected.epoch == self.producer_epoch):
            self.rotate(new_producer_id(), keep_epoch=expected is not None)
        elif self.is_exhausted:
            # As in Kafka.
            raise RequestError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"{self.transactional_id}: no epochs left"
            )
        elif expected is None:
            self.last_epoch, self.producer_epoch = NO_EPOCH, self.producer_epoch + 1
        elif self.producer_epoch == NO_EPOCH or expected.epoch == self.producer_epoch:
            self.last_epoch, self.producer_epoch = self.producer_epoch, self.producer_epoch + 1
        elif expected.epoch != self.last_epoch:
            raise RequestError(
                ErrorCode.PRODUCER_FENCED,
                (
                    f"{self.transactional_id}: epoch {expected.epoch} is older than "
                    f"{self.producer_epoch}"
                ),
            )

    def rotate(self, producer_id: int, *, keep_epoch: bool) -> None:
        """Change to another producer id."""
        self.last_epoch = self.producer_epoch if keep_epoch else NO_EPOCH
        self.previous_producer_id, self.producer_id, self.producer_epoch = (
            self.producer_id,
            producer_id,
            0,
        )

    def check_identity(self, identity: ProducerIdAndEpoch) -> None:
        """Raise RequestError unless the producer with this identity is the latest."""
        if self.producer_id != identity.producer_id:
            raise RequestError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"{self.transactional_id} has producer id {self.producer_id}, not "
                f"{identity.producer_id}",
            )
        if self.producer_epoch != identity.epoch:
            raise self._fenced(identity)

    def is_end_retried(self, identity: ProducerIdAndEpoch) -> bool:
        """Return whether a producer of protocol v2 retries to end a transaction: it then has the
        identity from before the first attempt.

        Raises:
            RequestError: if the state has changed since then (PRODUCER_FENCED).
        """
        is_rotated = (
            identity == (self.previous_producer_id, _LAST_EPOCH) and self.producer_epoch == 0
        )
        is_ended = self.state not in (TransactionState.EMPTY, TransactionState.ONGOING)
        if identity == (self.producer_id, self.producer_epoch - 1) or is_rotated:
            if not is_ended:
                raise self._fenced(identity)
            return True
        if self.state in PREPARED_STATES and identity == self.identity:
            raise self._fenced(identity)
        return False

    def _fenced(self, identity: ProducerIdAndEpoch) -> RequestError:
        return RequestError(
            ErrorCode.PRODUCER_FENCED,
            f"{self.transactional_id} has epoch {self.producer_epoch}, not {identity.epoch}",
        )
