"""The sticky assignor for eager rebalances (KIP-54): members send the leader their former
partitions as user data.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from aioprod.consumer.group.assignors.assignor import MemberSubscription, RebalanceProtocol
from aioprod.consumer.group.assignors.balance import balance
from aioprod.errors import ProtocolError
from aioprod.protocol.consumer_protocol import group_by_topic
from aioprod.protocol.primitives import Reader, Writer
from aioprod.types import TopicPartition


class StickyAssignor:
    """Equal shares with as few moves as possible."""

    name = "sticky"
    supported_protocols: Collection[RebalanceProtocol] = (RebalanceProtocol.EAGER,)

    def __init__(self) -> None:
        self._partitions: tuple[TopicPartition, ...] | None = None
        self._generation = -1

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        """Return the partitions that this member had before the rebalance."""
        return (
            None
            if self._partitions is None
            else encode_previous(self._partitions, self._generation)
        )

    def assign(
        self, partitions_per_topic: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        """Return partitions by member id."""
        return balance(
            partitions_per_topic,
            members,
            {member.member_id: decode_previous(member.user_data) for member in members},
        )

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:
        """Remember this member's partitions."""
        self._partitions, self._generation = tuple(partitions), generation


def encode_previous(partitions: Collection[TopicPartition], generation: int) -> bytes:
    """Encode Java's StickyAssignorUserData, version 1."""
    writer = Writer()
    topics = group_by_topic(partitions)
    writer.array_length(len(topics), False)
    for topic, numbers in topics.items():
        writer.string(topic)
        writer.array_length(len(numbers), False)
        for number in numbers:
            writer.int32(number)
    writer.int32(generation)
    return bytes(writer.buffer)


def decode_previous(data: bytes | None) -> tuple[tuple[TopicPartition, ...], int]:
    """Return a member's former partitions, and their generation (-1 in version 0, which has none).
    Return no partitions for invalid bytes.
    """
    if not data:
        return (), -1
    reader = Reader(data)
    partitions: list[TopicPartition] = []
    try:
        for _ in range(reader.array_length(False)):
            topic = reader.string()
            partitions += [
                TopicPartition(topic, reader.int32()) for _ in range(reader.array_length(False))
            ]
        return tuple(partitions), reader.int32() if reader.remaining else -1
    except ProtocolError:
        return (), -1
