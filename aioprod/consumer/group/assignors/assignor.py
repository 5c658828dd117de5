"""The interface of assignors, and functions that they share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from aioprod.public_module import set_module
from aioprod.types import TopicPartition


@set_module("aioprod.consumer")
class RebalanceProtocol(IntEnum):
    """Determines which partitions members keep while a group rebalances (KIP-429)."""

    EAGER = 0
    """Members revoke all partitions before they join."""
    COOPERATIVE = 1
    """Members keep their partitions, and revoke those they lose afterwards. The next rebalance
    assigns these to other members.
    """


@set_module("aioprod.consumer")
@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """One member's part of a JoinGroup response.

    Attributes:
        member_id: its id.
        topics: its subscribed topics.
        group_instance_id: the name of a static member (KIP-345).
        user_data: bytes from its assignor's ``subscription_user_data``.
        owned: the partitions that it keeps during the rebalance; none for an eager member.
        generation: the generation in which they were assigned, -1 for none.
        rack: its ``client_rack``.
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
    """Shares out partitions. ``partition_assignment_strategy`` accepts your own assignors.

    If a method raises, the member does not join, and the application's next call raises the error.
    A BaseException that is not an Exception, such as CancelledError, becomes the cause of a
    ConsumerStateError.
    """

    @property
    def name(self) -> str:
        """The name of the protocol; all members need an assignor with the same name."""

    @property
    def supported_protocols(self) -> Collection[RebalanceProtocol]:
        """The supported rebalance protocols: eager, cooperative or both."""

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        """Return bytes for the leader's assignor; JoinGroup sends them with the subscription."""

    def assign(
        self, partitions_per_topic: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> Mapping[str, Collection[TopicPartition]]:
        """Return partitions by member id. ``partitions_per_topic`` has the subscribed topics that
        exist.
        """

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:
        """Handle the partitions that this member was assigned. An exception is logged."""


class StatelessAssignor:
    """An assignor that remembers nothing between rebalances."""

    supported_protocols: Collection[RebalanceProtocol] = (RebalanceProtocol.EAGER,)

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        """Return None."""
        return None

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:
        """Do nothing."""


def java_order(text: str) -> bytes:
    """Return a key that sorts strings as Java does, by UTF-16 units: every client must compute the
    same assignment.
    """
    return text.encode("utf-16-be", "surrogatepass")


def member_order(member: MemberSubscription) -> tuple[bool, bytes]:
    """Return a sort key for members: static members first, by instance id, so that a restart does
    not change the assignment; then the others, by member id.
    """
    if member.group_instance_id is not None:
        return False, java_order(member.group_instance_id)
    return True, java_order(member.member_id)


def all_partitions(
    partitions_per_topic: Mapping[str, int], topics: Iterable[str]
) -> list[TopicPartition]:
    """Return the partitions of the topics that exist, in order."""
    return [
        TopicPartition(topic, number)
        for topic in sorted(set(topics), key=java_order)
        for number in range(partitions_per_topic.get(topic, 0))
    ]
