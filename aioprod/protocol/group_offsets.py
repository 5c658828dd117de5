"""Requests for the offsets of a consumer group. Used by its members, the admin client and Spark."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Protocol, TypeVar

from aioprod.error_codes import ErrorCode
from aioprod.protocol.consumer_protocol import group_by_topic
from aioprod.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from aioprod.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from aioprod.protocol.primitives import ZERO_UUID
from aioprod.types import OffsetAndMetadata, TopicPartition

#: The first version of OffsetFetch that can wait until transactions have ended (KIP-447).
STABLE_FROM = 7
#: The last versions with the names of topics; later versions have ids (KIP-848, KIP-1319).
LAST_COMMIT_BY_NAME = 9
LAST_FETCH_BY_NAME = 9
LAST_TRANSACTIONAL_COMMIT_BY_NAME = 5
_SEVERAL_GROUPS_FROM = 8
#: Error codes if a client that is not a member commits offsets while the group has members.
HAS_MEMBERS = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.REBALANCE_IN_PROGRESS,
)


TopicIds = Mapping[str, uuid.UUID]


def topics_to_commit(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], ids: TopicIds = MappingProxyType({})
) -> list[OffsetCommitRequestTopic]:
    """Return the topics of an OffsetCommit request. Versions after `LAST_COMMIT_BY_NAME` require
    the ids of all topics.
    """
    return [
        OffsetCommitRequestTopic(
            topic,
            ids.get(topic, ZERO_UUID),
            [_to_commit(number, offsets[TopicPartition(topic, number)]) for number in numbers],
        )
        for topic, numbers in group_by_topic(offsets).items()
    ]


def _to_commit(partition: int, at: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(partition, at.offset, at.leader_epoch, at.metadata)


def fetch_offsets(
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    version: int,
    *,
    require_stable: bool = False,
    ids: TopicIds = MappingProxyType({}),
) -> OffsetFetchRequest:
    """Return a request for a group's offsets; for all offsets if ``partitions`` is None. Versions
    after `LAST_FETCH_BY_NAME` require the ids of all topics.
    """
    wanted = None if partitions is None else group_by_topic(partitions).items()
    if version < _SEVERAL_GROUPS_FROM:
        topics = None if wanted is None else [OffsetFetchRequestTopic(*each) for each in wanted]
        return OffsetFetchRequest(group_id, topics, require_stable=require_stable)
    group = OffsetFetchRequestGroup(
        group_id,
        topics=None
        if wanted is None
        else [
            OffsetFetchRequestTopics(topic, ids.get(topic, ZERO_UUID), numbers)
            for topic, numbers in wanted
        ],
    )
    return OffsetFetchRequest(groups=[group], require_stable=require_stable)


class TopicOfReply(Protocol):
    """A topic in a reply, with its name or its id."""

    name: str
    topic_id: uuid.UUID


TopicT = TypeVar("TopicT", bound=TopicOfReply)


def named(topics: Iterable[TopicT], ids: TopicIds) -> Iterator[tuple[str, TopicT]]:
    """Yield the topics in the reply to a request with these ids, each with its name. Topics with
    other ids are left out.
    """
    names = {topic_id: name for name, topic_id in ids.items()}
    for topic in topics:
        yield topic.name or names.get(topic.topic_id, ""), topic
