"""Detects that the application has stopped polling (``max.poll.interval.ms``), and that the whole
process was suspended.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from aioprod.consumer.group.cut_off import CutOffWatch


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
