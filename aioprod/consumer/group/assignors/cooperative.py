"""The sticky assignor for cooperative rebalances (KIP-429): a partition is assigned to its new
member only after the old one has revoked it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from aioprod.consumer.group.assignors.assignor import MemberSubscription, RebalanceProtocol
from aioprod.consumer.group.assignors.balance import Claims, balance
from aioprod.errors import ProtocolError
from aioprod.protocol.primitives import Reader, Writer
from aioprod.types import TopicPartition


class CooperativeStickyAssignor:
    """Equal shares. Moves of partitions take two rebalances: the first revokes them from their old
    members, the second assigns them to the new ones.
    """

    name = "cooperative-sticky"
    supported_protocols: Collection[RebalanceProtocol] = (
        RebalanceProtocol.COOPERATIVE,
        RebalanceProtocol.EAGER,
    )

    def __init__(self) -> None:
        self._generation = -1

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        """Return the generation, for leaders that do not read it from the subscription (before
        KIP-792).
        """
        writer = Writer()
        writer.int32(self._generation)
        return bytes(writer.buffer)

    def assign(
        self, partitions_per_topic: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        """Return partitions by member id, without those that another member has to revoke first."""
        claims: Claims = {
            member.member_id: (member.owned, _generation_of(member)) for member in members
        }
        assignment = balance(partitions_per_topic, members, claims)
        moving = moving_partitions(assignment, members)
        return {
            member_id: [partition for partition in partitions if moving.get(partition) != member_id]
            for member_id, partitions in assignment.items()
        }

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:
        """Remember the generation."""
        self._generation = generation


def moving_partitions(
    assignment: Mapping[str, Collection[TopicPartition]], members: Sequence[MemberSubscription]
) -> dict[TopicPartition, str]:
    """Return the partitions that move between members, with the id of their new member."""
    revoked = {
        partition
        for member in members
        for partition in set(member.owned).difference(assignment[member.member_id])
    }
    return {
        partition: member.member_id
        for member in members
        for partition in set(assignment[member.member_id]).difference(member.owned)
        if partition in revoked
    }


def _generation_of(member: MemberSubscription) -> int:
    if member.generation >= 0 or not member.user_data:
        return member.generation
    try:
        return Reader(member.user_data).int32()
    except ProtocolError:
        return -1
