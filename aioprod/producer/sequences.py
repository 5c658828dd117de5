"""Idempotence: the producer id and epoch, and the sequence numbers of batches. No I/O.

The rules (KIP-98, KIP-360), with the reason for each:

- A partition's batches have consecutive sequence numbers under one producer id and epoch, so the
  broker stores each once and in order.
- A batch that ends without being stored leaves a gap: the broker would refuse all later ones. The
  epoch is then bumped once, and each partition switches to the new one, from sequence number 0,
  when none of its batches is unresolved under the old one.
- A batch may get a new sequence number only if it is certainly not stored: the broker refused it,
  or one before it. A batch whose last attempt ended without a reply is first sent again unchanged.
- A broker that does not know a producer accepts any first sequence number. So a partition's first
  batch under an epoch is sent alone: if the broker refused it temporarily and accepted the second
  one, it could no longer accept the first. A broker that has stored a batch of the previous epoch
  accepts only 0. So if the coordinator assigns an epoch for each transaction (KIP-890), only the
  partition's first batch is sent alone.
- The broker remembers a producer's last five batches for each partition; no more are unresolved.
"""

from __future__ import annotations

from collections.abc import Sequence

from aioprod.error_codes import ErrorCode
from aioprod.logs import Logger, get_logger
from aioprod.producer.batch import ProducerBatch, ProducerIdAndEpoch

log: Logger = get_logger(__name__)

MAX_SEQUENCE = 2**31 - 1
MAX_EPOCH = 2**15 - 1
MAX_UNRESOLVED = 5


def increment_sequence(sequence: int, records: int) -> int:
    """Return the sequence number after ``records`` more; 0 follows 2^31 - 1."""
    return (sequence + records) & MAX_SEQUENCE


class ProducerState:
    """The producer id and epoch; None until a broker assigns one, and when all epochs are used up.

    Args:
        client_id: the producer's, for the log.
        transactional: whether only the transaction coordinator assigns epochs.

    Attributes:
        bumps: the number of epochs that had to be replaced.
        epoch_needed: whether the next transaction needs a new epoch (KIP-360), because a sequence
            number is lost or the coordinator has forgotten the producer. The old epoch is kept
            until the abort has finished.
    """

    def __init__(self, client_id: str, *, transactional: bool = False) -> None:
        self.client_id = client_id
        self.identity: ProducerIdAndEpoch | None = None
        self.bumps: int = 0
        self.epoch_needed: bool = False
        self.transactional = transactional

    def adopt(self, identity: ProducerIdAndEpoch) -> None:
        """Use the id and epoch that a broker assigned."""
        self.identity = identity
        self.epoch_needed = False

    def request_epoch(self) -> None:
        """Request a new epoch from the coordinator before the next transaction."""
        self.epoch_needed = True

    def bump(self, *, new_id: bool = False) -> None:
        """Use the next epoch; a transactional producer requests it from the coordinator. After the
        last epoch, or with ``new_id``, drop the producer id, so that a new one is requested.
        """
        self.bumps += 1
        if self.transactional:
            self.request_epoch()
            return
        if self.identity is not None:
            known, epoch = self.identity.producer_id, self.identity.epoch
            self.identity = (
                None if new_id or epoch >= MAX_EPOCH - 1 else ProducerIdAndEpoch((known, epoch + 1))
            )


class PartitionSequence:
    """One partition's sequence numbers and its batches that have one but no outcome."""

    __slots__ = (
        "_confirmed",
        "_producer",
        "_refusal_noted",
        "broken",
        "identity",
        "next_sequence",
        "unresolved",
    )

    def __init__(self, producer: ProducerState) -> None:
        self._producer = producer
        self.identity: ProducerIdAndEpoch | None = None
        self.next_sequence: int = 0
        self.unresolved: list[ProducerBatch] = []
        # True if certainly no unresolved batch under this epoch can be stored.
        self.broken: bool = False
        self._confirmed = False
        self._refusal_noted = False  # in the log, until a batch is stored

    def may_send(self, batch: ProducerBatch) -> bool:
        """Return whether the batch at the head of its queue may be sent now; give it a sequence
        number if it has none.
        """
        if self.broken:
            # All of them, not only this one: the others reach the head of the queue only after it
            # was sent.
            for refused in [other for other in self.unresolved if not other.in_flight]:
                self._forget(refused)
        unresolved, present = self.unresolved, self._producer.identity
        if batch.identity is not None:
            return batch is unresolved[0]
        if present is None or present != self.identity:
            if unresolved or present is None:
                return False
            self._confirmed = self._confirmed and not self.broken and self._is_next(present)
            self.identity = present
            self.next_sequence = 0
            self.broken = False
        elif self.broken:
            return False  # a transactional producer waits for its next epoch
        if not self.has_room_after(0):
            return False
        batch.identity = present
        batch.base_sequence = self.next_sequence
        self.next_sequence = increment_sequence(self.next_sequence, batch.count)
        unresolved.append(batch)
        return True

    def has_room_after(self, before: int) -> bool:
        """Return whether another batch may be unresolved, after ``before`` others."""
        return len(self.unresolved) + before < (MAX_UNRESOLVED if self._confirmed else 1)

    def _is_next(self, identity: ProducerIdAndEpoch) -> bool:
        """Return whether this is the epoch after the one that the partition's broker knows."""
        return (
            self._producer.transactional
            and self.identity is not None
            and identity == (self.identity.producer_id, self.identity.epoch + 1)
        )

    def is_first_unresolved(self, batch: ProducerBatch) -> bool:
        return bool(self.unresolved) and self.unresolved[0] is batch

    def stored(self, batch: ProducerBatch) -> None:
        """Note that the batch is stored."""
        self._confirmed = True
        self._refusal_noted = False
        if batch in self.unresolved:
            self.unresolved.remove(batch)

    def rewrite(self, batch: ProducerBatch, code: ErrorCode) -> None:
        """Note that the broker refused the batch's sequence number, or the producer id: it and all
        later ones need new numbers.
        """
        new_id = code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if not self._refusal_noted:
            self._refusal_noted = True
            log.info(
                "%s: %s-%d refused sequence number %d (%s); continuing with a new producer %s",
                self._producer.client_id,
                *batch.tp,
                batch.base_sequence,
                code.name,
                "id" if new_id else "epoch",
            )
        self._forget(batch)
        self._note_gap(certain=True, new_id=new_id)

    def forgotten_by_broker(self) -> None:
        """Note that the broker may know nothing of this producer, since the topic was created
        again: the next batch travels alone.
        """
        self._confirmed = False

    def split(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """Give the records' sequence numbers to the parts of a batch that was too large."""
        if batch.identity is None:
            return
        sequence = batch.base_sequence
        for part in parts:
            part.identity = batch.identity
            part.base_sequence = sequence
            sequence = increment_sequence(sequence, part.count)
        at = self.unresolved.index(batch)
        self.unresolved[at : at + 1] = parts

    def given_up(self, batch: ProducerBatch) -> None:
        """Note that the batch has failed."""
        if batch.identity is None:
            return
        certain = not batch.may_be_stored and not batch.in_flight
        self._forget(batch)
        self._note_gap(certain=certain)

    def _note_gap(self, *, certain: bool, new_id: bool = False) -> None:
        self.broken = self.broken or certain
        if self.identity == self._producer.identity:
            self._producer.bump(new_id=new_id)

    def _forget(self, batch: ProducerBatch) -> None:
        if batch in self.unresolved:
            self.unresolved.remove(batch)
        batch.identity = None
        batch.base_sequence = -1
        batch.encoded = None
        batch.may_be_stored = False
