"""Detects that no broker answers while a member's session ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

# A session ends at the coordinator, which may be the only broker that is away: then the partitions
# stay with their members, and records are returned. So all brokers must be silent, for this share
# of the session.
_SILENT_SHARE = 0.5
_LOOK_S = 0.25
#: Seconds that the coordinator gets to answer a heartbeat after another broker has answered.
GRACE_S = 5.0


class CutOffWatch:
    """Knows whether this member has been cut off from all brokers until its session ended.

    After the cut the response to a Fetch is often the first to arrive. It has all that was written
    meanwhile, which other members have got, too, and this one can't commit it. So no records are
    returned until the coordinator answers a heartbeat, or turns out to be away while other brokers
    answer.

    Args:
        last_reply_at: returns the loop time of the last reply of any broker.
        on_release: called when records may be returned again.

    Attributes:
        blocks: whether no records may be returned.
    """

    def __init__(self, last_reply_at: Callable[[], float], on_release: Callable[[], None]) -> None:
        self.blocks = False
        self._last_reply_at = last_reply_at
        self._on_release = on_release
        self._silent_s = 0.0
        self._blocked_since = 0.0
        self._timer: asyncio.Handle | None = None

    def confirmed(self, sent_at: float, session_s: float) -> None:
        """Note that the coordinator has answered a heartbeat that was sent at this loop time."""
        self.stop()
        self._silent_s = session_s * _SILENT_SHARE
        self._timer = asyncio.get_running_loop().call_at(sent_at + session_s, self._look)

    def failed(self) -> None:
        """Note that a heartbeat has failed. If brokers answer, only the coordinator is away."""
        if self.blocks and self._last_reply_at() > self._blocked_since:
            self._release()

    def stop(self) -> None:
        """Stop watching: there is no session."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.blocks:
            self.blocks = False
            self._on_release()

    def _look(self) -> None:
        """Look whether brokers are silent, as the session has ended."""
        loop = asyncio.get_running_loop()
        due = self._last_reply_at() + self._silent_s
        if due > loop.time():
            self._timer = loop.call_at(due, self._look)
        else:
            self.blocks = True
            self._blocked_since = loop.time()
            self._wait_for_any()

    def _wait_for_any(self) -> None:
        """Wait until any broker answers, then for the coordinator."""
        loop = asyncio.get_running_loop()
        if self._last_reply_at() > self._blocked_since:
            self._timer = loop.call_later(GRACE_S, self._release)
        else:
            self._timer = loop.call_later(_LOOK_S, self._wait_for_any)

    def _release(self) -> None:
        """Return records although the coordinator is away, unless brokers are silent again."""
        self.stop()
        self._look()
