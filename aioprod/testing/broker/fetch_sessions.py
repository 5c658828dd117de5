"""Fetch sessions (KIP-227): a node remembers the partitions of a consumer, so that requests and
responses contain only changes.

Synchronous decisions over (state, now), without sockets, clock or event loop.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData
from aioprod.testing.broker.errors import RequestError

NO_SESSION = 0
MAX_SESSIONS = 1000  # broker setting max.incremental.fetch.session.cache.slots
_FIRST_EPOCH = 0  # in a request for a new session
_LAST_EPOCH = -1  # in a request without a session, or one that closes its session
_HIGHEST_EPOCH = 2**31 - 1
_TOPIC_IDS_FROM = 13
_EVICTION_SECONDS = (
    120.0  # Kafka's min.incremental.fetch.session.eviction.ms, which can't be configured
)


class RequestedPartition(NamedTuple):
    """A partition in a request, identified by the topic's name or its id."""

    topic: str
    topic_id: uuid.UUID
    partition: int


@dataclass(slots=True)
class CachedPartition:
    """A partition of a session: the client's last request and the last response."""

    asked: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1

    def take_news(self, answer: PartitionData) -> bool:
        """Return whether the client needs this response, and record it as sent."""
        is_news = bool(
            answer.records
            or answer.error_code
            or answer.diverging_epoch.end_offset >= 0
            or (self.high_watermark, self.log_start_offset)
            != (answer.high_watermark, answer.log_start_offset)
        )
        # A response is also needed when an error ends.
        self.high_watermark = -1 if answer.error_code else answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        return is_news


@dataclass(slots=True)
class FetchSession:
    """The partitions that a consumer reads from a node.

    Attributes:
        epoch: the epoch that the next request must have.
        partitions: the partitions in reading order. A partition that returned records moves to the
            end.
    """

    session_id: int
    uses_topic_ids: bool
    created: float
    last_used: float
    epoch: int = _FIRST_EPOCH + 1
    partitions: dict[RequestedPartition, CachedPartition] = field(default_factory=dict)

    def update(self, request: FetchRequest) -> None:
        """Apply the changes in a request."""
        for place, asked in _places(request):
            cached = self.partitions.get(place)
            if cached is None:
                self.partitions[place] = CachedPartition(asked)
            else:
                cached.asked = asked
        for topic in request.forgotten_topics_data:
            for partition in topic.partitions:
                self.partitions.pop(
                    RequestedPartition(topic.topic, topic.topic_id, partition), None
                )

    def select(
        self, answers: dict[RequestedPartition, PartitionData]
    ) -> dict[RequestedPartition, PartitionData]:
        """Leave out the partitions without changes."""
        news = {}
        for place, answer in answers.items():
            cached = self.partitions.get(place)
            if cached is None or not cached.take_news(answer):
                continue
            news[place] = answer
            if answer.records:
                self.partitions[place] = self.partitions.pop(place)
        return news


@dataclass(slots=True)
class FetchContext:
    """One request: all partitions to read, and the response."""

    sessions: FetchSessions
    asked: dict[RequestedPartition, FetchPartition]
    session: FetchSession | None = None
    epoch: int = _LAST_EPOCH
    wants_session: bool = False
    uses_topic_ids: bool = False

    def finish(
        self, answers: dict[RequestedPartition, PartitionData], now: float
    ) -> tuple[int, dict[RequestedPartition, PartitionData]]:
        """Return the session's id and the partitions to send.

        Raises:
            RequestError: if another request has used the session since
                (INVALID_FETCH_SESSION_EPOCH).
        """
        session = self.session
        if session is not None:
            if session.epoch != self.epoch:
                raise RequestError(
                    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                    f"the session has epoch {session.epoch} now",
                )
            return session.session_id, session.select(answers)
        session = (
            self.sessions.create(len(answers), self.uses_topic_ids, now)
            if self.wants_session
            else None
        )
        if session is None:
            return NO_SESSION, answers
        for place, answer in answers.items():
            session.partitions[place] = CachedPartition(
                self.asked[place], answer.high_watermark, answer.log_start_offset
            )
        return session.session_id, answers


class FetchSessions:
    """The sessions of one node, at most ``limit``. As in Kafka, an idle or smaller session is
    evicted for a new one.
    """

    def __init__(self, random_source: random.Random, limit: int = MAX_SESSIONS) -> None:
        self._random = random_source
        self._limit = limit
        self._sessions: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, version: int, now: float) -> FetchContext:
        """Find the partitions that a request asks for; raise RequestError if its session does not
        exist or has another epoch.
        """
        uses_topic_ids = version >= _TOPIC_IDS_FROM
        if request.session_epoch in (_FIRST_EPOCH, _LAST_EPOCH):
            self._sessions.pop(request.session_id, None)
            asked = dict(_places(request))
            return FetchContext(
                self,
                asked,
                wants_session=request.session_epoch == _FIRST_EPOCH,
                uses_topic_ids=uses_topic_ids,
            )
        session = self._find(request, uses_topic_ids)
        session.update(request)
        if not session.partitions:
            del self._sessions[session.session_id]
            return FetchContext(self, {})
        session.last_used = now
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        session.epoch = session.epoch + 1 if session.epoch < _HIGHEST_EPOCH else 1
        asked = {place: cached.asked for place, cached in session.partitions.items()}
        return FetchContext(self, asked, session, session.epoch)

    def create(self, size: int, uses_topic_ids: bool, now: float) -> FetchSession | None:
        """Create a session for this number of partitions, or return None if there is no room."""
        if len(self._sessions) >= self._limit and not self._make_room(size, now):
            return None
        session_id = self._random.randrange(1, 2**31)
        while session_id in self._sessions:
            session_id = self._random.randrange(1, 2**31)
        session = self._sessions[session_id] = FetchSession(session_id, uses_topic_ids, now, now)
        return session

    def _find(self, request: FetchRequest, uses_topic_ids: bool) -> FetchSession:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise RequestError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"there is no session {request.session_id}"
            )
        if session.epoch != request.session_epoch:
            raise RequestError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"the session has epoch {session.epoch}, not {request.session_epoch}",
            )
        if session.uses_topic_ids != uses_topic_ids:
            raise RequestError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                "a session uses either topic ids or topic names",
            )
        return session

    def _make_room(self, size: int, now: float) -> bool:
        oldest = next(iter(self._sessions.values()))
        if now - oldest.last_used > _EVICTION_SECONDS:
            del self._sessions[oldest.session_id]
            return True
        evictable = [
            session
            for session in self._sessions.values()
            if now - session.created > _EVICTION_SECONDS
        ]
        smallest = min(evictable, key=lambda session: len(session.partitions), default=None)
        if smallest is None or size <= len(smallest.partitions):
            return False
        del self._sessions[smallest.session_id]
        return True


def _places(request: FetchRequest) -> Iterable[tuple[RequestedPartition, FetchPartition]]:
    return (
        (RequestedPartition(topic.topic, topic.topic_id, asked.partition), asked)
        for topic in request.topics
        for asked in topic.partitions
    )
