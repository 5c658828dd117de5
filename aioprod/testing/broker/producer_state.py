"""The sequence check of idempotent producers in one partition, like Kafka's ProducerStateManager
and ProducerAppendInfo (KIP-98, KIP-360).

Synchronous functions of the state and a batch, without clock or I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from aioprod.error_codes import ErrorCode

REMEMBERED_BATCHES = (
    5  # Kafka's ProducerStateEntry.NUM_BATCHES_TO_RETAIN: the maximum that a producer has in flight
)
MAX_SEQUENCE = 2**31 - 1
NO_EPOCH = -1
COORDINATOR_EPOCH = 0  # of all markers: the embedded coordinators never lose their state


class SequenceError(Exception):
    """The partition refuses a batch. Contains the error code of the response."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class AppendedBatch(NamedTuple):
    """One of a producer's last batches, so that a duplicate gets the same response."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int

    @property
    def next_offset(self) -> int:
        """The offset after its last record."""
        return self.base_offset + ((self.last_sequence - self.first_sequence) & MAX_SEQUENCE) + 1


@dataclass(slots=True)
class ProducerEntry:
    """The state of one producer id in a partition.

    Attributes:
        newest_offset: the first offset of its latest batch or marker.
        newest_timestamp: the timestamp of its latest batch or marker.
        coordinator_epoch: the epoch of its latest marker, -1 if it has none.
    """

    epoch: int
    newest_offset: int = -1
    newest_timestamp: int = -1
    coordinator_epoch: int = -1
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))

    @property
    def last_sequence(self) -> int:
        """The sequence of the latest record, or -1 if the partition has none of this epoch."""
        return self.batches[-1].last_sequence if self.batches else -1


def increment_sequence(sequence: int, increment: int) -> int:
    """Return ``sequence + increment``; 0 follows 2**31 - 1."""
    return (sequence + increment) & MAX_SEQUENCE


def in_sequence(last_sequence: int, next_sequence: int) -> bool:
    """Return whether ``next_sequence`` directly follows ``last_sequence``."""
    return next_sequence == last_sequence + 1 or (
        next_sequence == 0 and last_sequence == MAX_SEQUENCE
    )


class ProducerStates:
    """The state of all producer ids that wrote to a partition."""

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}

    def find_duplicate(
        self, producer_id: int, epoch: int, first_sequence: int, record_count: int
    ) -> AppendedBatch | None:
        """Return the remembered batch with exactly these sequences, or None."""
        entry = self._entries.get(producer_id)
        if entry is None or entry.epoch != epoch:
            return None
        last_sequence = increment_sequence(first_sequence, record_count - 1)
        for batch in entry.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                return batch
        return None

    def check(
        self, producer_id: int, epoch: int, first_sequence: int, *, begins_at_zero: bool = False
    ) -> None:
        """Raise SequenceError if a batch can't be appended.

        A producer id without any state may begin at any sequence, because its records may have been
        deleted, unless it ``begins_at_zero`` with each transaction.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            if begins_at_zero and first_sequence != 0:
                raise SequenceError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer_id} begins at sequence {first_sequence}, not 0",
                )
            return
        if epoch < entry.epoch:
            raise SequenceError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id}: epoch {epoch} is older than {entry.epoch}",
            )
        if epoch > entry.epoch:
            if first_sequence != 0:
                raise SequenceError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    (
                        f"producer {producer_id}: new epoch {epoch} begins at sequence "
                        f"{first_sequence}, not 0"
                    ),
                )
        elif not in_sequence(entry.last_sequence, first_sequence):
            raise SequenceError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                (
                    f"producer {producer_id}: sequence {first_sequence} does not follow "
                    f"{entry.last_sequence} (epoch {epoch})"
                ),
            )

    @property
    def entries(self) -> Mapping[int, ProducerEntry]:
        """The state by producer id."""
        return self._entries

    def end_transaction(self, producer_id: int, epoch: int, offset: int, timestamp: int) -> None:
        """Record a marker. A marker with a newer epoch begins that epoch: it fences a producer, or
        ends a transaction of protocol v2.
        """
        entry = self._entries.get(producer_id)
        if entry is None or epoch > entry.epoch:
            entry = self._entries[producer_id] = ProducerEntry(epoch)
        entry.newest_offset, entry.newest_timestamp, entry.coordinator_epoch = (
            offset,
            timestamp,
            COORDINATOR_EPOCH,
        )

    def epoch(self, producer_id: int) -> int:
        """Return the latest epoch of a producer id in this partition, or -1 if it is unknown."""
        entry = self._entries.get(producer_id)
        return NO_EPOCH if entry is None else entry.epoch

    def record(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        record_count: int,
        base_offset: int,
        timestamp: int,
    ) -> None:
        """Remember an appended batch. A new epoch drops the batches of the old one."""
        entry = self._entries.get(producer_id)
        if entry is None or entry.epoch != epoch:
            entry = self._entries[producer_id] = ProducerEntry(
                epoch, coordinator_epoch=-1 if entry is None else entry.coordinator_epoch
            )
        entry.newest_offset, entry.newest_timestamp = base_offset, timestamp
        entry.batches.append(
            AppendedBatch(
                first_sequence,
                increment_sequence(first_sequence, record_count - 1),
                base_offset,
                timestamp,
            )
        )

    def forget_from(self, offset: int) -> None:
        """Forget the producers that wrote at or after ``offset``. The caller adds them again from
        the log.
        """
        self._entries = {
            producer_id: entry
            for producer_id, entry in self._entries.items()
            if entry.newest_offset < offset
        }
