"""What every assignor has in common."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from aioprod.public_module import set_module
from aioprod.types import TopicPartition


@set_module("aioprod.consumer")
class RebalanceProtocol(IntEnum):
    """What members do with their partitions while a group rebalances (KIP-429)."""

    EAGER = 0
    """They give up all of them before."""
    COOPERATIVE = 1
    """They keep them, and give up what they lose afterwards; who gains it gets it in the rebalance
    after that.
    """


@set_module("aioprod.consumer")
@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What one member brought to a rebalance.

    Attributes:
        member_id: its id.
        topics: what it reads.
        group_instance_id: of a static member (KIP-345).
        user_data: bytes of its assignor's own.
        owned: the partitions that it keeps meanwhile; an eager member has none.
        generation: in which it got these, -1 for none.
        rack: where it runs.
    """

    member_id: str
    topics: tuple[str, ...]
    group_instance_id: str | None = None
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack: str | None = None


@set_module("aioprod.consumer")
class Assignor(Protocol):
    """Shares out partitions. One of your own may be given as ``partition_assignment_strategy``.

    What it raises keeps the member from joining, and comes out of the application's next call. An
    error that is no Exception, such as CancelledError, is the cause of a ConsumerStateError there.
    """

    @property
    def name(self) -> str:
        """What the group calls it; all members need one of the same name."""

    @property
    def supported_protocols(self) -> Collection[RebalanceProtocol]:
        """Eager, cooperative or both."""

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        """Bytes for the leader's assignor, sent with the subscription."""

    def assign(
        self, partitions_per_topic: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> Mapping[str, Collection[TopicPartition]]:
        """Partitions by member id. ``partitions_per_topic`` has the topics that exist, of those
        that anybody reads.
        """

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:
        """What this member was given. An error in it is logged."""


class StatelessAssignor:
    """An assignor that remembers nothing between rebalances."""

    supported_protocols: Collection[RebalanceProtocol] = (RebalanceProtocol.EAGER,)

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        """None."""
        return None

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:
        """Nothing to remember."""


def java_order(text: str) -> bytes:
    """A key that orders strings as Java does, by UTF-16 units: all leaders of a group have to come
    to the same result.
    """
    return text.encode("utf-16-be", "surrogatepass")


def member_order(member: MemberSubscription) -> tuple[bool, bytes]:
    """A key for members: static ones first, by their instance, so that a restart changes nothing;
    the others by id.
    """
    if member.group_instance_id is not None:
        return False, java_order(member.group_instance_id)
    return True, java_order(member.member_id)


def all_partitions(
    partitions_per_topic: Mapping[str, int], topics: Iterable[str]
) -> list[TopicPartition]:
    """The partitions of those of the topics that exist, in order."""
    return [
        TopicPartition(topic, number)
        for topic in sorted(set(topics), key=java_order)
        for number in range(partitions_per_topic.get(topic, 0))
    ]
