"""Requests for the offsets of a consumer group, used by its members, the admin client and Spark's
driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
from aioprod.types import OffsetAndMetadata, TopicPartition

#: The first version of OffsetFetch that can wait until transactions are complete (KIP-447).
STABLE_FROM = 7
_SEVERAL_GROUPS_FROM = 8
#: Error codes for offsets that are not committed by a member, while the group has members.
HAS_MEMBERS = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.REBALANCE_IN_PROGRESS,
)


def topics_to_commit(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> list[OffsetCommitRequestTopic]:
    """Return the topics of an OffsetCommit request."""
    return [
        OffsetCommitRequestTopic(
            topic,
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
) -> OffsetFetchRequest:
    """Return a request for a group's offsets; for all of them if ``partitions`` is None."""
    wanted = None if partitions is None else group_by_topic(partitions).items()
    if version < _SEVERAL_GROUPS_FROM:
        topics = None if wanted is None else [OffsetFetchRequestTopic(*each) for each in wanted]
        return OffsetFetchRequest(group_id, topics, require_stable=require_stable)
    group = OffsetFetchRequestGroup(
        group_id,
        topics=None if wanted is None else [OffsetFetchRequestTopics(*each) for each in wanted],
    )
    return OffsetFetchRequest(groups=[group], require_stable=require_stable)
