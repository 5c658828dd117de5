"""A consumer group as tests see it: a copy with plain values."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from aioprod.public_module import set_module
from aioprod.testing.broker.epoch_groups.group import EpochGroup
from aioprod.testing.broker.epoch_groups.member import EpochMember
from aioprod.testing.broker.epoch_groups.modern import ModernGroup
from aioprod.testing.broker.groups.group import CONSUMER, Group
from aioprod.testing.broker.groups.member import Member
from aioprod.testing.broker.groups.subscription import read_partitions, read_topics
from aioprod.testing.broker.share_groups.group import ShareGroup
from aioprod.types import TopicPartition


@set_module("aioprod.testing")
@dataclass(slots=True, frozen=True)
class GroupMember:
    """One member of a group.

    Attributes:
        member_id: the id that the broker chose.
        instance_id: group.instance.id of a static member (KIP-345), else None.
        client_id: the client's client.id.
        topics: the topics that a consumer subscribes to; None if the member is not a consumer.
        partitions: the partitions assigned to a consumer; None if the member is not a consumer.
        metadata: the member's bytes for the group's protocol; empty with the consumer protocol.
        assignment: the bytes that the leader assigned; empty with the consumer protocol.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    topics: tuple[str, ...] | None
    partitions: tuple[TopicPartition, ...] | None
    metadata: bytes = field(repr=False)
    assignment: bytes = field(repr=False)


@set_module("aioprod.testing")
@dataclass(slots=True, frozen=True)
class ConsumerGroup:
    """The state of a group at a point in time.

    Attributes:
        state: "Empty", "PreparingRebalance" (members join), "CompletingRebalance" (the leader
            computes the assignment) or "Stable"; with the consumer protocol (KIP-848) "Empty",
            "Assigning" (the next heartbeat computes a new assignment), "Reconciling" (members move
            to their new partitions) or "Stable".
        generation_id: incremented by each rebalance; with the consumer protocol, the group's epoch.
        protocol_type: "consumer" for consumers, "share" for share groups; None if the group never
            had a member.
        protocol_name: the assignment strategy of the members or, with the consumer protocol, of the
            broker, such as "range"; None if there is none.
        leader_id: the member that computes the assignment; None if there are no members, and with
            the consumer protocol.
        members: the members by id.
        offsets: the committed offsets.
    """

    group_id: str
    state: str
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader_id: str | None
    members: Mapping[str, GroupMember]
    offsets: Mapping[TopicPartition, int]

    @property
    def partitions(self) -> list[TopicPartition]:
        """The assigned partitions of all members, sorted. A partition assigned to two members is
        listed twice.
        """
        return sorted(
            place for member in self.members.values() for place in member.partitions or ()
        )


def show(
    group: Group | EpochGroup | ShareGroup,
    offsets: Mapping[TopicPartition, int],
    topics: Mapping[uuid.UUID, str],
) -> ConsumerGroup:
    """Copy the state of a group for a test.

    Args:
        topics: the names of topics by id.
    """
    if isinstance(group, ModernGroup):
        return _show_modern(group, offsets, topics)
    return _show_classic(group, offsets)


def _show_modern(
    group: EpochGroup | ShareGroup,
    offsets: Mapping[TopicPartition, int],
    topics: Mapping[uuid.UUID, str],
) -> ConsumerGroup:
    members = {
        member.member_id: GroupMember(
            member_id=member.member_id,
            instance_id=member.instance_id if isinstance(member, EpochMember) else None,
            client_id=member.client_id,
            topics=tuple(sorted(group.topics_of(member.member_id))),
            partitions=tuple(
                TopicPartition(topics[topic_id], number)
                for topic_id, number in sorted(member.assigned)
                if topic_id in topics
            ),
            metadata=b"",
            assignment=b"",
        )
        for member in group.members.values()
    }
    return ConsumerGroup(
        group_id=group.group_id,
        state=str(group.state),
        generation_id=group.epoch,
        protocol_type=group.protocol_type,
        protocol_name=group.assignor if members else None,
        leader_id=None,
        members=members,
        offsets=dict(offsets),
    )


def _show_classic(group: Group, offsets: Mapping[TopicPartition, int]) -> ConsumerGroup:
    return ConsumerGroup(
        group_id=group.group_id,
        state=str(group.state),
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader_id=group.leader_id,
        members={
            member_id: _show_member(group, member) for member_id, member in group.members.items()
        },
        offsets=dict(offsets),
    )


def _show_member(group: Group, member: Member) -> GroupMember:
    metadata = group.metadata_of(member)
    is_consumer = group.protocol_type == CONSUMER
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        topics=read_topics(metadata) if is_consumer else None,
        partitions=read_partitions(member.assignment) if is_consumer else None,
        metadata=metadata,
        assignment=member.assignment,
    )
