"""Wakes the shards of a relay when the database sends a notification, or after an interval."""

from __future__ import annotations

import asyncio

_LISTENING_POLL_S = 1.0


class Waking:
    """The waiting time of shards without rows.

    Notifications may be lost: the tables may lack the trigger, or a connection pool may hide them.
    So shards look for rows often until the first notification arrives, and again after they have
    found rows without a notification.

    Args:
        poll_s: the seconds after which a shard looks for rows without a notification.
    """

    def __init__(self, poll_s: float) -> None:
        self._poll_s = poll_s
        self._trusted = False
        self._events: set[asyncio.Event] = set()

    def add(self, event: asyncio.Event) -> None:
        """Set ``event`` at each notification."""
        self._events.add(event)

    def remove(self, event: asyncio.Event) -> None:
        """Undo :meth:`add`."""
        self._events.discard(event)

    def notify(self) -> None:
        """Wake all shards: there are new rows."""
        self._trusted = True
        self._wake()

    def distrust(self) -> None:
        """Look for rows often, because a shard found some without a notification, or the connection
        is lost.
        """
        if self._trusted:
            self._trusted = False
            self._wake()

    def _wake(self) -> None:
        for event in self._events:
            event.set()

    @property
    def pause_s(self) -> float:
        """Return the seconds until a shard without rows looks again."""
        return max(self._poll_s, _LISTENING_POLL_S) if self._trusted else self._poll_s
