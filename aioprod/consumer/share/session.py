"""The share session of a member with one broker (KIP-932), without I/O: its epoch, partitions and
locks, and when its next request is sent.
"""

from collections.abc import Callable
from typing import NamedTuple

from aioprod.consumer.share.acknowledgements import SharePartition
from aioprod.earliest_timer import EarliestTimer
from aioprod.net.backoff import Backoff
from aioprod.net.bounds import MAX_LOCK_MS, MIN_LOCK_MS, bounded

OPENING_EPOCH = 0
CLOSING_EPOCH = -1
_LAST_EPOCH = 2**31 - 1

# How long an acknowledgement waits for a fetch that takes it.
_LINGER_S = 0.1


class SessionChange(NamedTuple):
    """A change of the partitions that the broker fetches, for the next ShareFetch."""

    epoch: int
    added: frozenset[SharePartition]
    forgotten: frozenset[SharePartition]


class ShareSession:
    """A session. The broker locks its records for the member, and releases them when it ends.

    Attributes:
        epoch: the epoch of the next request.
        generation: the number of sessions before this one. Records of an earlier session can't be
            acknowledged any more.
        partitions: the partitions that the broker fetches if a request does not change them.
        lock_timeout_ms: how long the broker locks records for this member; None if unknown.
    """

    def __init__(self) -> None:
        self.epoch: int = OPENING_EPOCH
        self.generation: int = 0
        self.partitions: frozenset[SharePartition] = frozenset()
        self.lock_timeout_ms: int | None = None
        self._locks_end = 0.0

    @property
    def is_open(self) -> bool:
        """True if the broker knows the session, as far as the client knows."""
        return self.epoch != OPENING_EPOCH

    def change(self, wanted: frozenset[SharePartition]) -> SessionChange:
        """Return the change in the next ShareFetch, so that the broker fetches ``wanted``."""
        return SessionChange(self.epoch, wanted - self.partitions, self.partitions - wanted)

    def fetched(self, wanted: frozenset[SharePartition]) -> None:
        """Note the response to a ShareFetch."""
        self.partitions = wanted
        self.acknowledged()

    def acknowledged(self) -> None:
        """Note the response to a request of the session."""
        self.epoch = self.epoch + 1 if self.epoch < _LAST_EPOCH else OPENING_EPOCH + 1

    def lock_announced(self, timeout_ms: int) -> None:
        """Keep how long the broker locks records."""
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

    def has_locks(self, now: float) -> bool:
        """Return True if locks may not have ended, also of records that are acknowledged."""
        return self.is_open and now < self._locks_end

    def lost(self) -> None:
        """Begin a new session with the next ShareFetch."""
        self.epoch = OPENING_EPOCH
        self.partitions = frozenset()
        self.generation += 1


class Pacing:
    """Decides when the next request of a session is sent: acknowledgements wait for the next fetch,
    and failures for a backoff.

    Args:
        backoff: the pauses after failures.
        on_due: called when a request may be due.
    """

    def __init__(self, backoff: Backoff, on_due: Callable[[], None]) -> None:
        self._backoff = backoff
        self._send_at = 0.0
        self._retry_at = 0.0
        self._failures = 0
        self._timer = EarliestTimer(lambda _: on_due())

    def acknowledged(self, now: float, *, first: bool, urgent: bool) -> None:
        """Note an acknowledgement.

        Args:
            now: the loop time.
            first: True if no other one waits.
            urgent: True if it is sent without a delay.
        """
        due = now if urgent else now + _LINGER_S
        self._send_at = due if first else min(self._send_at, due)
        self.wait(now, acknowledgements=True)

    def flush(self) -> None:
        """Let acknowledgements wait no longer."""
        self._send_at = 0.0

    def paused(self, now: float) -> bool:
        """Return True if a failure was a short time ago."""
        return now < self._retry_at

    @property
    def searches(self) -> bool:
        """True if another leader is looked for as often as metadata may be requested."""
        return self._backoff.searches(self._failures)

    def lingers(self, now: float) -> bool:
        """Return True if acknowledgements still wait for a fetch."""
        return now < self._send_at

    def succeeded(self) -> None:
        """Note that the session works."""
        self._failures = 0

    def pause(self, now: float) -> None:
        """Send nothing for the backoff."""
        self._failures += 1
        self._retry_at = now + self._backoff.seconds(self._failures)

    def wait(self, now: float, *, acknowledgements: bool) -> None:
        """Call ``on_due`` when the pause has passed, and acknowledgements no longer wait."""
        self._timer.set(max(self._retry_at, self._send_at if acknowledgements else now))

    def stop(self) -> None:
        """Do not call ``on_due`` again."""
        self._timer.stop()
