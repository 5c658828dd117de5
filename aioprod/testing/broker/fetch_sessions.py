"""Fetch sessions (KIP-227): a node remembers what a consumer reads, so that a request names changes
only, and an answer only what is new.

Plain decisions over (state, now): no socket, no clock, no loop.
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
_FIRST_EPOCH = 0  # of the request that wants a session
_LAST_EPOCH = -1  # of the request that wants none, or no longer
_HIGHEST_EPOCH = 2**31 - 1
_TOPIC_IDS_FROM = 13
_EVICTION_SECONDS = (
    120.0  # Kafka's min.incremental.fetch.session.eviction.ms, which is no setting that can be set
)


class Place(NamedTuple):
    """A partition as a request names it: by its topic's name, or by its id."""

    topic: str
    topic_id: uuid.UUID
    partition: int


@dataclass(slots=True)
class CachedPartition:
    """A partition of a session: what is asked of it, and what the client was last told."""

    asked: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1

    def take_news(self, answer: PartitionData) -> bool:
        """Tell whether the client has to be sent this answer, and note that it was."""
        is_news = bool(
            answer.records
            or answer.error_code
            or answer.diverging_epoch.end_offset >= 0
            or (self.high_watermark, self.log_start_offset)
            != (answer.high_watermark, answer.log_start_offset)
        )
        self.high_watermark = (
            -1 if answer.error_code else answer.high_watermark
        )  # what comes after an error is news
        self.log_start_offset = answer.log_start_offset
        return is_news


@dataclass(slots=True)
class FetchSession:
    """What one consumer reads from one node.

    Attributes:
        epoch: the one that the next request has to name.
        partitions: in the order in which they are read; who got records goes to the end.
    """

    session_id: int
    uses_topic_ids: bool
    created: float
    last_used: float
    epoch: int = _FIRST_EPOCH + 1
    partitions: dict[Place, CachedPartition] = field(default_factory=dict)

    def update(self, request: FetchRequest) -> None:
        """Take over what a request changes."""
        for place, asked in _places(request):
            cached = self.partitions.get(place)
            if cached is None:
                self.partitions[place] = CachedPartition(asked)
            else:
                cached.asked = asked
        for topic in request.forgotten_topics_data:
            for partition in topic.partitions:
                self.partitions.pop(Place(topic.topic, topic.topic_id, partition), None)

    def select(self, answers: dict[Place, PartitionData]) -> dict[Place, PartitionData]:
        """Leave out what the client knows."""
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
    """One request: what is asked in all, and how it is answered."""

    sessions: FetchSessions
    asked: dict[Place, FetchPartition]
    session: FetchSession | None = None
    epoch: int = _LAST_EPOCH
    wants_session: bool = False
    uses_topic_ids: bool = False

    def finish(
        self, answers: dict[Place, PartitionData], now: float
    ) -> tuple[int, dict[Place, PartitionData]]:
        """Return the session's id and the answers to be sent.

        Raises RequestError (INVALID_FETCH_SESSION_EPOCH) where the session went on meanwhile: the
        request was a copy.
        """
        session = self.session
        if session is not None:
            if session.epoch != self.epoch:
                raise RequestError(
                    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                    f"the session went on to {session.epoch} meanwhile",
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
    """The sessions of one node. There are at most ``limit``; who is idle or reads little makes room
    for others, as in Kafka.
    """

    def __init__(self, random_source: random.Random, limit: int = MAX_SESSIONS) -> None:
        self._random = random_source
        self._limit = limit
        self._sessions: dict[
            int, FetchSession
        ] = {}  # the one that was used longest ago is the first

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, version: int, now: float) -> FetchContext:
        """Find out what a request asks for; raise RequestError where its session is not there, or
        at another epoch.
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
        """Make a session for this number of partitions; None where there is no room."""
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
                f"epoch {request.session_epoch}: {session.epoch} is wanted",
            )
        if session.uses_topic_ids != uses_topic_ids:
            raise RequestError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                "the session began with topic ids, or without them",
            )
        return session

    def _make_room(self, size: int, now: float) -> bool:
        oldest = next(iter(self._sessions.values()))
        if now - oldest.last_used > _EVICTION_SECONDS:
            del self._sessions[oldest.session_id]
            return True
        settled = [
            session
            for session in self._sessions.values()
            if now - session.created > _EVICTION_SECONDS
        ]
        smallest = min(settled, key=lambda session: len(session.partitions), default=None)
        if smallest is None or size <= len(smallest.partitions):
            return False
        del self._sessions[smallest.session_id]
        return True


def _places(request: FetchRequest) -> Iterable[tuple[Place, FetchPartition]]:
    return (
        (Place(topic.topic, topic.topic_id, asked.partition), asked)
        for topic in request.topics
        for asked in topic.partitions
    )
