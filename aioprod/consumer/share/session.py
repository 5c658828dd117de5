"""The share session of a member with one broker (KIP-932): its epoch, partitions and locks."""

from __future__ import annotations

from typing import NamedTuple

from aioprod.consumer.share.acknowledgements import SharePartition
from aioprod.net.bounds import MAX_LOCK_MS, MIN_LOCK_MS, bounded

OPENING_EPOCH = 0
CLOSING_EPOCH = -1
_LAST_EPOCH = 2**31 - 1


class SessionChange(NamedTuple):
    """What a ShareFetch tells the broker of the partitions to fetch."""

    epoch: int
    added: frozenset[SharePartition]
    forgotten: frozenset[SharePartition]


class ShareSession:
    """A session. The broker holds the locks of its records, and releases them when it ends.

    Attributes:
        epoch: the epoch of the next request.
        generation: the number of sessions before this one. Records of an earlier session can't be
            acknowledged any more.
        partitions: what the broker fetches if a request does not change it.
        lock_timeout_ms: how long the broker locks records for this member; None if unknown.
    """

    def __init__(self) -> None:
        self.epoch = OPENING_EPOCH
        self.generation = 0
        self.partitions: frozenset[SharePartition] = frozenset()
        self.lock_timeout_ms: int | None = None
        self._locks_end = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the broker knows the session, as far as the client can tell."""
        return self.epoch != OPENING_EPOCH

    def change(self, wanted: frozenset[SharePartition]) -> SessionChange:
        """Return what the next ShareFetch says, so that the broker fetches ``wanted``."""
        return SessionChange(self.epoch, wanted - self.partitions, self.partitions - wanted)

    def fetched(self, wanted: frozenset[SharePartition]) -> None:
        """Note the response to a ShareFetch."""
        self.partitions = wanted
        self.acknowledged()

    def acknowledged(self) -> None:
        """Note the response to a request of the session."""
        self.epoch = self.epoch + 1 if self.epoch < _LAST_EPOCH else OPENING_EPOCH + 1

    def lock_timeout_told(self, timeout_ms: int) -> None:
        """Note how long the broker locks records for this member."""
        self.lock_timeout_ms = timeout_ms

    def locked(self, sent_at: float) -> float:
        """Note that the broker has locked records, or renewed locks. Return when these locks end at
        the earliest.

        Args:
            sent_at: loop time at which the request was sent. The locks begin after it; the response
                may be handled much later, if the event loop was blocked.
        """
        lock_s = bounded(self.lock_timeout_ms or 0, MIN_LOCK_MS, MAX_LOCK_MS)
        self._locks_end = sent_at + lock_s
        return self._locks_end

    def holds_locks(self, now: float) -> bool:
        """Whether locks may not have ended, of records that are acknowledged, too."""
        return self.is_open and now < self._locks_end

    def lost(self) -> None:
        """Begin a new session with the next ShareFetch."""
        self.epoch = OPENING_EPOCH
        self.partitions = frozenset()
        self.generation += 1
