"""The state of all partitions of all share groups: creates it, follows changes of leaders and logs,
and ends locks by the event loop's clock.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.cluster import NO_NODE
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.partition import Partition
from aioprod.testing.broker.settings.group_configs import GroupConfigs
from aioprod.testing.broker.share_groups.dead_records import DeadRecord
from aioprod.testing.broker.share_groups.sessions import SessionKey, ShareSessions
from aioprod.testing.broker.share_groups.share_partition import SharePartition


class ShareKey(NamedTuple):
    """A partition of a share group."""

    group_id: str
    topic_id: uuid.UUID
    partition: int


@dataclass(slots=True)
class Shared:
    """A partition of a share group.

    Attributes:
        log: the partition.
        state: None until a member fetches for the first time. After that the group has a start
            offset.
        leader: the leader epoch of ``state``.
    """

    key: ShareKey
    log: Partition
    state: SharePartition | None = None
    leader: int = 0
    timer: asyncio.Handle | None = None


class SharePartitions:
    """The state of all partitions of all share groups, which brokers would keep in
    ``__share_group_state``.

    Args:
        configs: the settings of groups.
        now_ms: a function that returns milliseconds since 1970.

    Attributes:
        undertakers: called with the records that a group does not deliver again.
    """

    def __init__(self, configs: GroupConfigs, now_ms: Callable[[], int]) -> None:
        self.undertakers: list[Callable[[ShareKey, list[DeadRecord]], None]] = []
        self._configs = configs
        self._now_ms = now_ms
        self._shared: dict[ShareKey, Shared] = {}
        self._sessions: dict[int, ShareSessions] = {}
        self._watched: set[asyncio.Future[None]] = set()

    # -- sessions ----------------------------------------------------------------------------------

    def sessions(self, node_id: int, connection: asyncio.Future[None]) -> ShareSessions:
        """Return the share sessions of a node. The sessions of a connection end when it is closed.

        Args:
            connection: done when the connection has ended.
        """
        sessions = self._sessions.setdefault(node_id, ShareSessions())
        if connection not in self._watched:
            self._watched.add(connection)

            def end(ended: asyncio.Future[None]) -> None:
                self._watched.discard(ended)
                for key in sessions.end_with(ended):
                    self.release(key, node_id)

            connection.add_done_callback(end)
        return sessions

    def release(self, session: SessionKey, node_id: int) -> None:
        """Release the records that a member has acquired at a node."""
        settings = self._configs.share(session.group_id)
        for shared in self._of_group(session.group_id):
            if shared.state is not None and shared.log.leadership.leader in (node_id, NO_NODE):
                shared.state.release(session.member_id, settings)
                self.changed(shared)

    # -- partitions --------------------------------------------------------------------------------

    def initialize(self, key: ShareKey, log: Partition) -> Shared:
        """Return a partition of a group, and add it to the group if it is new."""
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = Shared(key, log)
        return shared

    def open(self, key: ShareKey, log: Partition) -> tuple[Shared, SharePartition]:
        """Return a partition with the state of its leader, which has a start offset.

        Raises:
            RequestError: if the group begins with records of an age that the partition lacks
                (OFFSET_NOT_AVAILABLE).
        """
        shared = self.initialize(key, log)
        state = shared.state
        if state is None:
            state = shared.state = SharePartition(self._first_offset(key.group_id, log))
        elif shared.leader != log.log.leader_epoch:
            state.reload()
        shared.leader = log.log.leader_epoch
        state.follow_log(log.log.start_offset)
        return shared, state

    def _first_offset(self, group_id: str, log: Partition) -> int:
        settings = self._configs.share(group_id)
        if settings.from_earliest:
            return log.log.start_offset
        if settings.from_age is not None:
            since = self._now_ms() - settings.from_age // timedelta(milliseconds=1)
            record = log.log.find_by_timestamp(since)
            if record is None or record.offset >= log.high_watermark:
                raise RequestError(
                    ErrorCode.OFFSET_NOT_AVAILABLE,
                    f"no record is as new as {since}",
                )
            return record.offset
        return log.high_watermark

    def find(self, key: ShareKey) -> Shared | None:
        """Return a partition of a group, or None if the group has not used it."""
        return self._shared.get(key)

    def of_group(self, group_id: str) -> list[Shared]:
        """Return the partitions of a group."""
        return self._of_group(group_id)

    def move(self, key: ShareKey, log: Partition, start_offset: int) -> None:
        """Restart at an offset, with new delivery counts."""
        shared = self.initialize(key, log)
        shared.state = SharePartition(start_offset, start_offset)
        shared.leader = log.log.leader_epoch
        self.changed(shared)

    def forget(self, chosen: Callable[[ShareKey], bool]) -> None:
        """Forget the state of partitions, because the topic or the group was deleted or an admin
        client requested it.
        """
        for key in [key for key in self._shared if chosen(key)]:
            timer = self._shared.pop(key).timer
            if timer is not None:
                timer.cancel()

    def changed(self, shared: Shared) -> None:
        """Wake the requests that wait for records, set the timer of the locks, and write dead
        letters.
        """
        dead = [] if shared.state is None else shared.state.take_dead()
        for undertaker in self.undertakers if dead else ():
            undertaker(shared.key, dead)
        shared.log.log.wake()
        self.arm(shared)

    def arm(self, shared: Shared) -> None:
        """Set the timer for the next lock that expires."""
        if shared.timer is not None:
            shared.timer.cancel()
            shared.timer = None
        due = None if shared.state is None else shared.state.next_timeout
        if due is not None:
            shared.timer = asyncio.get_running_loop().call_at(due, self._expire, shared, due)

    def _expire(self, shared: Shared, due: float) -> None:
        shared.timer = None
        # A timer can fire one tick of the clock too early.
        now = max(due, asyncio.get_running_loop().time())
        if shared.state is not None and self._shared.get(shared.key) is shared:
            shared.state.expire(now, self._configs.share(shared.key.group_id))
            self.changed(shared)

    def _of_group(self, group_id: str) -> list[Shared]:
        return [shared for key, shared in self._shared.items() if key.group_id == group_id]
