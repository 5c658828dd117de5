"""Detects that the application has stopped polling (``max.poll.interval.ms``), that the process was
suspended, and that no broker responds while a member's session ends.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

# A session ends at the coordinator, which may be the only broker that is away: then the partitions
# stay with their members, and records are returned. So all brokers must be silent, for this share
# of the session.
_SILENT_SHARE = 0.5
_LOOK_S = 0.25
#: Seconds that the coordinator gets to answer a heartbeat after another broker has answered.
GRACE_S = 5.0


class PollWatch:
    """Calls ``on_overdue`` once if the application does not poll within the limit.

    It also knows whether this member may have lost its partitions without a word: a process that is
    frozen, or whose event loop is blocked, sends no heartbeats, and after its session other members
    read its partitions. So it returns no records until the next heartbeat has an outcome. The same
    applies to a member that was cut off from all brokers (`CutOffWatch`).

    Args:
        limit_s: the longest time between two polls.
        on_overdue: called when it has passed.
        on_certain: called when records may be returned again.
        last_reply_at: returns the loop time of the last reply of any broker.
    """

    def __init__(
        self,
        limit_s: float,
        on_overdue: Callable[[], None],
        on_certain: Callable[[], None],
        last_reply_at: Callable[[], float],
    ) -> None:
        self._limit_s = limit_s
        self._on_overdue = on_overdue
        self._on_certain = on_certain
        self._polled_at = 0.0
        self._timer: asyncio.Handle | None = None
        self._session_ends_at: float | None = None  # None: no session, or a heartbeat is in flight
        self._sent_at = 0.0
        self._in_doubt = False
        self._cut_off = CutOffWatch(last_reply_at, on_certain)

    def polled(self, now: float) -> bool:
        """Note a poll; return whether it may return records."""
        self._polled_at = now
        self._look_at_session(now)
        return not (self._in_doubt or self._cut_off.blocks)

    def session_began(self, session_s: float) -> None:
        """Note that the coordinator has taken this member in."""
        now = asyncio.get_running_loop().time()
        self._session_ends_at = now + session_s
        self._cut_off.confirmed(now, session_s)

    def heartbeat_sent(self) -> None:
        """Note that a heartbeat is in flight. It ends in time, whatever brokers do."""
        self._sent_at = asyncio.get_running_loop().time()
        self._look_at_session(self._sent_at)
        self._session_ends_at = None

    def heartbeat_ended(self, session_s: float) -> None:
        """Note that a heartbeat was answered; the next one is sent before the session ends, unless
        the process is suspended.

        An answer that took longer than the session says nothing about the present: the process may
        have been suspended meanwhile.

        Args:
            session_s: infinity if the coordinator can't be reached.
        """
        now = asyncio.get_running_loop().time()
        in_flight, self._session_ends_at = self._session_ends_at is None, now + session_s
        if math.isinf(session_s):
            self._cut_off.failed()
        else:
            self._cut_off.confirmed(self._sent_at, session_s)
        if in_flight and now - self._sent_at > session_s:
            self._in_doubt = True
        else:
            self._be_certain()

    def heartbeats_stopped(self) -> None:
        """Note that there is no session."""
        self._session_ends_at = None
        self._cut_off.stop()
        self._be_certain()

    def begin(self) -> None:
        """Start watching, unless it has started already."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._polled_at = loop.time()
            self._timer = loop.call_at(self._polled_at + self._limit_s, self._look)

    def stop(self) -> None:
        """Stop watching."""
        self._cut_off.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        due = self._polled_at + self._limit_s
        if due > loop.time():
            self._timer = loop.call_at(due, self._look)
        else:
            self._timer = None
            self._on_overdue()

    def _look_at_session(self, now: float) -> None:
        if self._session_ends_at is not None and now > self._session_ends_at:
            self._in_doubt = True

    def _be_certain(self) -> None:
        if self._in_doubt:
            self._in_doubt = False
            self._on_certain()


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
        self.blocks: bool = False
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
