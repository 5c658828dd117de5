"""The sticky assignor for cooperative rebalances (KIP-429): a partition goes to its new member only
after the old one has given it up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from aioprod.consumer.group.assignors.assignor import MemberSubscription, RebalanceProtocol
from aioprod.consumer.group.assignors.balance import Claims, balance
from aioprod.errors import ProtocolError
from aioprod.protocol.primitives import Reader, Writer
from aioprod.types import TopicPartition


class CooperativeStickyAssignor:
    """Equal shares, in two rebalances where partitions move: the first takes them from those who
    lose them, the second gives them away.
    """

    name = "cooperative-sticky"
    supported_protocols: Collection[RebalanceProtocol] = (
        RebalanceProtocol.COOPERATIVE,
        RebalanceProtocol.EAGER,
    )

    def __init__(self) -> None:
        self._generation = -1

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        """The generation, for leaders that can't read it from the subscription (before KIP-792)."""
        writer = Writer()
        writer.int32(self._generation)
        return bytes(writer.buffer)

    def assign(
        self, partitions_per_topic: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        """Return partitions by member id, except those that another member has to give up."""
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
    given_up = {
        partition
        for member in members
        for partition in set(member.owned).difference(assignment[member.member_id])
    }
    return {
        partition: member.member_id
        for member in members
        for partition in set(assignment[member.member_id]).difference(member.owned)
        if partition in given_up
    }


def _generation_of(member: MemberSubscription) -> int:
    if member.generation >= 0 or not member.user_data:
        return member.generation
    try:
        return Reader(member.user_data).int32()
    except ProtocolError:
        return -1
