"""Share sessions (KIP-932): a node remembers the partitions of a member, so that its requests
contain only changes. A session ends with its connection.

Synchronous decisions, without sockets, clock or event loop.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.errors import RequestError

MAX_SESSIONS = 2000  # broker setting group.share.max.share.sessions
FIRST_EPOCH = 0  # in a request for a new session
FINAL_EPOCH = -1  # in a request that closes its session
_HIGHEST_EPOCH = 2**31 - 1


class SharedPlace(NamedTuple):
    """A partition in a request."""

    topic_id: uuid.UUID
    partition: int


class SessionKey(NamedTuple):
    """The member that a session belongs to."""

    group_id: str
    member_id: str


@dataclass(slots=True)
class ShareSession:
    """The partitions that a member reads from a node.

    Attributes:
        connection: the connection of the request that began the session.
        epoch: the epoch that the next request must have.
        places: the partitions in reading order; one that returned records moves to the end.
        unanswered: the partitions that no response has contained yet.
    """

    connection: object
    epoch: int = FIRST_EPOCH + 1
    places: dict[SharedPlace, None] = field(default_factory=dict)
    unanswered: set[SharedPlace] = field(default_factory=set)

    def update(self, added: Iterable[SharedPlace], forgotten: Iterable[SharedPlace]) -> None:
        """Apply the changes in a request."""
        new = [place for place in added if place not in self.places]
        self.places.update(dict.fromkeys(new))
        self.unanswered.update(new)
        for place in forgotten:
            self.places.pop(place, None)
            self.unanswered.discard(place)

    def gave(self, place: SharedPlace) -> None:
        """Move a partition that returned records to the end."""
        if place in self.places:
            del self.places[place]
            self.places[place] = None


class ShareSessions:
    """The sessions of one node, at most ``limit``."""

    def __init__(self, limit: int = MAX_SESSIONS) -> None:
        self._limit = limit
        self._sessions: dict[SessionKey, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, key: SessionKey, connection: object) -> ShareSession:
        """Begin a session, replacing the member's current one if there is one.

        Raises:
            RequestError: if there are too many (SHARE_SESSION_LIMIT_REACHED).
        """
        if key not in self._sessions and len(self._sessions) >= self._limit:
            raise RequestError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"there are {self._limit} share sessions (group.share.max.share.sessions)",
            )
        session = self._sessions[key] = ShareSession(connection)
        return session

    def use(self, key: SessionKey, epoch: int) -> ShareSession:
        """Return the session of a request and move it to the next epoch.

        Raises:
            RequestError: if there is no session, or if it has another epoch.
        """
        session = self.find(key)
        if session.epoch != epoch:
            raise RequestError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"the share session has epoch {session.epoch}, not {epoch}",
            )
        session.epoch = epoch + 1 if epoch < _HIGHEST_EPOCH else FIRST_EPOCH + 1
        return session

    def find(self, key: SessionKey) -> ShareSession:
        """Return a session; raise RequestError if there is none."""
        session = self._sessions.get(key)
        if session is None:
            raise RequestError(
                ErrorCode.SHARE_SESSION_NOT_FOUND,
                f"member {key.member_id} of group {key.group_id} has no share session here",
            )
        return session

    def end(self, key: SessionKey) -> None:
        """End a session."""
        self._sessions.pop(key, None)

    def end_with(self, connection: object) -> list[SessionKey]:
        """End the sessions of a connection, and return their keys."""
        ended = [key for key, each in self._sessions.items() if each.connection is connection]
        for key in ended:
            del self._sessions[key]
        return ended
