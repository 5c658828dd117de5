"""The leader's work in a classic group: reads the members' subscriptions, and assigns the
partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from aioprod.cluster.metadata import Metadata
from aioprod.cluster.snapshot import ClusterSnapshot
from aioprod.consumer.group.assignors import Assignor, MemberSubscription, RebalanceProtocol
from aioprod.consumer.group.assignors.calls import ask_assignor
from aioprod.consumer.group.assignors.cooperative import (
    CooperativeStickyAssignor,
    moving_partitions,
)
from aioprod.errors import BrokerError, ConsumerStateError, KafkaError, ProtocolError
from aioprod.protocol.consumer_protocol import Assignment, decode_subscription, encode_assignment
from aioprod.protocol.messages.join_group import JoinGroupResponseMember
from aioprod.protocol.messages.sync_group import SyncGroupRequestAssignment
from aioprod.types import TopicPartition


@dataclass(slots=True)
class Leadership:
    """The topics that the leader watches: if their partitions change, the group has to rebalance.

    Attributes:
        topics: the number of partitions of each topic in the last assignment.
    """

    topics: Mapping[str, int] = field(default_factory=dict)

    def is_outdated(self, snapshot: ClusterSnapshot) -> bool:
        """Return whether a topic has another number of partitions now."""
        return any(
            count_partitions(snapshot, topic) != count for topic, count in self.topics.items()
        )


def count_partitions(snapshot: ClusterSnapshot, topic: str) -> int:
    """Return the number of a topic's partitions; 0 if it does not exist."""
    info = snapshot.topics.get(topic)
    return 0 if info is None or not info.partitions else info.partitions[-1].partition + 1


def read_members(members: Sequence[JoinGroupResponseMember]) -> list[MemberSubscription]:
    """Return the decoded subscriptions of the members.

    Raises:
        ConsumerStateError: if the bytes of a member are not a valid subscription.
    """
    read = []
    for member in members:
        try:
            sent = decode_subscription(member.metadata)
        except ProtocolError as error:
            raise ConsumerStateError(
                f"member {member.member_id!r} of the group has sent bytes that are not a "
                f"valid subscription: {error}"
            ) from error
        subscription = MemberSubscription(
            member.member_id,
            sent.topics,
            member.group_instance_id,
            sent.user_data,
            sent.owned,
            sent.generation,
            sent.rack,
        )
        read.append(subscription)
    return read


async def lead(
    assignor: Assignor, members: Sequence[MemberSubscription], metadata: Metadata
) -> tuple[list[SyncGroupRequestAssignment], Leadership]:
    """Refresh the metadata, and assign the partitions of all subscribed topics.

    Raises:
        KafkaError: if no broker responds with metadata.
        ConsumerStateError: if the assignor breaks the rules.
    """
    topics = {topic for member in members for topic in member.topics}
    for topic in topics:
        metadata.touch(topic)
    try:
        snapshot = await metadata.refresh(topics)
    except BrokerError as error:  # must not look like an error of the coordinator
        raise KafkaError(f"no metadata for the assignment: {error}") from error
    counts = {topic: count_partitions(snapshot, topic) for topic in topics}
    existing = {topic: count for topic, count in counts.items() if count}
    assignment = ask_assignor(assignor, assignor.assign, existing, members)
    _check(assignor, assignment, members)
    shares = [
        SyncGroupRequestAssignment(
            member.member_id,
            encode_assignment(Assignment(tuple(assignment.get(member.member_id, ())))),
        )
        for member in members
    ]
    return shares, Leadership(counts)


def _check(
    assignor: Assignor,
    assignment: Mapping[str, Collection[TopicPartition]],
    members: Sequence[MemberSubscription],
) -> None:
    """Raise if two members would read the same partition."""
    given = [partition for partitions in assignment.values() for partition in partitions]
    if len(set(given)) < len(given):
        raise ConsumerStateError(f"assignor {assignor.name!r} gives a partition to two members")
    if (
        isinstance(assignor, CooperativeStickyAssignor)
        or RebalanceProtocol.COOPERATIVE not in assignor.supported_protocols
    ):
        return
    if moving := moving_partitions(
        {member.member_id: assignment.get(member.member_id, ()) for member in members}, members
    ):
        raise ConsumerStateError(
            f"assignor {assignor.name!r} gives partitions to a member before their present "
            f"member has revoked them: {sorted(moving)}"
        )
