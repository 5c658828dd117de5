"""The consumer's side of fetch sessions (KIP-227): a node remembers the partitions of earlier
requests, so the next request has only changes.
"""

import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic
from aioprod.types import TopicPartition

_NO_SESSION = 0
_FIRST_EPOCH = 0
_LAST_EPOCH = -1
_HIGHEST_EPOCH = 2**31 - 1
#: The last version of Fetch that names topics; later ones have their ids (KIP-516).
LAST_FETCH_BY_NAME = 12


class Asked(NamedTuple):
    """The fields of a request for one partition. The topic id is zero if it is not known."""

    topic_id: uuid.UUID
    offset: int
    leader_epoch: int
    max_bytes: int


_topic_id_of = attrgetter("topic_id")


class SessionRequest(NamedTuple):
    """The parts of a Fetch request that a session decides on.

    Attributes:
        newest: the newest version of the request; None for any.
    """

    session_id: int
    epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    newest: int | None


@dataclass(slots=True)
class FetchSession:
    """The session with one node. It has one request at a time: after :meth:`begin` comes
    :meth:`answered` or :meth:`lost`.

    Attributes:
        names: the topics of the session by id, and perhaps former ones.
    """

    session_id: int = _NO_SESSION
    epoch: int = _FIRST_EPOCH
    known: dict[TopicPartition, Asked] = field(default_factory=dict)
    names: dict[uuid.UUID, str] = field(default_factory=dict)
    newest: int | None = None

    def begin(
        self, wanted: Mapping[TopicPartition, Asked], unanswered: Collection[TopicPartition] = ()
    ) -> SessionRequest:
        """Return the next request. After it the session has the partitions ``wanted``.

        Args:
            unanswered: those for which no end of the log is known.
        """
        if unanswered and any(tp in self.known for tp in unanswered):
            # One that was assigned again. The node answers only what has changed since it answered
            # for the former assignment: without new records the end would remain unknown.
            self.lost()
        known = self.known
        changed = {tp: asked for tp, asked in wanted.items() if known.get(tp) != asked}
        # Some services have no topic ids, but Fetch in versions that need those of all topics.
        unsure = changed if self.newest is None else wanted  # the others have ids
        newest = newest_version(map(_topic_id_of, unsure.values()))
        if newest != self.newest:
            self.lost()  # all requests of a session name topics, or all have ids
            self.newest = newest
        for tp, asked in changed.items():
            before = known.get(tp)
            if before is None:
                self.names[asked.topic_id] = tp.topic
            elif before.topic_id is not asked.topic_id and before.topic_id != asked.topic_id:
                # The topic was deleted and created again. A node that names topics would forget the
                # current partitions, too.
                self.lost()
        forgotten: dict[TopicPartition, Asked] = {}
        if self.epoch == _FIRST_EPOCH:
            changed = dict(wanted)
            self.names = {asked.topic_id: tp.topic for tp, asked in wanted.items()}
        elif not known.keys() <= wanted.keys():
            forgotten = {tp: old for tp, old in known.items() if tp not in wanted}
        self.known = dict(wanted)
        return SessionRequest(
            self.session_id, self.epoch, _topics(changed), _forgotten(forgotten), newest
        )

    def end(self) -> SessionRequest | None:
        """Return the request that ends the session; None if there is no session."""
        return (
            SessionRequest(self.session_id, _LAST_EPOCH, [], [], self.newest)
            if self.session_id != _NO_SESSION
            else None
        )

    def answered(self, error_code: int, session_id: int) -> None:
        """Handle the response of the node: its session id, or a top-level error."""
        if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND or (
            not error_code and session_id == _NO_SESSION
        ):
            self.session_id, self.epoch = _NO_SESSION, _FIRST_EPOCH
        elif error_code:
            self.lost()
        else:
            self.session_id = session_id
            self.epoch = self.epoch + 1 if self.epoch < _HIGHEST_EPOCH else 1

    def lost(self) -> None:
        """Note that there was no response, so the state of the session is unknown. The next request
        ends the session and begins another.
        """
        self.epoch = _FIRST_EPOCH


def newest_version(topic_ids: Iterable[uuid.UUID]) -> int | None:
    """Return the newest version of Fetch for topics with these ids; None for any."""
    for topic_id in topic_ids:
        if not topic_id.int:
            return LAST_FETCH_BY_NAME
    return None


def _topics(partitions: Mapping[TopicPartition, Asked]) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for tp, asked in partitions.items():
        topic = topics.get(tp.topic)
        if topic is None:
            topic = topics[tp.topic] = FetchTopic(
                topic=tp.topic, topic_id=asked.topic_id, partitions=[]
            )
        topic.partitions.append(
            FetchPartition(
                partition=tp.partition,
                current_leader_epoch=asked.leader_epoch,
                fetch_offset=asked.offset,
                partition_max_bytes=asked.max_bytes,
            )
        )
    return list(topics.values())


def _forgotten(partitions: Mapping[TopicPartition, Asked]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, uuid.UUID], ForgottenTopic] = {}
    for tp, asked in partitions.items():
        topic = topics.setdefault(
            (tp.topic, asked.topic_id),
            ForgottenTopic(topic=tp.topic, topic_id=asked.topic_id, partitions=[]),
        )
        topic.partitions.append(tp.partition)
    return list(topics.values())
